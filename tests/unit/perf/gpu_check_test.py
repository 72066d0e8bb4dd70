#!/usr/bin/env python3
"""Tests perf/gpu/check.py and perf/gpu/steps.py with programs that fail, crash, hang, ignore signals and leave others
behind: gpu_check_test.py SOURCE"""
import json
import os
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

SOURCE = Path(sys.argv[1])
sys.path.insert(0, str(SOURCE / "perf" / "gpu"))

import steps  # noqa: E402

STUBS = {
    # Answers as a device, and fails at all measurements.
    "gpu_bench": "case $1 in device) echo '{\"measurement\": \"device\", \"name\": \"stub\"}';; *) exit 3;; esac",
    "whorl-devices": "echo '{}'",
    "driver_facts": "echo \"$1 ok\"",
    "all_reduce_perf": "echo 77 GB/s",
    "good_test": "echo fine",
    "skipping_test": "echo no such device; exit 77",
    "failing_test": "echo wrong sum; exit 1",
    "crashing_test": "kill -SEGV $$",
    "hanging_test": "trap '' TERM; echo before; while :; do sleep 1; done",
    "leaving_test": "sleep 1000 & echo left",
}


def run_check(folder, *arguments, limit=60):
    pack = Path(folder) / "pack"
    pack.mkdir()
    for name, text in STUBS.items():
        (pack / name).write_text(f"#!/bin/sh\n{text}\n")
        (pack / name).chmod(0o755)
    out = Path(folder) / "out"
    done = subprocess.run(
        [sys.executable, str(SOURCE / "perf/gpu/check.py"), "--pack", str(pack), "--out", str(out),
         *arguments], text=True, capture_output=True, timeout=limit, check=False)
    summary = {one["step"]: one for one in json.loads((out / "summary.json").read_text())}
    return done, summary, out


class Check(unittest.TestCase):
    def test_each_end_is_told_and_none_stops_the_others(self):
        with tempfile.TemporaryDirectory() as folder:
            done, summary, out = run_check(folder, "--test-limit", "2", "facts", "tests")
            self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
            for shard in range(2):
                ends = {name: summary[f"{name}_test_{shard}"]["outcome"]
                        for name in ("good", "skipping", "failing", "crashing", "hanging", "leaving")}
                self.assertEqual(ends["good"], "ok")
                self.assertEqual(ends["skipping"], "skipped")
                self.assertEqual(ends["failing"], "failed: exit status 1")
                self.assertEqual(ends["crashing"], "failed: signal 11")
                self.assertRegex(ends["hanging"], r"^failed: no end within \d s$")
                self.assertEqual(ends["leaving"], "ok")
            self.assertEqual((out / "hanging_test_0.txt").read_text(), "before\n")
            self.assertEqual((out / "driver_facts_P8.txt").read_text(), "P8 ok\n")
            self.assertIn("wrong sum", done.stdout)
            self.assertEqual(summary["all_reduce_processes"]["outcome"], "ok")

    def test_measurements_that_fail_are_told(self):
        with tempfile.TemporaryDirectory() as folder:
            done, summary, out = run_check(folder, "--smoke", "--seconds", "60", "figures")
            self.assertEqual(done.returncode, 1)
            self.assertEqual(summary["measure"]["outcome"], "failed: exit status 1", done.stdout)
            result = json.loads((out / "measure.json").read_text())
            self.assertIn("failed: exit status 3", {row["skipped"] for row in result["rows"]})

    def test_steps_without_time_are_marked(self):
        with tempfile.TemporaryDirectory() as folder:
            done, summary, _ = run_check(folder, "--seconds", "1", "tests")
            self.assertEqual(done.returncode, 0, done.stdout)
            self.assertEqual({one["outcome"] for one in summary.values()}, {"not run: time"})

    def test_an_unknown_part(self):
        done = subprocess.run([sys.executable, str(SOURCE / "perf/gpu/check.py"), "--pack", ".", "--out", ".",
                               "nothing"], text=True, capture_output=True, timeout=20, check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn("there is no part nothing; there are figures", done.stderr)


class Steps(unittest.TestCase):
    def test_what_a_program_leaves_running_is_ended(self):
        with tempfile.TemporaryDirectory() as folder:
            output = Path(folder) / "out"
            outcome = steps.run(["sh", "-c", "sleep 1000 & echo $!"], 10, output=output)
            self.assertEqual(outcome.code, 0)
            child = int(output.read_text())
            for _ in range(100):
                try:
                    os.kill(child, 0)
                except ProcessLookupError:
                    break
                if Path(f"/proc/{child}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z":
                    break
                time.sleep(0.1)
            else:
                self.fail("the child runs on")

    def test_a_process_that_no_signal_ends_is_left_behind(self):
        sent = []
        real, steps._signal = steps._signal, lambda process, number: sent.append((process, number))
        try:
            with tempfile.TemporaryDirectory() as folder:
                began = time.monotonic()
                outcome = steps.run(["sleep", "1000"], 0.2, output=Path(folder) / "out")
        finally:
            steps._signal = real
        self.assertTrue(outcome.left_behind)
        self.assertLess(time.monotonic() - began, 20)
        self.assertIn("not even after SIGKILL", outcome.text())
        self.assertEqual([number for _, number in sent], [15, 9, 9])
        sent[0][0].kill()
        sent[0][0].wait()

    def test_a_program_that_is_not_there(self):
        with tempfile.TemporaryDirectory() as folder:
            output = Path(folder) / "out"
            outcome = steps.run(["/no/such/program"], 5, output=output)
            self.assertEqual(outcome.code, 127)
            self.assertIn("cannot run /no/such/program", output.read_text())


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
