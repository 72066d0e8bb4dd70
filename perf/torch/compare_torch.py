#!/usr/bin/env python3
"""Measures the backend whorl of torch.distributed against gloo on this machine: operations, and
training steps under DistributedDataParallel.

Every rank is one process with a process group of each backend, and the backends take turns: a round
is one run of each. Ranks rewrite inputs and compare results between operations, each operation is
timed by itself after a barrier, and every result is verified. A time is the median over a
run's iterations on the rank that took longest. whorl-shared is whorl with the tensors in memory that
the other ranks can map (`whorl_torch.shared_memory()`).

The distance of two cores is probed before and after each run; a run during which it changed is not
used, a ratio divides two runs of one round, and every distance has tables of its own.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "perf" / "compare"))

import torch  # noqa: E402

import machine  # noqa: E402
import operations  # noqa: E402
import plan  # noqa: E402
import pool  # noqa: E402
import report  # noqa: E402
import summary  # noqa: E402
import tables  # noqa: E402
import workloads  # noqa: E402

SIZES = {"8": 8, "4K": 4 << 10, "64K": 64 << 10, "1M": 1 << 20, "8M": 8 << 20, "64M": 64 << 20}
STEPS = {"resnet18-exchange": 10, "gpt2-exchange": 2, "resnet18": 5, "gpt2": 1}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--operations", nargs="*", choices=list(operations.OPERATIONS),
                        help="only these; with none, no operation (default: all)")
    parser.add_argument("--workloads", nargs="*", choices=list(workloads.WORKLOADS),
                        help="likewise training steps; -exchange: gradients only, nothing computed")
    parser.add_argument("--ranks", type=int, nargs="+", default=[2], help="default: 2")
    parser.add_argument("--sizes", type=plan.size, nargs="+", default=list(SIZES.values()),
                        help=f"bytes, or with suffix K, M, G (default: {' '.join(SIZES)})")
    parser.add_argument("--dtypes", nargs="+", choices=list(operations.DTYPES), default=["float32"])
    parser.add_argument("--modes", nargs="+", choices=["sync", "async"], default=["sync", "async"],
                        help="async: async_op=True and wait() at once")
    parser.add_argument("--backends", nargs="+", default=[pool.GLOO, pool.WHORL, pool.SHARED],
                        choices=[pool.GLOO, pool.WHORL, pool.SHARED])
    parser.add_argument("--rounds", type=int, default=3, help="of every case (default: 3)")
    parser.add_argument("--seconds", type=float, default=1e9,
                        help="begin no further round after so many seconds")
    parser.add_argument("--budget", type=float, default=0.02, metavar="SECONDS",
                        help="of operations for each size and run (default: 0.02)")
    parser.add_argument("--bind", action="store_true", help="bind each rank to a core")
    parser.add_argument("--build", type=Path, default=ROOT / "build/release",
                        help="build directory with core_probe (default: build/release)")
    parser.add_argument("--trace", type=Path, metavar="FILE",
                        help="measure nothing; write what rank 0 does in two steps of the first of "
                             "--workloads on the last of --backends, for ui.perfetto.dev")
    parser.add_argument("--json", type=Path, help="also write all figures to this file")
    parser.add_argument("--from", dest="recorded", nargs="+", type=Path, metavar="JSON",
                        help="measure nothing; show recorded runs together")
    return parser.parse_args()


class Session:
    """Measurement in rounds, which appends to `runs`."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.probe_program = args.build / "perf/compare/core_probe"
        self.runs: list[dict[str, Any]] = []
        self.problems: list[str] = []
        self.end = time.monotonic() + args.seconds

    def turn(self, backend: str, what: dict[str, Any], number: int, measure: Any) -> None:
        """Makes one run between two probes. `measure` returns {bytes: times}."""
        before = machine.probe(self.probe_program)
        rows = measure(backend)
        after = machine.probe(self.probe_program)
        if rows:
            self.runs.append({
                **what, "where": "shm", "round": number, "library": backend, "rows": rows,
                "state": machine.state_between(before, after), "busy": machine.busy(before, after),
                "exchange_ns": [one and one[0] for one in (before, after)]})

    def case(self, what: dict[str, Any], backends: list[str], measure: Any) -> None:
        for number in range(1, self.args.rounds + 1):
            if time.monotonic() > self.end:
                return
            turned = backends[number % len(backends):] + backends[:number % len(backends)]
            for backend in turned:
                self.turn(backend, what, number, measure)
            print(".", end="", file=sys.stderr, flush=True)

    def refused(self, what: dict[str, Any], backend: str, where: str, error: str) -> None:
        sentence = (f"{backend}, {what['collective']} of {what['ranks']} ranks, {what['mode']}, "
                    f"{where}: {error}")
        if sentence not in self.problems:
            self.problems.append(sentence)

    def operation(self, ranks: pool.Pool, what: dict[str, Any], dtype: str, asynchronous: bool) -> None:
        sizes = [8] if what["collective"] == "barrier" else self.args.sizes

        def measure(backend: str) -> dict[str, Any]:
            rows = {}
            for one in sizes:
                answer = ranks.call("operation", what["collective"], backend, one, dtype,
                                    asynchronous, self.args.budget)
                if "error" in answer:
                    self.refused(what, backend, f"{one} B", answer["error"])
                else:
                    rows[str(one)] = answer
            return rows

        self.case(what, self.args.backends, measure)

    def workload(self, ranks: pool.Pool, name: str, what: dict[str, Any]) -> None:
        def measure(backend: str) -> dict[str, Any]:
            answer = ranks.call("train", name, backend, STEPS[name])
            if "error" in answer:
                raise machine.Failure(f"{name}, {backend}: {answer['error']}")
            return {str(workloads.parameter_bytes(name)): answer}

        locals_ = [workloads.LOCAL] + [workloads.LOCAL_SHARED] * (pool.SHARED in self.args.backends)
        self.case(what, locals_ + self.args.backends, measure)
        if not ranks.call("check")["equal"]:
            self.problems.append(f"{name}, {what['ranks']} ranks: weights are not equal on all backends")

    def everything(self, count: int) -> None:
        ranks = pool.Pool(count, self.args.backends, self.args.bind)
        try:
            for name in self.args.operations:
                for dtype in self.args.dtypes if name != "barrier" else self.args.dtypes[:1]:
                    for mode in self.args.modes:
                        what = {"collective": name, "ranks": count, "mode": f"{dtype}, {mode}"}
                        self.operation(ranks, what, dtype, mode == "async")
            for name in self.args.workloads:
                self.workload(ranks, name, {"collective": f"step of {name}", "ranks": count,
                                            "mode": "DDP"})
        finally:
            ranks.end()
            print(file=sys.stderr)


def commit() -> str:
    try:
        return subprocess.run(["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"],
                              capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def measured(args: argparse.Namespace) -> dict[str, Any]:
    everything = args.operations is None and args.workloads is None
    args.operations = list(operations.OPERATIONS) if everything else args.operations or []
    args.workloads = list(workloads.WORKLOADS) if everything else args.workloads or []
    session = Session(args)
    for count in args.ranks:
        session.everything(count)
    return {"machine": machine.describe(), "torch": torch.__version__, "commit": commit(),
            "date": datetime.date.today().isoformat(), "bound": args.bind,
            "load": os.getloadavg()[0], "command": " ".join(sys.argv[1:]), "libraries": {},
            "limits": [], "runs": session.runs, "problems": session.problems}


def trace(args: argparse.Namespace) -> None:
    ranks = pool.Pool(args.ranks[0], args.backends, args.bind)
    try:
        answer = ranks.call("trace", (args.workloads or ["resnet18"])[0], args.backends[-1],
                            str(args.trace.resolve()))
    finally:
        ranks.end()
    if "error" in answer:
        raise machine.Failure(answer["error"])
    print(f"{args.trace}: open it at https://ui.perfetto.dev or chrome://tracing")


def main() -> int:
    args = parse()
    try:
        if args.trace:
            trace(args)
            return 0
        if args.recorded:
            results = [json.loads(path.read_text(encoding="utf-8")) for path in args.recorded]
        else:
            results = [measured(args)]
    except machine.Failure as failure:
        print(f"compare_torch: {failure}", file=sys.stderr)
        return 1
    if args.json:
        whole = results[0] if len(results) == 1 else tables.merged(results)
        args.json.write_text(report.records(whole), encoding="utf-8")
    print(summary.text(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
