#!/usr/bin/env python3
"""PyTorch's own tests of a process group, run against one backend.

The wheel of torch carries `torch.testing._internal.distributed.distributed_test`: about 280 tests of
collectives, point to point, groups, DDP and its hooks. This program runs them with BACKEND set to the
backend's name and compares each outcome with the list beside it, `expected_BACKEND.txt`:

    pass fast test_all_reduce_sum
    skip full test_all_reduce_sum_cuda: Skipped because CUDA is not available

`fast` or `full` is the set a test belongs to. An outcome that is not the listed one fails the run, also
a pass where a failure is listed, so that the list stays true. A test that is not listed counts as
`pass`. `--update` rewrites the lines of the tests that ran.

Many tests skip unless the backend is named "mpi" or "gloo", although what they test is general; these
conditions are widened to the backend under test when the module is loaded.

The tests of `bases.py` run too, on other bases that the wheel carries.

The ranks of a test are forked from this process, which has imported torch but has computed nothing.
"""
import argparse
import dataclasses
import importlib.util
import io
import logging
import os
import pathlib
import re
import sys
import tempfile
import time
import types
import unittest

HERE = pathlib.Path(__file__).resolve().parent
FAST_SECONDS = 1.2  # a test that took no longer may join the fast set
SAID = tempfile.TemporaryFile("w+", errors="replace")  # what the ranks of the current test print
OTHER_RANKS = {"small world size": 8, "odd world size": 4}  # what a skipped test said: ranks to take


@dataclasses.dataclass
class Expected:
    outcome: str
    subset: str
    reason: str


def read_list(path: pathlib.Path) -> dict[str, Expected]:
    """The lines of a list; a line that cannot be read is an error, for it would hide a test."""
    listed: dict[str, Expected] = {}
    if not path.exists():
        return listed
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        head, _, reason = line.partition(": ")
        words = head.split()
        if len(words) != 3 or words[0] not in ("pass", "skip", "fail") or words[1] not in ("fast", "full"):
            raise SystemExit(f"{path.name}:{number}: not `pass|skip|fail fast|full NAME[: REASON]`: {line}")
        listed[words[2]] = Expected(words[0], words[1], reason)
    return listed


def write_list(path: pathlib.Path, listed: dict[str, Expected]) -> None:
    text = [line for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("#")] \
        if path.exists() else []
    for name in sorted(listed):
        entry = listed[name]
        text.append(f"{entry.outcome} {entry.subset} {name}" + (f": {entry.reason}" if entry.reason else ""))
    path.write_text("\n".join(text) + "\n", encoding="utf-8")


def load_widened(name: str) -> types.ModuleType:
    """Imports a module of torch with `BACKEND != "mpi"` and the like true of no backend: the tests that
    they keep from others run. Those for NCCL alone need a GPU and stay as they are."""
    spec = importlib.util.find_spec(name)
    source = pathlib.Path(spec.origin).read_text("utf-8")
    source, refusals = re.subn(r'BACKEND != "(?:mpi|gloo)"', "False", source)
    source, branches = re.subn(r'BACKEND == "mpi" or BACKEND == "gloo"', "True", source)
    source, lists = re.subn(r'require_backend_is_available\(\{"gloo"\}\)', "require_backend_is_available({BACKEND})",
                            source)
    if 0 in (refusals, branches, lists):
        raise ImportError(f"{name} has none of the conditions that are to be widened: look at it anew")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    exec(compile(source, spec.origin, "exec"), module.__dict__)
    return module


class Forked:
    """Starts the ranks of a MultiProcessTestCase; keeps what they print."""

    def _spawn_processes(self) -> None:
        import torch
        self._start_processes(torch.multiprocessing.get_context("fork").Process)

    @classmethod
    def _run(cls, rank: int, *arguments, **options) -> None:
        for stream in (1, 2):
            os.dup2(SAID.fileno(), stream)
        super()._run(rank, *arguments, **options)

    def tearDown(self) -> None:
        ranks = self.processes
        super().tearDown()
        for rank in ranks:
            rank.join(2)
            if rank.exitcode is None:
                rank.kill()
                rank.join()


def prepare(backend: str, ranks: int, seconds: int) -> dict[str, type[unittest.TestCase]]:
    """The test class of each test. What it reads from the environment must be there before
    the import."""
    os.environ.update(BACKEND=backend, WORLD_SIZE=str(ranks), MASTER_ADDR="127.0.0.1",
                      DISTRIBUTED_TESTS_DEFAULT_TIMEOUT=str(seconds), OMP_NUM_THREADS="1",
                      TORCH_SHOW_CPP_STACKTRACES="0")
    if backend != "gloo":
        __import__(f"{backend}_torch")
    from torch.testing._internal import common_distributed
    features = common_distributed.DistTestCases.backend_feature
    for feature in ("ddp", "subgroup", "plugin", "gpu", "cuda"):
        features[feature].add(backend)
    common_distributed.TIMEOUT_OVERRIDE.clear()
    distributed_test = load_widened("torch.testing._internal.distributed.distributed_test")
    for supported in (distributed_test.PROFILING_SUPPORTED_BACKENDS,
                      distributed_test.SEND_RECV_PROFILING_SUPPORTED_BACKENDS):
        if backend not in supported:
            supported.append(backend)

    logging.getLogger(common_distributed.__name__).setLevel(logging.WARNING)

    class Upstream(Forked, distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase):
        def setUp(self) -> None:
            super().setUp()
            self._spawn_processes()

    import bases  # imports torch: after what the environment says
    tests: dict[str, type[unittest.TestCase]] = {}
    for test_class in (Upstream, *bases.classes(backend, Forked)):
        for name in unittest.TestLoader().getTestCaseNames(test_class):
            if name in tests:
                raise ImportError(f"two tests have the name {name}")
            tests[name] = test_class
    return tests


def run_one(make: type[unittest.TestCase], name: str, ranks: int) -> tuple[str, str, str]:
    """Runs a test; returns its outcome, one line of reason and the whole message. A test that wants
    more ranks, or an even number of them, runs again with as many."""
    os.environ["WORLD_SIZE"] = str(ranks)
    SAID.seek(0)
    SAID.truncate()
    result = unittest.TestResult()
    make(name).run(result)
    if result.skipped:
        for said, other in OTHER_RANKS.items():
            if said in result.skipped[0][1] and other != ranks:
                return run_one(make, name, other)
        return "skip", " ".join(result.skipped[0][1].split()), ""
    bad = result.errors + result.failures
    if bad:
        SAID.seek(0)
        message = bad[0][1] + "\nThe ranks printed last:\n" + SAID.read()[-4000:]
        lines = [line for line in message.splitlines()
                 if re.match(r"^\w*(Error|Exception|Failure|error)\b.*", line.strip().split(":")[0] + ":")]
        inner = [line for line in lines if not line.startswith("RuntimeError: Process")]
        return "fail", " ".join((inner or lines or ["no message"])[-1].split())[:200], message
    return "pass", "", ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--backend", default=os.environ.get("BACKEND", "whorl"))
    parser.add_argument("--ranks", type=int, default=int(os.environ.get("WORLD_SIZE", "3")))
    parser.add_argument("--set", dest="subset", choices=["fast", "rest", "all"], default="all")
    parser.add_argument("--only", help="regular expression on the names of the tests")
    parser.add_argument("--test-seconds", type=int, default=60, help="limit of one test")
    parser.add_argument("--seconds", type=int, default=3000, help="limit of the whole run")
    parser.add_argument("--update", action="store_true", help="rewrite the list")
    parser.add_argument("--report", type=pathlib.Path, help="write the messages of failures here")
    arguments = parser.parse_args()
    path = HERE / f"expected_{arguments.backend}.txt"
    listed = read_list(path)
    try:
        tests = prepare(arguments.backend, arguments.ranks, arguments.test_seconds)
    except ImportError as error:
        print(f"skipped: upstream's tests cannot be imported: {error}")
        return 77
    names = sorted(tests)
    if arguments.only:
        names = [name for name in names if re.search(arguments.only, name)]
    if arguments.subset != "all":
        wanted = arguments.subset == "fast"
        names = [name for name in names
                 if (name in listed and listed[name].subset == "fast") == wanted]
    counts = {"pass": 0, "skip": 0, "fail": 0}
    surprises: list[str] = []
    messages = io.StringIO()
    began = time.monotonic()
    for name in names:
        if time.monotonic() - began > arguments.seconds:
            surprises.append(f"{name}: not run, the {arguments.seconds} s of this run are over")
            continue
        start = time.monotonic()
        outcome, reason, message = run_one(tests[name], name, arguments.ranks)
        took = time.monotonic() - start
        counts[outcome] += 1
        wanted = listed.get(name, Expected("pass", "full", ""))
        note = ""
        if outcome != wanted.outcome:
            note = f"   <- listed as {wanted.outcome}"
            surprises.append(f"{name}: {outcome}, listed as {wanted.outcome}: {reason}")
        print(f"{outcome} {took:5.1f} s {name}{': ' + reason if reason else ''}{note}", flush=True)
        if message:
            messages.write(f"## {name}\n\n```\n{message}\n```\n\n")
        subset = "fast" if outcome == "pass" and took <= FAST_SECONDS else "full"
        listed[name] = Expected(outcome, wanted.subset if name in listed else subset, reason)
    if arguments.report:
        arguments.report.write_text(messages.getvalue(), encoding="utf-8")
    if arguments.update:
        write_list(path, listed)
        surprises = []
    for surprise in surprises:
        print("unexpected:", surprise)
    if not names:
        print("no test was chosen")
    print(f"{arguments.backend}: {counts['pass']} passed, {counts['fail']} failed, {counts['skip']} skipped, "
          f"{len(surprises)} unexpected, {time.monotonic() - began:.0f} s")
    return 1 if surprises or not names else 0


if __name__ == "__main__":
    sys.exit(main())
