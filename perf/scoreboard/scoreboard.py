#!/usr/bin/env python3
"""Lets ranks fail in the same ways with whorl, Gloo, Open MPI and MPICH, and shows what the other ranks get.

Every rank is a process. It joins, makes one good call and waits; then one rank is at fault (its arguments differ, it
dies, stops, leaves, never calls), and each other rank records what its call returns, after how long, and what is in its
buffer. An error counts as named if its text has the rank that is at fault, the operation and the field or cause, all of
them true. A rank that has not answered at the limit hangs. What remains of the job afterwards (processes, files in
/dev/shm and TMPDIR) is looked for. Cases take turns: a round is one run of each case with each library.

whorl and Gloo have a deadline of 1.5 s for an operation here, in place of 30 s; MPI has none. MPI's programs are
started by their launchers and have MPI_ERRORS_RETURN set; a rank that gets an error aborts its communicator.
"""
import argparse
import datetime
import json
import os
import pathlib
import sys
import tempfile
import time

import board
import columns
import faults
import own_system
import session
from machine import Failure, describe

ROOT = pathlib.Path(__file__).resolve().parents[2]
SMALL, LARGE = 1 << 10, 4 << 20
SLOW_ROUNDS = 2     # runs of cases that take seconds with every library


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release",
                        help="build directory (default: build/release)")
    parser.add_argument("--quick", action="store_true",
                        help="about one minute instead of ten: one run, 3 ranks, few elements, no MPI over TCP")
    parser.add_argument("--faults", nargs="+", choices=list(faults.BY_NAME), default=list(faults.BY_NAME),
                        metavar="FAULT", help=f"only these of {', '.join(faults.BY_NAME)}")
    parser.add_argument("--libraries", nargs="+", metavar="COLUMN",
                        help="only these columns, for instance whorl-tcp gloo")
    parser.add_argument("--ranks", type=int, nargs="+", help="default: 3 and 4; for MPI 3")
    parser.add_argument("--rounds", type=int, default=5, help="runs of each case, fewer of those that take "
                        "seconds, one of those that hang (default: 5)")
    parser.add_argument("--limit", type=float, help="seconds after which a rank hangs (default: 5, with --quick 2.5)")
    parser.add_argument("--seconds", type=float, default=540,
                        help="after the first round no library begins later (default: 540)")
    parser.add_argument("--json", type=pathlib.Path, help="also write all records to this file")
    parser.add_argument("--from", dest="recorded", nargs="+", type=pathlib.Path, metavar="JSON",
                        help="run nothing: show what --json wrote, of several runs together")
    args = parser.parse_args()
    args.limit = args.limit or (2.5 if args.quick else 5)
    if any(ranks < 3 for ranks in args.ranks or ()):
        parser.error("--ranks: at least 3, so that there is a rank beside the one at fault and its neighbour")
    return args


def say(text):
    print(text, flush=True)


def cases_of(args, column):
    """Returns the cases to try with one library."""
    few = isinstance(column, columns.Mpi)
    ranks = args.ranks or ((3,) if few or args.quick else (3, 4))
    counts = (SMALL,) if args.quick or (few and column.where == "tcp") else (SMALL, LARGE)
    out = []
    for name in args.faults:
        fault = faults.BY_NAME[name]
        if fault.kind == faults.INTRUSION and not column.has_port:
            continue
        some = counts if fault.sized else counts[:1]
        out += [faults.Case(fault, number, count) for number in ranks for count in some]
    return out


def installed(args, alone, problems):
    """Returns the columns that can be measured, and a description of each."""
    found = []
    for column in columns.all_of(args.build.resolve() / "perf/scoreboard", alone):
        wanted = column.name in args.libraries if args.libraries else \
            not (args.quick and isinstance(column, columns.Mpi) and column.where == "tcp")
        if not wanted:
            continue
        try:
            column.check()
        except Failure as failure:
            if columns.is_whorl(column.name):
                raise
            problems.append(f"{column.name} is left out: {failure}.")
            say(problems[-1])
            continue
        found.append(column)
        say(f"{column.name}: {column.about()}")
    return found


class Rounds:
    """Runs of all cases, in turn."""

    def __init__(self, args, alone):
        self.args, self.alone = args, alone
        self.records, self.problems = [], []
        self.skipped = set()    # cases that are not repeated

    def run(self, found, number, until):
        for column in found:
            begun = time.monotonic()
            if number > 1 and begun > until:
                return
            for case in cases_of(self.args, column):
                if (column.name, case.key()) not in self.skipped:
                    self.one(column, case, number)
            say(f"round {number}, {column.name}: {time.monotonic() - begun:.0f} s, load {os.getloadavg()[0]:.1f}")

    def one(self, column, case, number):
        with tempfile.TemporaryDirectory(prefix="scoreboard-") as folder:
            try:
                record = session.Run(column, case, pathlib.Path(folder), self.args.limit, self.alone).go()
            except Failure as failure:
                self.problems.append(f"{failure}.")
                say(self.problems[-1])
                return
        self.records.append({"round": number, **record})
        if record["hung"] or (case.fault.slow and number >= SLOW_ROUNDS):
            self.skipped.add((column.name, case.key()))


def measure(args):
    alone = own_system.enter()
    say(f"machine: {describe()}, load {os.getloadavg()[0]:.1f}")
    problems = [] if alone else ["No intruders come to whorl, and what is left in /dev/shm is not looked for: "
                                 "that needs root, unshare and ip."]
    found = installed(args, alone, problems)
    rounds, until = Rounds(args, alone), time.monotonic() + args.seconds
    for number in range(1, (1 if args.quick else args.rounds) + 1):
        rounds.run(found, number, until)
    return {"date": datetime.datetime.now().astimezone().isoformat(timespec="seconds"), "machine": describe(),
            "command": sys.argv, "deadline_ms": faults.DEADLINE_MS, "limit_s": args.limit,
            "libraries": {column.name: column.about() for column in found},
            "problems": problems + rounds.problems, "runs": rounds.records}


def merged(results):
    """Returns several results as one, whose columns are those of all."""
    first = results[0]
    return {**first, "libraries": {name: about for one in results for name, about in one["libraries"].items()},
            "problems": [problem for one in results for problem in one["problems"]],
            "runs": [run for one in results for run in one["runs"]]}


def main():
    args = parse()
    try:
        result = merged([json.loads(path.read_text()) for path in args.recorded]) if args.recorded else measure(args)
    except Failure as failure:
        print(f"scoreboard: {failure}.", file=sys.stderr)
        return 1
    except (OSError, ValueError) as error:
        print(f"scoreboard: {error}.", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    if args.json:
        lines = ",\n  ".join(json.dumps(one, separators=(",", ":")) for one in result["runs"])
        head = json.dumps({**result, "runs": []}, indent=1)
        args.json.write_text(head.replace('"runs": []', f'"runs": [\n  {lines}\n ]') + "\n")
    for part in board.show(result):
        print(part)
    for problem in result["problems"]:
        print(problem)
    return 0


if __name__ == "__main__":
    sys.exit(main())
