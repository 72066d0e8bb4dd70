#!/usr/bin/env python3
"""Tests of perf/scoreboard: what errors name, outcomes of ranks, promises, the table; and, with --runs, the
driver with ranks of whorl.

usage: scoreboard_test.py BUILD_FOLDER [--runs]"""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
SCOREBOARD = HERE.parents[2] / "perf/scoreboard"
sys.path.insert(0, str(SCOREBOARD))
import board
import faults
import outcomes
import promises
import sentences

BUILD = pathlib.Path(sys.argv[1])
RUNS = "--runs" in sys.argv
ME, CULPRIT = "rank 0 (host vm, pid 10)", "rank 1 (host vm, pid 11)"
END = ". All ranks must make the same calls in the same order"


def two_calls(here, there, differences, other=CULPRIT):
    return (f"ranks disagree on an operation: {ME} calls {here}, {other} calls {there}; they differ in "
            f"{differences}{END}")


COUNTS = two_calls("allreduce number 2 of 1024 float32 (sum)", "allreduce number 2 of 512 float32 (sum)",
                   "count (1024 here, 512 there)")


def judged(fault, text, count=1024):
    return sentences.judge(text, faults.BY_NAME[fault], count)


class Sentences(unittest.TestCase):
    def test_two_calls_name_everything(self):
        self.assertTrue(judged("count", COUNTS).full)
        self.assertTrue(judged("count", f"rank 2 (host vm, pid 12) gave up: {COUNTS}").full)
        self.assertTrue(judged("datatype", two_calls(
            "allreduce number 2 of 8 float32 (sum)", "allreduce number 2 of 8 int32 (sum)",
            "datatype (float32 here, int32 there)")).full)
        self.assertTrue(judged("order", two_calls(
            "allreduce number 2 of 8 float32 (sum)", "broadcast number 2 of 8 float32 from root 0",
            "collective (allreduce here, broadcast there)")).full)

    def test_a_value_that_is_not_true_names_no_field(self):
        self.assertEqual(judged("count", COUNTS, count=4096), sentences.Naming(sentences.RIGHT, True, False))
        swapped = COUNTS.replace("count (1024 here, 512 there)", "count (512 here, 1024 there)")
        self.assertFalse(judged("count", swapped).field)

    def test_another_field_is_not_the_field(self):
        self.assertEqual(judged("operator", COUNTS), sentences.Naming(sentences.RIGHT, True, False))

    def test_two_ranks_of_which_none_is_at_fault_are_wrong(self):
        text = two_calls("allreduce number 2 of 1024 float32 (sum)", "allreduce number 2 of 512 float32 (sum)",
                         "count (1024 here, 512 there)", other="rank 2 (host vm, pid 12)")
        self.assertEqual(judged("count", text).rank, sentences.WRONG)

    def test_a_disagreement_does_not_explain_a_death(self):
        self.assertEqual(judged("kill-during", COUNTS), sentences.Naming(sentences.WRONG, True, False))

    def test_an_error_of_the_next_call_names_the_field_if_it_is_there(self):
        late = two_calls("allreduce number 3 of 8 float32 (sum)", "broadcast number 2 of 8 float32 from root 1",
                         "collective (allreduce here, broadcast there), root (0 here, 1 there), operation number "
                         "(3 here, 2 there)")
        self.assertTrue(judged("root", late).full)
        self.assertFalse(judged("root", late.replace(" root (0 here, 1 there),", "")).field)

    def test_deaths(self):
        died = f"{CULPRIT} died without destroying its communicator; rank 0 was in allreduce number 2 of 8 float32"
        self.assertTrue(judged("kill-before", died).full)
        self.assertEqual(judged("kill-before", died.replace(CULPRIT, ME)).rank, sentences.WRONG)
        self.assertFalse(judged("kill-before", died.split(";")[0]).operation)
        left = f"{CULPRIT} has destroyed its communicator, or come to the end of its program, while rank 0 still waits"
        self.assertTrue(judged("exit", left + " for it; rank 0 was in allreduce number 2").full)

    def test_the_rank_that_is_waited_for_first_is_not_the_one_that_is_blamed(self):
        text = (f"no progress within the timeout of 1.5 s. {ME} in allreduce number 2 of 8 float32 (sum): waiting for "
                "rank 2 (host vm, pid 12) while receiving. %s may be stopped, busy elsewhere or may not have made it")
        self.assertTrue(judged("absent", text % CULPRIT).full)
        self.assertEqual(judged("absent", text % "rank 2 (host vm, pid 12)").rank, sentences.WRONG)

    def test_other_libraries(self):
        nameless = sentences.Naming(sentences.NONE, False, False)
        self.assertEqual(judged("kill-during", "[./gloo/transport/tcp/pair.cc:598] Connection closed by peer "
                                "[127.0.0.1]:35236"), nameless)
        self.assertEqual(judged("count", "MPI_ERR_TRUNCATE: message truncated"), nameless)
        self.assertEqual(judged("count", "Allreduce: rank 2 has another count"),
                         sentences.Naming(sentences.WRONG, True, True))

    def test_warnings(self):
        line = f"02:43:20 vm:10 whorl warn: no progress for 1.0 s: {ME} in allreduce number 2: waiting for {CULPRIT}"
        self.assertEqual(sentences.warned_of(line + "\nwaiting for rank 2 (host vm, pid 12)\n"), {1})


def calls(*outputs, errors=None, left=True):
    made = [{"part": "faulty" if not place else "next", "ms": [0, 2.0 + place], "output": output}
            for place, output in enumerate(outputs)]
    if errors:
        made[-1]["error"] = errors
    return {"joined": [-60.0, -50.0], "calls": made, **({"left": [5.0, 6.0]} if left else {})}


def record(fault="count", of_rank=(), **more):
    return {"library": "whorl", "fault": fault, "ranks": len(of_rank), "count": 1024, "hung": [],
            "exits": [0] * len(of_rank), "done_ms": 9.0, "load": 1.5, "of_rank": list(of_rank), "warnings": [],
            "output": "", "left": {"processes": [], "shm": [], "tmp": []}, **more}


NAMED = calls("untouched", errors=COUNTS)


class Outcomes(unittest.TestCase):
    def labels(self, one):
        return [outcome.label for outcome in outcomes.of_run(one)]

    def test_what_calls_return(self):
        one = record(of_rank=(NAMED, calls("right", "right"), calls("wrong", "right"), calls("overrun", "right")))
        self.assertEqual(self.labels(one), ["error, named", "success", "success, wrong numbers",
                                            "success, wrong numbers"])
        self.assertEqual(outcomes.last_ms(one), 2.0)

    def test_an_error_of_the_next_call_is_late(self):
        self.assertEqual(self.labels(record(of_rank=[calls("right", "untouched", errors=COUNTS)])),
                         ["one call late: error, named"])

    def test_ranks_without_an_answer(self):
        silent = calls(left=False)
        one = record(of_rank=(silent, silent, calls("wrong", left=False)), hung=[0, 2], exits=[None, -6, None])
        self.assertEqual(self.labels(one), ["hang", "killed by SIGABRT", "hang after wrong numbers"])
        self.assertIsNone(outcomes.last_ms(one))

    def test_a_launcher_may_name_the_rank(self):
        one = record("kill-before", [calls(left=False)] * 3, exits=None, output="process rank 1 with PID 0 exited")
        self.assertEqual(self.labels(one), ["job killed by its launcher, which names the rank"] * 2)

    def test_nothing_is_expected_of_the_dead(self):
        for name, expected in (("count", 3), ("kill-during", 2), ("stop", 2), ("freeze", 3)):
            self.assertEqual(len(faults.BY_NAME[name].remaining(3)), expected, name)


class Promises(unittest.TestCase):
    def test_a_good_run(self):
        self.assertEqual(promises.shortfalls(record(of_rank=[NAMED] * 3)), [])

    def test_everything_that_is_promised_is_looked_at(self):
        late = calls("untouched", errors=COUNTS)
        late["calls"][0]["ms"] = [0, 101.0]
        slow = {**NAMED, "left": [5.0, 105.5]}
        for one, words in (
                (record(of_rank=[late]), "after 101 ms, promised 100"),
                (record(of_rank=[slow]), "leaving took 100 ms"),
                (record(of_rank=[calls("wrong", errors=COUNTS)]), "output wrong, promised untouched"),
                (record(of_rank=[calls("untouched", errors="Connection closed")]), "error, no rank"),
                (record(of_rank=[calls("right", "right")]), "success in place of an error"),
                (record(of_rank=[NAMED], left={"processes": [], "shm": ["segment"], "tmp": []}), "left behind (shm)"),
                (record("freeze", [NAMED]), "in place of success")):
            found = promises.shortfalls(one)
            self.assertTrue(any(words in sentence for sentence in found), (words, found))

    def test_warnings_come_from_every_waiting_rank_in_time_and_name_the_silent_one(self):
        text = (f"no progress within the timeout of 1.5 s. {ME} in allreduce number 2: waiting for {CULPRIT}. "
                f"{CULPRIT} may be stopped, busy elsewhere")
        line = f"no progress for 1.0 s: {ME} in allreduce number 2: waiting for {CULPRIT} while receiving"
        waiting = calls("untouched", errors=text)
        good = record("absent", [waiting] * 3, output=line,
                      warnings=[{"file": "output-0", "ms": 1003}, {"file": "output-2", "ms": 1001}])
        self.assertEqual(promises.shortfalls(good), [])
        self.assertEqual(promises.shortfalls({**good, "warnings": good["warnings"][:1]}),
                         ["1 of 2 waiting ranks warned"])
        self.assertEqual(promises.shortfalls({**good, "output": line.replace(CULPRIT, "rank 2 (host vm, pid 12)")}),
                         ["no warning names the rank that is waited for"])
        late = [{"file": "output-0", "ms": 1700}, *good["warnings"][1:]]
        self.assertEqual(promises.shortfalls({**good, "warnings": late}),
                         ["a warning came after 1700 ms, promised 1000"])

    def test_intruders_must_have_been_there_and_may_cost_a_tenth_of_a_second(self):
        one = record("idle", [calls("right")] * 3, port=20000, intruders=40)
        self.assertEqual(promises.shortfalls(one, undisturbed_ms=5), [])
        self.assertEqual(promises.shortfalls({**one, "intruders": 0}, undisturbed_ms=5), ["no intruder could connect"])
        self.assertIn("joining took 105 ms longer", promises.shortfalls(one, undisturbed_ms=-95)[0])
        self.assertTrue(promises.shortfalls({**one, "unready": "refused"}))


class Board(unittest.TestCase):
    def result(self):
        runs = [record(of_rank=[NAMED] * 3), record(of_rank=[NAMED, NAMED, calls("right", "right")]),
                {**record(of_rank=[calls("wrong", "right")] * 3), "library": "gloo"},
                {**record("absent", [calls(left=False)] * 2 + [calls("wrong", errors="Timed out")], hung=[0]),
                 "library": "gloo"}]
        return {"libraries": {"whorl": "", "gloo": ""}, "runs": runs, "problems": []}

    def test_the_table_has_the_worst_first(self):
        rows = board.matrix(self.result()).splitlines()
        self.assertEqual(rows[0], "| fault | whorl | gloo |")
        self.assertEqual(rows[2], "| one rank's count differs | error, named / success; 2.0 (2.0) ms | "
                                  "success, wrong numbers; 2.0 (2.0) ms |")
        self.assertEqual(rows[3], "| a rank never calls | – | hang / error, no rank |")

    def test_each_case_and_each_shortfall_has_a_line(self):
        self.assertIn("whorl        3 ranks  1 Ki, 2 runs: 5× error, named; 1× success", board.details(self.result()))
        self.assertIn("in 1 of 2 runs; not in these:\n  whorl, one rank's count differs, 3 ranks, 1 Ki: success in "
                      "place of an error, on rank 2 (1 of 2 runs)", board.verdict(self.result()))

    def test_recorded_results_are_shown(self):
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(self.result(), file)
            file.flush()
            done = subprocess.run([sys.executable, SCOREBOARD / "scoreboard.py", "--from", file.name, file.name],
                                  capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("| a rank never calls | – | hang / error, no rank |", done.stdout)
        self.assertIn("whorl        3 ranks  1 Ki, 4 runs: 10× error, named; 2× success", done.stdout)


@unittest.skipUnless(RUNS, "with --runs only")
class RealRun(unittest.TestCase):
    NAMES = ["count", "absent", "kill-during"]

    def test_every_rank_of_whorl_gets_an_error_that_names_the_fault(self):
        with tempfile.NamedTemporaryFile(suffix=".json") as file:
            done = subprocess.run(
                [sys.executable, SCOREBOARD / "scoreboard.py", "--build", BUILD, "--libraries", "whorl", "--ranks", "3",
                 "--rounds", "1", "--faults", *self.NAMES, "--json", file.name],
                capture_output=True, text=True, timeout=100, check=False)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            result = json.loads(pathlib.Path(file.name).read_text())
        self.assertEqual([(one["fault"], one["count"]) for one in result["runs"]],
                         [(name, count) for name in self.NAMES for count in (1 << 10, 4 << 20)], done.stdout)
        for one in result["runs"]:
            with self.subTest(fault=one["fault"], count=one["count"]):
                self.assertEqual({outcome.label for outcome in outcomes.of_run(one)}, {"error, named"}, one)
                self.assertFalse(any(one["left"].values()), one["left"])
                if one["fault"] == "absent":
                    self.assertEqual(sentences.warned_of(one["output"]), {faults.CULPRIT})


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
