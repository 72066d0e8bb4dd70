#!/usr/bin/env python3
"""Measures what WHORL_ENCRYPT=1 costs: an allreduce of two ranks over TCP on loopback without and with it. The two
take turns, and only figures of the same round are divided by each other. With --before, a library of an earlier
build takes turns with them, to which the one without encryption is compared."""
import argparse
import os
import pathlib
import statistics
import subprocess

SIZES = [("8 B", "8"), ("64 KiB", "64K"), ("4 MiB", "4M"), ("64 MiB", "64M")]


def time_of(program: pathlib.Path, size: str, budget_ms: int, settings: dict[str, str]) -> float:
    """Returns the microseconds of one allreduce."""
    command = [str(program), "--ranks", "2", "--sizes", size, "-n", "100000", "--budget", str(budget_ms), "--side",
               "out", "--mode", "warm"]
    env = os.environ | {"WHORL_TRANSPORTS": "tcp"} | settings
    done = subprocess.run(command, env=env, text=True, capture_output=True, check=True, timeout=300)
    rows = [line.split() for line in done.stdout.splitlines() if line.strip() and line.split()[0].isdigit()]
    return float(rows[-1][5])


def spread(ratios: list[float]) -> str:
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f} … {max(ratios):.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program", type=pathlib.Path, help="build/release/perf/all_reduce_perf")
    parser.add_argument("--before", help="folder with libwhorl.so.0 of an earlier build")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--budget", type=int, default=300, help="milliseconds of one measurement")
    options = parser.parse_args()
    program = options.program.resolve()
    kinds = {"off": {"WHORL_ENCRYPT": "0"}, "on": {"WHORL_ENCRYPT": "1"}}
    if options.before:
        kinds["before"] = {"LD_LIBRARY_PATH": options.before}
    print(f"medians of {options.rounds} rounds; ratios of times: median (least … most)\n")
    print("| size | off | on | on / off |" + (" before | off / before |" if options.before else ""))
    print("|---" * (6 if options.before else 4) + "|")
    for name, size in SIZES:
        times: dict[str, list[float]] = {kind: [] for kind in kinds}
        for turn in range(options.rounds):
            for kind in (list(kinds), list(reversed(kinds)))[turn % 2]:
                times[kind].append(time_of(program, size, options.budget, kinds[kind]))
        ratios = [on / off for on, off in zip(times["on"], times["off"])]
        off, on = statistics.median(times["off"]), statistics.median(times["on"])
        row = f"| {name} | {off:.4g} µs | {on:.4g} µs | {spread(ratios)} |"
        if options.before:
            since = [off / before for off, before in zip(times["off"], times["before"])]
            row += f" {statistics.median(times['before']):.4g} µs | {spread(since)} |"
        print(row, flush=True)


if __name__ == "__main__":
    main()
