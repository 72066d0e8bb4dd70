#!/usr/bin/env python3
"""Runs the perf programs on real ranks: small sizes, every datatype and operator, threads, groups,
modes, launchers, and a rank that dies.

usage: programs_test.py FOLDER [--launchers]    FOLDER: of the programs"""
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

FOLDER = pathlib.Path(sys.argv[1])
NAMES = ["all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce", "alltoall",
         "sendrecv", "gather", "scatter"]
UNEVEN = ["reduce_scatterv", "all_gatherv", "alltoallv", "gatherv", "scatterv"]
LAUNCHER_VARIABLES = ("WHORL_RANK", "RANK", "WORLD_SIZE", "PMIX_RANK", "PMI_RANK",
                      "OMPI_COMM_WORLD_RANK", "SLURM_PROCID", "SLURM_STEP_ID")
ENVIRONMENT = {key: value for key, value in os.environ.items()
               if key not in LAUNCHER_VARIABLES and not key.startswith("WHORL_")}


def program(name):
    return str(FOLDER / (name + "_perf"))


def run(command, **more):
    return subprocess.run(command, env=ENVIRONMENT | more, capture_output=True, text=True,
                          timeout=100)


def rows_of(output):
    return [line.split() for line in output.splitlines() if line and not line.startswith("#")]


class Programs(unittest.TestCase):
    def good(self, command, **more):
        """Runs a command that must verify all results; returns its rows."""
        result = run(command, **more)
        self.assertEqual(result.returncode, 0, (command, result.stderr, result.stdout[-2000:]))
        self.assertIn("# Out of bounds values : 0 OK", result.stdout, command)
        rows = rows_of(result.stdout)
        for row in rows:
            self.assertIn({row[8], row[12]}, ({"0"}, {"0", "N/A"}), (command, row))
        return rows


class Sweeps(Programs):
    def test_every_program_on_several_ranks(self):
        for name in NAMES:
            for ranks in ("2", "3", "4"):
                rows = self.good([program(name), "--ranks", ranks, "-b", "4", "-e", "40000", "-f", "10",
                                  "-n", "3", "-w", "1", "-r", "all"])
                self.assertGreaterEqual(len(rows), 5, name)

    def test_blocks_of_different_sizes(self):
        for name in UNEVEN:
            for ranks, skew in (("1", "50"), ("2", "0"), ("3", "30"), ("4", "100")):
                self.good([program(name), "--ranks", ranks, "-b", "4", "-e", "400000", "-f", "10", "-n",
                           "3", "-w", "1", "-r", "all", "--skew", skew])

    def test_every_datatype_and_operator(self):
        for name in ("all_reduce", "reduce_scatter", "reduce"):
            rows = self.good([program(name), "--ranks", "3", "-b", "1200", "-e", "1200", "-n", "2",
                              "-w", "0", "-o", "all", "-d", "all"])
            self.assertEqual(len(rows), 6 * 6 + 8 * 9 + 7)
        self.assertEqual(len(self.good([program("alltoall"), "--ranks", "2", "-b", "999", "-e", "999",
                                        "-n", "2", "-d", "all"])), 15)

    def test_both_spellings_of_collectives(self):
        starter = str(FOLDER / "whorl-perf")
        for word, name in (("allreduce", "all_reduce"), ("all_reduce", "all_reduce"), ("allgatherv", "all_gatherv")):
            done = run([starter, word, "-h"])
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertIn(f"Usage: whorl-perf {name} ", done.stdout)
        done = run([starter, "allreduction"])
        self.assertEqual(done.returncode, 2)
        self.assertIn("allreduction not in {", done.stderr)

    def test_one_rank(self):
        for name in set(NAMES) - {"sendrecv"}:
            self.good([program(name), "--ranks", "1", "-e", "4K", "-f", "16", "-n", "2"])

    def test_the_barrier_is_one_row_without_sizes(self):
        for ranks in ("1", "2", "3"):
            row, = self.good([program("barrier"), "--ranks", ranks, "-n", "50"])
            self.assertEqual(row[:2], ["0", "0"])

    def test_sizes_sides_and_a_budget(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "out.json")
            rows = self.good([program("all_reduce"), "--ranks", "2", "--sizes", "1K,8,1M", "--budget", "1",
                              "-n", "500", "--side", "in", "-J", path])
            with open(path, encoding="utf-8") as file:
                report = json.load(file)
        self.assertEqual([row[0] for row in rows], ["8", "1024", "1048576"])
        self.assertEqual({row[5] for row in rows}, {"N/A"})
        self.assertGreater(report["init_ms"], 0)
        for row in report["rows"]:
            self.assertIsNone(row["out_of_place"])
            self.assertGreaterEqual(row["in_place"]["iterations"], 3)
            self.assertLessEqual(row["in_place"]["iterations"], 500)
            self.assertGreaterEqual(row["in_place"]["max_us"], row["in_place"]["time_us"])
            figures = [row["in_place"][one] for one in ("p50_us", "p99_us", "p999_us", "max_us")]
            self.assertEqual(figures, sorted(figures))
            self.assertGreater(figures[0], 0)
        for mode in ("moving", "warm", "cold"):
            self.good([program("all_reduce"), "--ranks", "2", "--sizes", "8,64K", "--budget", "2", "-n",
                       "100", "--mode", mode])

    def test_modes_buffers_and_streams(self):
        for more in (["--mode", "warm"], ["--mode", "cold", "-n", "4"], ["--alloc", "whorl"],
                     ["--alloc", "registered"], ["--stream"], ["--stream", "-z", "1", "-m", "3"],
                     ["--mode", "warm", "-m", "4"], ["--stream", "-C", "1", "--mode", "warm"]):
            for name in ("all_reduce", "all_gather", "sendrecv"):
                self.good([program(name), "--ranks", "2", "-b", "64", "-e", "1M", "-f", "64", "-n", "5"]
                          + more)

    def test_operations_that_begin_together(self):
        for name in ("all_reduce", "broadcast"):
            for more in ([], ["-t", "2"], ["--stream", "--mode", "moving"]):
                self.good([program(name), "--ranks", "2", "-e", "1K", "-n", "5", "--together"] + more)

    def test_threads_and_groups(self):
        for shape in (["-t", "2"], ["-t", "4"], ["-g", "2"], ["-t", "2", "-g", "2"]):
            for name in ("all_reduce", "alltoall", "sendrecv", "gather"):
                self.good([program(name), "--ranks", "4", "-b", "1K", "-e", "64K", "-f", "8", "-n", "3"]
                          + shape)

    @unittest.skipUnless("FAKE_CUDA" in os.environ, "built without support for devices")
    def test_buffers_on_a_pretended_device(self):
        driver = {"LD_LIBRARY_PATH": os.environ["FAKE_CUDA"]}
        for shape in ([], ["-t", "3"], ["-g", "3"], ["--mode", "warm", "-t", "3"]):
            for name in (*NAMES, "reduce_scatterv", "all_gatherv"):
                self.good([program(name), "--ranks", "3", "-b", "64", "-e", "256K", "-f", "64", "-n", "3",
                           "--alloc", "device"] + shape, **driver)

    @unittest.skipUnless("FAKE_CUDA" in os.environ, "built without support for devices")
    def test_ranks_of_a_thread_take_the_devices_in_turn(self):
        # Like nccl-tests' -g, but with more ranks than devices.
        for devices, expected in ((1, [0, 0, 0, 0]), (2, [0, 1, 0, 1])):
            with tempfile.TemporaryDirectory() as folder:
                file = os.path.join(folder, "run.json")
                done = run([program("all_reduce"), "--ranks", "4", "-g", "4", "-b", "64", "-e", "64K",
                            "-f", "64", "-n", "3", "--alloc", "device", "-J", file],
                           LD_LIBRARY_PATH=os.environ["FAKE_CUDA"], FAKE_CUDA_DEVICES=str(devices))
                self.assertEqual(done.returncode, 0, done.stderr)
                with open(file) as text:
                    ranks = json.load(text)["ranks"]
            self.assertEqual([rank["device"] for rank in ranks], expected)
            self.assertEqual({rank["device_name"] for rank in ranks}, {"pretended device"})
            self.assertRegex(done.stdout, f"Rank  3 .* device  {expected[3]} pretended device")
            self.assertIn("buffers on the device, asynchronous on a stream of the device",
                          done.stdout)

    @unittest.skipUnless("FAKE_CUDA" in os.environ, "built without support for devices")
    def test_a_driver_without_a_device_is_one_sentence(self):
        result = run([program("all_reduce"), "--ranks", "2", "--alloc", "device"],
                     LD_LIBRARY_PATH=os.environ["FAKE_CUDA"], FAKE_CUDA_DEVICES="0")
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("cuInit failed: CUDA_ERROR_NO_DEVICE", result.stderr)

    def test_the_latency_of_a_message(self):
        rows = self.good([program("latency"), "-e", "64K", "-f", "16", "-n", "50"])
        self.assertEqual([row[0] for row in rows], ["8", "128", "2048", "32768"])
        self.good([program("latency"), "-t", "2", "-e", "1K", "-f", "8", "-n", "20", "--mode", "warm"])
        done = run([program("latency"), "--sizes", "8", "-n", "2000"])
        self.assertIn("# Out of bounds values : 0 OK", done.stdout)
        self.assertRegex(done.stdout, "p50 .* p99 .* p99.9 .* of 2000 operations")
        for flags in (["--ranks", "3"], ["--ranks", "2", "-g", "2"], ["-m", "2"]):
            done = run([program("latency")] + flags)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn("latency_perf is for 2 ranks", done.stderr)

    def test_cycles_timestamps_memory_and_unaligned_buffers(self):
        command = [program("all_reduce"), "--ranks", "2", "--sizes", "8,4K,1M", "-n", "3"]
        done = run(command + ["-N", "2", "-S", "1", "-M", "1"])
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual([row[0] for row in rows_of(done.stdout)], ["8", "4096", "1048576"] * 2)
        self.assertRegex(done.stdout, "\n# Cycle 2 of 2\n +8 ")
        self.assertEqual(len(re.findall(r"[0-9] {2}20\d\d-\d\d-\d\d \d\d:\d\d:\d\d\n", done.stdout)), 6)
        self.assertRegex(done.stdout, "# Memory of the rank that uses most: communicator [1-9]")
        for name in NAMES:
            for more in ([], ["--mode", "cold"], ["--alloc", "whorl"], ["-d", "uint8"]):
                self.good([program(name), "--ranks", "2", "--sizes", "1000,100K", "-n", "3", "-u", "3"]
                          + more)

    def test_cycles_without_an_end(self):
        done = run([program("all_reduce"), "--ranks", "2", "--sizes", "8", "-N", "0", "-T", "4"])
        self.assertIn("longer than -T allows", done.stderr)
        self.assertRegex(done.stdout, "\n# Cycle 9\n")

    def test_a_plot(self):
        if run(["python3", str(FOLDER / "plot.py"), "--check", "x.png"]).returncode != 0:
            self.skipTest("no matplotlib")
        with tempfile.TemporaryDirectory() as folder:
            command = [program("all_gather"), "--ranks", "2", "-e", "1K", "-n", "2"]
            for ending in ("png", "svg"):
                path = os.path.join(folder, "out." + ending)
                done = run(command + ["--plot", path])
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertGreater(os.path.getsize(path), 5000)

            full = os.path.join(folder, "full.svg")
            os.symlink("/dev/full", full)
            done = run(command + ["--plot", full])
            self.assertEqual(done.returncode, 1)
            self.assertIn(f"plot.py: cannot write {full}: No space left on device\n", done.stderr)
            self.assertNotIn("Traceback", done.stderr)
            done = run([program("barrier"), "--ranks", "2", "--plot", os.path.join(folder, "out.png")])
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertIn("a barrier has no size", done.stderr)

    def test_a_plot_has_no_more_curves_than_can_be_told_apart(self):
        if run(["python3", str(FOLDER / "plot.py"), "--check", "x.png"]).returncode != 0:
            self.skipTest("no matplotlib")
        with tempfile.TemporaryDirectory() as folder:
            path, json_path = os.path.join(folder, "out.svg"), os.path.join(folder, "out.json")
            flags = ["--ranks", "2", "--sizes", "8,64", "-n", "2", "-w", "0"]
            for name, more, curves in (("all_reduce", ["-d", "all", "-o", "all"], 230),
                                       ("all_gather", ["-d", "all"], 30),
                                       ("broadcast", ["-d", "all", "-r", "all"], 60)):
                done = run([program(name), *flags, *more, "--plot", path])
                self.assertEqual((done.returncode, done.stdout), (2, ""))
                self.assertIn(f"{curves} curves cannot be told apart, 20 can; choose a datatype by -d", done.stderr)
                self.assertFalse(os.path.exists(path))
            done = run([program("all_gather"), *flags, "-d", "all", "--side", "out", "--plot", path])
            self.assertEqual(done.returncode, 0, done.stderr)
            self.good([program("all_gather"), *flags, "-d", "all", "-J", json_path])
            with open(json_path, encoding="utf-8") as recorded:
                done = subprocess.run(["python3", str(FOLDER / "plot.py"), path], stdin=recorded, capture_output=True,
                                      text=True, timeout=60, check=False)
            self.assertEqual(done.returncode, 1)
            self.assertIn("30 curves cannot be told apart", done.stderr)

    def test_a_workload(self):
        result = run([program("all_reduce"), "--ranks", "2", "--workload", "resnet50", "-n", "1", "-w",
                      "0"])
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("25557032 elements of float, 5 buckets", result.stdout)
        self.assertIn("# Out of bounds values : 0 OK", result.stdout)
        rows = rows_of(result.stdout)
        self.assertEqual(sum(int(row[1]) for row in rows), 25557032)

    def test_json(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "out.json")
            rows = self.good([program("all_reduce"), "--ranks", "2", "-e", "1K", "-n", "2", "-J", path])
            with open(path, encoding="utf-8") as file:
                report = json.load(file)
        self.assertEqual([row["bytes"] for row in report["rows"]], [int(row[0]) for row in rows])
        self.assertEqual(len(report["ranks"]), 2)
        self.assertEqual(report["command"][1:3], ["--ranks", "2"])
        self.assertEqual(report["environment"], {})
        self.assertEqual({rank["transports"] for rank in report["ranks"]}, {"shm"})
        self.assertEqual({row["algorithm"] for row in report["rows"]}, {"oneshot"})
        self.assertEqual(report["out_of_bounds"], 0)


class Refusals(Programs):
    def test_bad_flags_are_one_sentence_and_status_2(self):
        for name, *flags in (["all_reduce", "-b", "foo"], ["all_reduce", "--frobnicate"],
                             ["all_reduce", "--ranks", "3", "-t", "2"], ["broadcast", "-r", "2", "--ranks", "2"],
                             ["broadcast", "-r", "1000"], ["latency", "--ranks", "3"], ["latency", "-g", "2"]):
            result = run([program(name)] + flags)
            self.assertEqual(result.returncode, 2)
            self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
            self.assertEqual(result.stdout, "")

    def test_files_that_cannot_be_written_are_refused_before_the_measurement(self):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            launched = {"WHORL_RANK": "0", "WHORL_NRANKS": "1",
                        "WHORL_ADDRESS": "127.0.0.1:" + str(listener.getsockname()[1])}
        for flags, sentence in ((["-J", "/nowhere/out.json"], "Cannot write -J /nowhere/out.json: No such"),
                                (["--plot", "/nowhere/out.png"], "cannot write into the folder"),
                                (["--plot", "out.gif"], "must end in .png, .svg, .pdf")):
            for extra, variables in (["--ranks", "2"], {}), ([], launched):
                done = run([program("all_reduce"), "-e", "64", "-n", "2"] + extra + flags, **variables)
                self.assertEqual(done.returncode, 2)
                self.assertIn(sentence, done.stderr)
                self.assertEqual(rows_of(done.stdout), [])

    def test_a_run_that_fails_leaves_no_empty_json_file(self):
        with tempfile.TemporaryDirectory() as folder:
            new, old = pathlib.Path(folder, "new.json"), pathlib.Path(folder, "old.json")
            old.write_text("kept", encoding="utf-8")
            for path in (new, old):
                done = run([program("all_reduce"), "--ranks", "2", "-b", "100000G", "-e", "100000G", "-J", str(path)])
                self.assertEqual(done.returncode, 1, done.stderr)
            self.assertFalse(new.exists())
            self.assertEqual(old.read_text(encoding="utf-8"), "kept")

    def test_a_table_that_cannot_be_written_is_a_failure(self):
        with open("/dev/full", "w", encoding="utf-8") as full:
            done = subprocess.run([program("all_reduce"), "--ranks", "2", "-e", "64", "-n", "2"], env=ENVIRONMENT,
                                  stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
        self.assertEqual(done.returncode, 1)
        self.assertIn("Cannot write the table: No space left", done.stderr)
        done = run(["sh", "-c", '"$0" --ranks 2 -e 64 -n 2 >&-', program("all_reduce")])
        self.assertEqual(done.returncode, 1)
        self.assertIn("Cannot write the table: Bad file descriptor", done.stderr)

    def test_a_reader_that_leaves_is_no_failure_of_a_rank(self):
        command = [program("all_reduce"), "--ranks", "3", "-N", "0", "-e", "64"]
        with subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True) as run_:
            self.assertTrue(run_.stdout.readline())
            run_.stdout.close()
            errors = run_.stderr.read()
            self.assertEqual(run_.wait(timeout=60), 1)
        self.assertEqual(errors, "")

    def test_sentences_name_the_program_as_it_was_called(self):
        for name, expected in ((program("all_reduce"), "(all_reduce_perf --help"),
                               ("all_reduce", "(whorl-perf all_reduce --help")):
            done = subprocess.run([name, "--frobnicate"], executable=program("all_reduce"), env=ENVIRONMENT,
                                  capture_output=True, text=True, timeout=60)
            self.assertEqual(done.returncode, 2)
            self.assertIn(expected, done.stderr)

    def test_a_size_beyond_memory_says_what_would_fit(self):
        result = run([program("all_reduce"), "--ranks", "2", "-b", "100000G", "-e", "100000G"])
        self.assertEqual(result.returncode, 1)
        self.assertIn("would fit", result.stderr)


class Deaths(Programs):
    def test_a_killed_rank_ends_the_run_with_its_name(self):
        command = [program("all_reduce"), "--ranks", "3", "-b", "1M", "-e", "1M", "-n", "1000000"]
        with subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True) as run_:
            pids = []
            for line in run_.stdout:  # the header comes before the first measurement
                if line.startswith("#  Rank"):
                    pids.append(int(line.split()[4]))
                if "(elements)" in line:
                    break
            self.assertEqual(len(pids), 3)
            time.sleep(0.3)
            start = time.monotonic()
            os.kill(pids[1], signal.SIGKILL)
            _, errors = run_.communicate(timeout=60)
        self.assertEqual(run_.returncode, 1, errors)
        self.assertLess(time.monotonic() - start, 30)
        self.assertIn("Process 1 was killed by signal 9", errors)
        for pid in pids:
            self.assertFalse(os.path.exists(f"/proc/{pid}"), "a rank was left behind")

    def test_a_time_limit_ends_the_run(self):
        result = run([program("all_reduce"), "--ranks", "2", "-n", "100000000", "-T", "1"])
        self.assertEqual(result.returncode, 1)
        self.assertIn("longer than -T allows", result.stderr)


class Launchers(Programs):
    def launch(self, launcher, flags, more):
        if shutil.which(launcher) is None:
            self.skipTest(launcher + " is not installed")
        for name in NAMES:
            for ranks in ("2", "4"):
                self.good([launcher, "-n", ranks] + flags +
                          [program(name), "-e", "4K", "-f", "8", "-n", "3"], **more)
        # One process for two ranks: the launcher's communicator carries the id of all ranks'.
        self.good([launcher, "-n", "2"] + flags +
                  [program("all_reduce"), "-t", "2", "-e", "4K", "-n", "3"], **more)

    def test_open_mpi(self):
        self.launch("mpirun.openmpi", ["--oversubscribe"],
                    {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"})

    def test_mpich(self):
        self.launch("mpirun.mpich", [], {})

    def test_another_number_of_ranks_than_the_launchers(self):
        if shutil.which("mpirun.mpich") is None:
            self.skipTest("mpirun.mpich is not installed")
        command = ["mpirun.mpich", "-n", "2", program("all_reduce"), "-e", "64", "-n", "2", "--ranks"]
        self.good([*command, "2"])
        done = run([*command, "4"])
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("--ranks 4 is for runs without a launcher; PMI has started 2 ranks", done.stderr)


if __name__ == "__main__":
    classes = [Launchers] if "--launchers" in sys.argv else [Sweeps, Refusals, Deaths]
    loader = unittest.defaultTestLoader
    suite = unittest.TestSuite(loader.loadTestsFromTestCase(case) for case in classes)
    sys.exit(0 if unittest.TextTestRunner(verbosity=2).run(suite).wasSuccessful() else 1)
