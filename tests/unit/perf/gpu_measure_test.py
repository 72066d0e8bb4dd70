#!/usr/bin/env python3
"""Tests perf/gpu/measure.py on a pretended device: gpu_measure_test.py SOURCE BENCH DEVICES NCCL
FOLDER-OF-PRETENDED-LIBRARIES"""
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SOURCE, BENCH, DEVICES, NCCL = sys.argv[1:5]
LIBRARIES = str(Path(sys.argv[5]).resolve())
sys.path.insert(0, str(Path(SOURCE) / "perf" / "gpu"))

import plan  # noqa: E402


def measure(folder, *arguments, bench=BENCH, libraries=LIBRARIES, limit=200):
    # Meson adds the folder, too.
    known = [one for one in os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)
             if one and str(Path(one).resolve()) != LIBRARIES]
    path = os.pathsep.join(([libraries] if libraries else []) + known)
    return subprocess.run(
        [sys.executable, str(Path(SOURCE) / "perf/gpu/measure.py"), "--bench", bench, "--devices",
         DEVICES, "--out", folder, "--smoke", *arguments],
        env={**os.environ, "LD_LIBRARY_PATH": path}, text=True, capture_output=True, timeout=limit,
        check=False)


class Measure(unittest.TestCase):
    def run_in_folder(self, *arguments, **more):
        with tempfile.TemporaryDirectory() as folder:
            done = measure(folder, *arguments, **more)
            read = [Path(folder) / name for name in ("measure.json", "measure.md")]
            if not read[0].exists():
                return done, None, None
            return done, json.loads(read[0].read_text()), read[1].read_text()

    def test_everything_is_there(self):
        done, result, text = self.run_in_folder("--nccl", NCCL, "--seconds", "180")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertTrue(result["device"]["pretended"])
        self.assertIn("A pretended device: no figure here says anything about speed", text)
        self.assertEqual(result["devices_before"]["driver"], "pretended")
        expected = [row for step in plan.Plan(smoke=True, nccl=NCCL).steps() for row in step.rows]
        self.assertEqual({row["measurement"] for row in expected},
                         {f"M{number}" for number in range(1, 11)})
        pings = [row for row in result["rows"] if row.get("collective") == "ping-pong"]
        self.assertEqual(len(result["rows"]) - len(pings), len(expected))
        self.assertGreater(pings[0]["us"]["words, one way"], 0)
        for row in result["rows"]:
            skipped = row.get("skipped", "")
            if row["measurement"] == "M7" or row.get("collective") == "sums of torch":
                continue  # a part of the library and a package that may be missing
            self.assertEqual(skipped, "", row)
            if row["measurement"] == "M8":
                self.assertEqual(row["differ_from_rank_order"] if "host" not in row["path"]
                                 else row["differ_from_host"], 0, row)
                self.assertGreater(row["compared"], 0)
            elif row["measurement"] == "M10":
                self.assertIn("fence of the system", row["us"])
            elif row.get("collective") != "ping-pong":
                self.assertGreater(row["us"]["whorl"], 0, row)
                self.assertLessEqual(row.get("wrong", 0), 0, row)
        against_nccl = [row for row in result["rows"] if "nccl" in (row.get("us") or {})]
        self.assertEqual(len(against_nccl), 4)
        for name in ("M1", "M2", "M3", "M4", "M5", "M6", "M7", "M8", "M9", "M10"):
            self.assertIn(f"## {name}: ", text)
        self.assertIn("gpu_bench collectives --name M1 --collective allreduce -N 2", text)

    def test_rows_without_time_are_marked(self):
        done, result, text = self.run_in_folder("--seconds", "0", "--only", "M1,M8")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual({row["skipped"] for row in result["rows"]}, {"not run: time"})
        self.assertIn("not run: time", text)

    def test_a_step_that_fails_does_not_stop_the_rest(self):
        with tempfile.TemporaryDirectory() as folder:
            bench = Path(folder) / "bench"
            bench.write_text("#!/bin/sh\n"
                             "case \"$1 $*\" in *latency*) echo no luck >&2; exit 3;; esac\n"
                             f"exec '{BENCH}' \"$@\"\n")
            bench.chmod(0o755)
            done, result, text = self.run_in_folder("--only", "M3,M6", bench=str(bench))
        self.assertEqual(done.returncode, 1)
        self.assertIn("FAIL  M3", done.stdout)
        rows = {name: [row for row in result["rows"] if row["measurement"] == name]
                for name in ("M3", "M6")}
        self.assertEqual({row["skipped"] for row in rows["M3"]}, {"failed: no luck"})
        self.assertTrue(all("us" in row for row in rows["M6"]))
        self.assertIn("failed: no luck", text)

    def test_wrong_results_are_told(self):
        with tempfile.TemporaryDirectory() as folder:
            bench = Path(folder) / "bench"
            bench.write_text(f"#!/bin/sh\n'{BENCH}' \"$@\" | sed 's/\"wrong\":0/\"wrong\":7/'\n")
            bench.chmod(0o755)
            done, result, _ = self.run_in_folder("--only", "M1", bench=str(bench))
        self.assertEqual(done.returncode, 1)
        self.assertIn("FAIL  wrong results", done.stdout)
        self.assertEqual(result["rows"][0]["wrong"], 7)

    def test_no_device(self):
        with tempfile.TemporaryDirectory() as folder:
            done = measure(folder, libraries=None)
        self.assertEqual(done.returncode, 77, done.stdout + done.stderr)
        self.assertIn("no device to measure on: ", done.stdout)


class Predictions(unittest.TestCase):
    PEAK = 1e12

    def test_bytes_by_the_memory(self):
        row = {"measurement": "M1", "collective": "allreduce", "ranks": 2, "bytes": 1 << 20,
               "moved_bytes": 4 << 20, "us": {}}
        memory = (4 << 20) / (plan.REACHABLE * self.PEAK) * 1e6
        self.assertAlmostEqual(plan.predicted_us(row, self.PEAK, None), plan.NODE_US + memory)
        self.assertIsNone(plan.predicted_us(row, 0, None))
        nccl = plan.predicted_other_us(row, "nccl", self.PEAK)
        self.assertAlmostEqual((nccl - plan.NODE_US) / memory, 1.5)
        row["measurement"] = "M4"
        self.assertIsNone(plan.predicted_us(row, self.PEAK, None))
        self.assertAlmostEqual(plan.predicted_us(row, self.PEAK, 10), 20 + memory)

    def test_targets(self):
        row = {"measurement": "M1", "bytes": 64 << 20, "us": {}, "times_as_fast_as": {"triad": 0.91}}
        self.assertTrue(plan.target_of(row).met)
        row["times_as_fast_as"]["triad"] = 0.89
        self.assertFalse(plan.target_of(row).met)
        row["bytes"] = 1 << 20
        self.assertIsNone(plan.target_of(row))
        row = {"measurement": "M8", "path": "host", "data": "order-sensitive",
               "differ_from_host": 0, "differ_from_rank_order": 5}
        self.assertTrue(plan.target_of(row).met)
        row["path"] = "one kernel"
        self.assertFalse(plan.target_of(row).met)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
