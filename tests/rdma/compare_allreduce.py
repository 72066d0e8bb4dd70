#!/usr/bin/env python3
"""Compares allreduce of two ranks, one on each of rxe0 and rxe1, in the virtual machine: whorl over RDMA, whorl over
UCX, and Open MPI over UCX: `tests/rdma/vm.py tests/rdma/compare_allreduce.py BUILD`. They run in turn, and each run
gives the average of some operations. Of each library the best and the median of all runs are shown: programs that
spin take processors from the kernel's part of software RoCE for whole time slices, so single runs say little."""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

UCX = {"UCX_TLS": "rc_v,self", "UCX_WARN_UNUSED_ENV_VARS": "n"}
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
# The whole line is one rank's: its number chooses the device for UCX.
ON_ITS_DEVICE = ["sh", "-c", 'UCX_NET_DEVICES=rxe${OMPI_COMM_WORLD_RANK:-$WHORL_RANK}:1 exec "$@"', "rank"]
OPENMPI = ["mpirun.openmpi", "-n", "2", "--bind-to", "core", "--mca", "pml", "ucx", "--mca", "pml_ucx_tls", "any",
           "--mca", "pml_ucx_devices", "any", "--mca", "osc", "ucx"]
WHORL = {"whorl verbs": {"WHORL_TRANSPORTS": "verbs", "WHORL_IB_RAILS": "1"},
         "whorl ucx": {"WHORL_TRANSPORTS": "ucx"},
         # A rail from each device to itself: what the second one costs.
         "1 rail": {"WHORL_TRANSPORTS": "verbs", "WHORL_IB_HCA": "=rxe0"},
         "2 rails": {"WHORL_TRANSPORTS": "verbs", "WHORL_IB_HCA": "=rxe0,rxe1"}}
COLUMNS = ["whorl verbs", "whorl ucx", "Open MPI", "Open MPI, yielding"]
ports = iter(range(24000, 30000))


def commands(column: str, build: str, flags: "list[str]") -> "list[tuple[list[str], dict[str, str]]]":
    """Returns the commands of one run, each with its variables."""
    if column.startswith("Open MPI"):
        yielding = ["--mca", "mpi_yield_when_idle", str(int(column != "Open MPI"))]
        program = f"{build}/perf/compare/openmpi_all_reduce_perf"
        return [([*OPENMPI, *yielding, *ON_ITS_DEVICE, program, *flags], {**UCX, **AS_ROOT})]
    every = {**UCX, **WHORL[column], "WHORL_NRANKS": "2", "WHORL_INSECURE": "1",
             "WHORL_ADDRESS": f"127.0.0.1:{next(ports)}"}
    program = f"{build}/perf/all_reduce_perf"
    return [(["taskset", "-c", str(rank), *ON_ITS_DEVICE, program, *flags], {**every, "WHORL_RANK": str(rank)})
            for rank in range(2)]


def measure(column: str, build: str, flags: "list[str]") -> "dict[int, float]":
    """Runs once. Returns the microseconds of an operation in place for each size."""
    with tempfile.TemporaryDirectory() as folder:
        result = pathlib.Path(folder) / "result.json"
        started = [subprocess.Popen(line, env={**os.environ, **variables}, stdout=subprocess.DEVNULL)
                   for line, variables in commands(column, build, [*flags, "-J", str(result)])]
        codes = [process.wait() for process in started]
        if any(codes):
            raise RuntimeError(f"{column} failed: exit codes {codes}")
        report = json.loads(result.read_text())
    if report["out_of_bounds"] != 0:
        raise RuntimeError(f"{column} computed wrong results")
    return {row["bytes"]: row["in_place"]["time_us"] for row in report["rows"]}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("build", help="build directory")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--sizes", default="8,4096,65536", help="bytes; 1048576 moves 42 MB in each round")
    parser.add_argument("--operations", type=int, default=30, help="limit for each run and size")
    parser.add_argument("--columns", nargs="+", choices=[*WHORL, *COLUMNS], default=COLUMNS, metavar="NAME")
    given = parser.parse_args()
    columns = given.columns
    flags = ["--sizes", given.sizes, "-n", str(given.operations), "-w", "5", "-c", "1", "-a", "3",
             "--side", "in", "-T", "60"]
    runs = {column: [] for column in columns}  # type: dict[str, list[dict[int, float]]]
    for _ in range(given.rounds):
        for column in columns:
            runs[column].append(measure(column, given.build, flags))
    theirs = [column for column in columns if column.startswith("Open MPI")]
    compared = [column for column in columns if theirs and column in WHORL]
    print(f"µs, best (median) of {given.rounds} runs; ratio: the faster Open MPI's time / whorl's\n")
    titles = [*columns, *(f"ratio of {column}" for column in compared)]
    print(f"| bytes | {' | '.join(titles)} |\n|---|{'---|' * len(titles)}")
    for size in sorted(runs[columns[0]][0]):
        times = {column: [run[size] for run in runs[column]] for column in columns}
        cells = [f"{min(all_of):.3g} ({statistics.median(all_of):.3g})" for all_of in times.values()]
        for ours in compared:
            ratios = [min(figure(times[column]) for column in theirs) / figure(times[ours])
                      for figure in (min, statistics.median)]
            cells.append(f"{ratios[0]:.2f} ({ratios[1]:.2f})")
        print(f"| {size} | {' | '.join(cells)} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
