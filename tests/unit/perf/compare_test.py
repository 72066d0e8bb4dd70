#!/usr/bin/env python3
"""Tests of perf/compare's logic: used runs, ratios, means, bounds, targets, text; with --runs also a wheel that
cannot be installed and, where the other libraries are, a run of seconds.

usage: compare_test.py BUILD_FOLDER [--runs]"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
COMPARE = HERE.parents[2] / "perf/compare"
sys.path.insert(0, str(COMPARE))
import bounds
import libraries
import machine
import plan
import report
import tables
import targets
from machine import Failure
from wheels import Wheel

BUILD = pathlib.Path(sys.argv[1])
RUNS = "--runs" in sys.argv
RECORDED = HERE / "compare_recorded.json"
M = 1 << 20


def run(library, times, number=1, state="near", **more):
    rows = {str(size): {"us": us, "max_us": 2 * us} for size, us in times.items()}
    return {"where": "shm", "collective": "all_reduce", "ranks": 2, "mode": "dirty",
            "round": number, "library": library, "state": state, "busy": False,
            "exchange_ns": [50.0, 52.0], "rows": rows, "init_ms": 3.0, **more}


def only_row(runs):
    found = tables.tables(runs)
    assert len(found) == 1 and len(found[0]["rows"]) == 1
    return found[0]["rows"][0]


class States(unittest.TestCase):
    def test_two_probes_agree_or_the_run_is_lost(self):
        near, far, same = (50.0, 51.0), (200.0, 210.0), (15.0, 15.5)
        self.assertEqual(machine.state_between(near, near), "near")
        self.assertEqual(machine.state_between(far, far), "far")
        self.assertEqual(machine.state_between(same, same), "same core")
        self.assertEqual(machine.state_between(near, far), "changed")
        self.assertEqual(machine.state_between((30.0, 30), (110.0, 110)), "changed")
        self.assertEqual(machine.state_between(None, None), "one core")

    def test_a_slow_median_shows_other_work(self):
        self.assertTrue(machine.busy((50.0, 51.0), (50.0, 120.0)))
        self.assertFalse(machine.busy((50.0, 51.0), None))


class Ratios(unittest.TestCase):
    def test_the_fastest_peer_of_the_same_rounds_counts(self):
        runs = []
        for number, own, slow, fast in ((1, 1.0, 4.0, 2.0), (2, 10.0, 40.0, 30.0), (3, 1.0, 5.0, 4.0)):
            runs += [run("whorl-plain", {8: own}, number), run("mpich", {8: slow}, number),
                     run("openmpi-ob1", {8: fast}, number)]
        row = only_row(runs)
        self.assertEqual(row["ratios"]["whorl-plain"],
                         {"ratio": 3.0, "least": 2.0, "most": 4.0, "pairs": 3, "peer": "openmpi-ob1"})
        self.assertEqual(row["median_us"], {"whorl-plain": 1.0, "mpich": 5.0, "openmpi-ob1": 4.0})
        self.assertEqual(row["longest_us"]["mpich"], 80.0)

    def test_runs_between_different_distances_are_not_divided(self):
        runs = [run("whorl-plain", {8: 1.0}, 1, "near"), run("mpich", {8: 2.0}, 1, "far"),
                run("whorl-plain", {8: 4.0}, 2, "far"), run("mpich", {8: 8.0}, 3, "far")]
        found = {table["state"]: table for table in tables.tables(runs)}
        self.assertEqual(set(found), {"near", "far"})
        for table in found.values():
            self.assertEqual(table["rows"][0]["ratios"], {})

    def test_a_lost_run_costs_its_own_pairs_only(self):
        runs = [run("whorl-plain", {8: 1.0}), run("whorl-whorl", {8: 1.0}, state="changed"),
                run("mpich", {8: 3.0})]
        table, = tables.tables(runs)
        self.assertEqual(table["lost_runs"], 1)
        self.assertEqual(table["rows"][0]["ratios"]["whorl-plain"]["ratio"], 3.0)
        self.assertNotIn("whorl-whorl", table["libraries"])

    def test_one_lucky_round_does_not_make_a_peer_the_fastest(self):
        runs = [run("gloo", {8: 0.5}, 1)]
        for number in (1, 2, 3):
            runs += [run("whorl-plain", {8: 1.0}, number), run("mpich", {8: 3.0}, number)]
        self.assertEqual(only_row(runs)["ratios"]["whorl-plain"]["peer"], "mpich")

    def test_another_figure_takes_the_place_of_the_mean(self):
        runs = tables.by_figure([run("whorl-plain", {8: 1.0, 64: 1.0}), run("mpich", {8: 3.0})], "max_us")
        table, = tables.tables(runs)
        self.assertEqual(table["rows"][0]["median_us"], {"whorl-plain": 2.0, "mpich": 6.0})
        self.assertEqual(tables.by_figure(runs, "p99_us")[0]["rows"], {})

    def test_the_mean_is_geometric(self):
        table, = tables.tables([run("whorl-plain", {8: 1.0, 64: 1.0}),
                                run("mpich", {8: 2.0, 64: 8.0})])
        self.assertAlmostEqual(table["means"]["whorl-plain"], 4.0)
        self.assertIsNone(tables.geometric_mean([]))

    def test_results_are_merged_without_pairing_their_rounds(self):
        one = {"runs": [run("whorl-plain", {8: 1.0})], "limits": [], "problems": [], "libraries": {}}
        two = {"runs": [run("mpich", {8: 2.0})], "limits": [], "problems": [], "libraries": {}}
        table, = tables.tables(tables.merged([one, two])["runs"])
        self.assertEqual(table["rows"][0]["ratios"], {})

    def test_losses_are_ratios_below_one(self):
        found = tables.tables([run("whorl-plain", {8: 2.0, 64: 1.0}), run("mpich", {8: 1.0, 64: 2.0})])
        (_, own, size, ratio), = tables.losses(found)
        self.assertEqual((own, size, ratio["ratio"]), ("whorl-plain", 8, 0.5))
        self.assertIn("in 1 places", report.format_losses(found))


class Bounds(unittest.TestCase):
    VALUES = {"copy": 30.0, "copy_nt": 50.0, "cross_read": 60.0}

    def table(self, collective="all_reduce", ranks=2, where="shm"):
        return {"where": where, "collective": collective, "ranks": ranks, "exchange_ns": 50.0}

    def bound(self, size, **more):
        return bounds.bound_us(self.table(**more), size, self.VALUES, 32 * M)

    def test_small_is_a_flag_exchange_and_large_is_memory_traffic(self):
        self.assertAlmostEqual(self.bound(8), 0.05)
        self.assertAlmostEqual(self.bound(M), M / 60e3)
        self.assertAlmostEqual(self.bound(64 * M), 4 * 64 * M / 50e3)
        self.assertAlmostEqual(self.bound(64 * M, collective="all_gather"), 3 * 64 * M / 50e3)

    def test_nothing_is_said_where_nothing_was_measured(self):
        self.assertIsNone(bounds.bound_us(self.table(), 64 * M, {}, 32 * M))
        self.assertIsNone(self.bound(M, ranks=4))
        self.assertIsNotNone(self.bound(64 * M, ranks=4))

    def test_a_cable_is_bound_by_its_rate_or_half_a_round_trip(self):
        values = {"round_trip_us": 8.0, "one_way": 8.0, "two_way": 4.0}
        table = self.table(where="hosts")
        self.assertAlmostEqual(bounds.bound_us(table, 8, values, 32 * M), 4.0)
        self.assertAlmostEqual(bounds.bound_us(table, 8 * M, values, 32 * M), 8 * M / 4e3)

    def test_limits_are_medians_of_one_state(self):
        limits = [{"where": "shm", "state": state, "values": {"copy": value}}
                  for state, value in (("near", 1.0), ("near", 3.0), ("near", 2.0), ("far", 9.0))]
        self.assertEqual(bounds.limits_at(limits, "shm", "near"), {"copy": 2.0})


class Targets(unittest.TestCase):
    def verdicts(self, runs, cores=2):
        found = tables.tables(runs)
        return {sentence for met, sentence in targets.verdicts(found, cores, {8: 5.0}) if met}, \
            [sentence for met, sentence in targets.verdicts(found, cores, {8: 5.0}) if met is False], \
            [sentence for met, sentence in targets.verdicts(found, cores, {8: 5.0}) if met is None]

    def test_the_worst_figure_decides(self):
        met, missed, _ = self.verdicts([run("whorl-plain", {8: 0.06, 64: 2.0}),
                                        run("mpich", {8: 1.0, 64: 1.0})])
        self.assertTrue(any("8 B on 2 ranks / flag exchange" in one for one in met), met)
        worse = [one for one in missed if "plain buffers, ratio at every size" in one]
        self.assertEqual(len(worse), 1, missed)
        self.assertIn("NOT met in 1 of 2", worse[0])
        self.assertIn("worst 0.50 (all_reduce, 2 ranks, near, 64 B, plain)", worse[0])

    def test_what_was_not_measured_is_neither(self):
        met, missed, none = self.verdicts([])
        self.assertEqual(len(met), 1, met)  # creation, given above
        self.assertEqual(missed, [])
        self.assertGreater(len(none), 10)


class Recorded(unittest.TestCase):
    def test_a_recorded_file_is_shown(self):
        done = subprocess.run([sys.executable, COMPARE / "compare.py", "--from", RECORDED],
                              capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        for part in ("reduce_scatter, 2 ranks, dirty", "cores near", "geometric mean of the ratios",
                     "targets:", "lost because the cores moved", "bound"):
            self.assertIn(part, done.stdout)

    def test_every_row_of_it_has_its_ratios_between_least_and_most(self):
        recorded = json.loads(RECORDED.read_text())
        found = tables.tables(recorded["runs"])
        self.assertGreaterEqual(len(found), 2)
        ratios = [one for table in found for row in table["rows"] for one in row["ratios"].values()]
        self.assertGreater(len(ratios), 10)
        for one in ratios:
            self.assertLessEqual(one["least"], one["ratio"])
            self.assertLessEqual(one["ratio"], one["most"])

    def test_a_file_that_is_none_is_a_sentence(self):
        done = subprocess.run([sys.executable, COMPARE / "compare.py", "--from", __file__],
                              capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 2)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)


class Plans(unittest.TestCase):
    def test_every_plan_has_every_collective(self):
        for cases in (plan.quick(), plan.ordinary(), plan.full()):
            self.assertEqual({case.collective for case in cases}, set(plan.COLLECTIVES))
            self.assertEqual(len({case.key() for case in cases}), len(cases))

    def test_every_library_has_a_command_for_every_case_that_it_offers(self):
        class Hosts:
            DEVICE, NETWORK, names = "cable", "10.0.0.0/24", ("a", "b")
            addresses = ("10.0.0.1", "10.0.0.2")

            def enter(self, host):
                return ["enter", self.names[host]]

            def next_port(self):
                return 1

            def agent(self, _):
                return "agent"

            def pinned(self, *_):
                return []

        folder = pathlib.Path("programs")
        with tempfile.TemporaryDirectory() as scratch:
            every = [library for newest in (False, True)
                     for library in libraries.all_of(folder, folder, ("plain", "registered"), newest)]
            for library in every:
                for case in plan.full():
                    if library.offers(case):
                        commands = library.commands(case, ["-T", 1], scratch, Hosts())
                        words = [str(word) for argv, _ in commands for word in argv]
                        self.assertTrue(any(case.collective in word for word in words), words)


    def test_wheels_run_with_their_own_launcher_and_libraries(self):
        case = plan.Case(plan.SHM, "all_reduce", 2)
        found = {library.name: library for library in libraries.newest(pathlib.Path("b"), pathlib.Path("p"))}
        self.assertEqual(set(found), {"openmpi5-ucx", "openmpi5-ob1", "mpich5", "impi"})
        for name, library in found.items():
            with self.subTest(name):
                (line, variables), = library.commands(case, [], None, None)
                self.assertTrue(str(line[0]).startswith("b/peers/"), line)
                for path in variables["LD_LIBRARY_PATH"].split(":"):
                    self.assertTrue(path.startswith("b/peers/"), variables)
                self.assertFalse(library.offers(plan.Case(plan.HOSTS, "all_reduce", 2)))


@unittest.skipUnless(RUNS, "with --runs only, because it makes a Python environment")
class Install(unittest.TestCase):
    def test_a_wheel_that_is_not_there_is_said(self):
        with tempfile.TemporaryDirectory() as folder:
            with self.assertRaisesRegex(Failure, "its wheel cannot be installed"):
                Wheel("whorl-no-such-wheel", folder).install(lambda _: None)


@unittest.skipUnless(RUNS, "with --runs only")
class RealRun(unittest.TestCase):
    def test_two_libraries_and_two_sizes(self):
        peers = [name for name, program in (("openmpi-ob1", "openmpi_all_reduce_perf"),
                                            ("gloo", "gloo_all_reduce_perf"))
                 if (BUILD / "perf/compare" / program).exists()]
        if shutil.which("mpirun.openmpi") is None and "openmpi-ob1" in peers:
            peers.remove("openmpi-ob1")
        if not peers:
            self.skipTest("neither Open MPI nor Gloo is installed")
        with tempfile.TemporaryDirectory() as scratch:
            result = os.path.join(scratch, "result.json")
            done = subprocess.run(
                [sys.executable, COMPARE / "compare.py", "--build", BUILD, "--ranks", "2", "--sizes",
                 "8", "1K", "--rounds", "1", "--alloc", "plain", "-n", "20", "--json", result,
                 "--libraries", *peers], capture_output=True, text=True, timeout=100, check=False)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            recorded = json.loads(pathlib.Path(result).read_text())
        self.assertEqual({one["library"] for one in recorded["runs"]}, {"whorl-plain", *peers},
                         done.stdout)
        for one in recorded["runs"]:
            self.assertEqual(set(one["rows"]), {"8", "1024"})


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
