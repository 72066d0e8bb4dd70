#!/usr/bin/env python3
"""Trains real models with the systems in `systems/`, with two backends of torch.distributed in turn
(A B A B), and prints whether they agree and how fast each was.

    runner.py --backends gloo whorl              every case
    runner.py --fast                             cases of the quick test run
    runner.py --case ddp fsdp2 --rounds 5        some cases
    runner.py --list

Losses are compared rank by rank, bit for bit where each sum has two terms, otherwise within the bound
in the table. Status 1 means that a case failed or deviated.
"""
import argparse
import json
import pathlib
import statistics
import sys

import launch
import verdict
import worker
from case import ALONE, Case
from systems import all_cases, frameworks


def rate(results: list[dict]) -> float:
    """Returns samples per second of all ranks together, by the slowest clock."""
    return sum(result["samples"] for result in results) / max(result["seconds"] for result in results)


def run_case(case: Case, backends: list[str], rounds: int, torchrun: bool) -> dict:
    """Runs one case; returns a row of the table, with the list of errors."""
    start = launch.run_torchrun if torchrun else launch.run_forked
    able = [backend for backend in backends if backend not in case.not_on]
    runs: dict[str, list[list[dict]]] = {backend: [] for backend in able}
    wrong: list[str] = []
    for _ in range(rounds):
        for backend in able:
            try:
                runs[backend].append(start(case, backend))
            except launch.TrainingFailed as failure:
                wrong.append(f"{backend}: {failure}")
        if wrong:
            break
    row = {"case": case.name, "ranks": case.ranks, "bound": case.bound, "wrong": wrong, "rates": {}, "worst": 0.0}
    if wrong or not able:
        return row
    first = runs[able[0]][0]
    for backend in able:
        wrong += [f"{backend}: {what}" for what in verdict.learns(case, runs[backend][0])]
        for again in runs[backend]:
            if again is not first:
                wrong += [f"{backend} against {able[0]}: {what}" for what in verdict.compare(case, again, first)]
                row["worst"] = max(row["worst"], verdict.worst(again, first))
        row["rates"][backend] = statistics.median(rate(results) for results in runs[backend])
    if case.alone_bound is not None:
        try:
            alone = launch.run_forked(case, ALONE)
            wrong += [f"{backend}: {what}" for backend in able
                      for what in verdict.compare_alone(case, runs[backend][0], alone)]
        except launch.TrainingFailed as failure:
            wrong.append(f"the single process: {failure}")
    losses = verdict.mean_losses(first)
    row["first_loss"], row["last_loss"] = losses[0], losses[-1]
    return row


def line(row: dict, backends: list[str]) -> str:
    speeds = row["rates"]
    if not speeds:
        return f"{row['case']:26} {row['ranks']:5}  {'FAILED' if row['wrong'] else 'not on these backends'}"
    rates = " ".join(f"{speeds[backend]:10.0f}" if backend in speeds else f"{'cannot':>10}" for backend in backends)
    both = all(backend in speeds for backend in backends)
    ratio = f"{speeds[backends[1]] / speeds[backends[0]]:6.2f}" if both else f"{'':6}"
    agree = "bit-equal" if row["worst"] == 0 else f"{row['worst']:.1e}"
    allowed = "exact" if row["bound"] == 0 else f"{row['bound']:.0e}"
    word = "ok" if not row["wrong"] else "FAILED"
    return (f"{row['case']:26} {row['ranks']:5} {row['first_loss']:7.3f} {row['last_loss']:7.3f} {rates} {ratio} "
            f"{agree:>10} {allowed:>7}  {word}")


def chosen(arguments: argparse.Namespace) -> list[Case]:
    cases = all_cases()
    unknown = [name for name in arguments.case if name not in cases]
    if unknown:
        raise SystemExit(f"runner.py: there is no case {', '.join(unknown)}; there are: {', '.join(cases)}")
    picked = [cases[name] for name in arguments.case] or list(cases.values())
    return [case for case in picked if case.fast or not arguments.fast]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backends", nargs=2, default=["gloo", "whorl"], metavar=("A", "B"),
                        help="to be compared (default: gloo whorl)")
    parser.add_argument("--case", nargs="+", default=[], metavar="NAME", help="only these; --list names them")
    parser.add_argument("--fast", action="store_true", help="only the cases that `./run test` contains")
    parser.add_argument("--rounds", type=int, default=2, help="runs of each backend, in turn (default: 2)")
    parser.add_argument("--torchrun", action="store_true", help="start the ranks by torchrun")
    parser.add_argument("--json", type=pathlib.Path, help="write the table here as JSON")
    parser.add_argument("--list", action="store_true", help="name the cases and their numbers of ranks")
    arguments = parser.parse_args()
    if arguments.list:
        for case in all_cases().values():
            print(f"{case.name:26} {case.ranks} ranks{'  fast' if case.fast else ''}")
        return 0
    for backend in arguments.backends:
        try:
            worker.load_backend(backend)
        except ImportError as error:
            print(f"skipped: backend {backend} is not installed: {error}")
            return 77
    a, b = arguments.backends
    print(f"{'case':26} {'ranks':>5} {'loss':>7} {'to':>7} {a + '/s':>10} {b + '/s':>10} {'ratio':>6} "
          f"{'deviation':>10} {'allowed':>7}", flush=True)
    rows = []
    for case in chosen(arguments):
        row = run_case(case, arguments.backends, arguments.rounds, arguments.torchrun)
        print(line(row, arguments.backends), flush=True)
        for what in row["wrong"]:
            print("    " + what.replace("\n", "\n    "), flush=True)
        rows.append(row)
    if not arguments.case and not arguments.fast:
        for name, why in frameworks.MISSING.items():
            print(f"{name:26} skipped: {why}")
    bad = [row["case"] for row in rows if row["wrong"]]
    print(f"{len(rows) - len(bad)} of {len(rows)} cases agree" + (f"; not: {', '.join(bad)}" if bad else ""))
    print(f"samples per second of all ranks together, median of {arguments.rounds} interleaved runs")
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    return 1 if bad or not rows else 0


if __name__ == "__main__":
    sys.exit(main())
