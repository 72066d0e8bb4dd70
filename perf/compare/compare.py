#!/usr/bin/env python3
"""Measures whorl against Open MPI, MPICH and Gloo on this machine.

All libraries run the same programs, perf/*_perf, in turn, with the same data and steps. In dirty
mode each rank rewrites its input and reads its result between operations, each operation is timed
by itself after a barrier, and every result is verified. A time is the mean over a run's iterations
on the rank that took longest.

A round is one run of each library, one behind the other. The distance of two cores is probed before
and after each run: on a virtual machine it changes, and times with it. A run during which it changed
is not used. A ratio divides the times of two runs of one round between equal distances; tables show
the median of the rounds' ratios against the library that is fastest by that median, with the least and
the greatest. Every distance has tables of its own.
"""
import argparse
import contextlib
import datetime
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import bounds
import hosts
import libraries
import machine
import measure
import plan
import report
import tables
import targets
from machine import Failure

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Share of used runs with busy cores above which the report says that the machine was in use.
BUSY_SHARE = 0.05
ALLOCS = ("plain", "whorl", "registered")


def parse():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release",
                        help="build directory of whorl (default: build/release)")
    parser.add_argument("--peers", type=pathlib.Path,
                        help="build directory of the other programs (default: --build)")
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--quick", action="store_true", help="about one minute instead of five")
    length.add_argument("--full", action="store_true", help="everything, in about an hour")
    some = parser.add_argument_group("cases", "any of these replaces the plan of the whole run")
    some.add_argument("--collectives", nargs="+", type=plan.collective_named, choices=plan.COLLECTIVES)
    some.add_argument("--ranks", type=int, nargs="+")
    some.add_argument("--sizes", type=plan.size, nargs="+", help="bytes, or with suffix K, M, G")
    some.add_argument("--modes", nargs="+", choices=["dirty", "moving", "warm", "cold"], default=["dirty"])
    some.add_argument("--tcp", action="store_true", help="TCP over loopback")
    some.add_argument("--hosts", action="store_true", help="two network namespaces; needs root")
    some.add_argument("--rounds", type=int, help="at least so many for each case (default: 2)")
    some.add_argument("--seconds", type=float, help="for all cases together")
    parser.add_argument("--alloc", nargs="+", choices=ALLOCS, default=ALLOCS,
                        help="whorl's buffers, a column each (default: all)")
    parser.add_argument("--libraries", nargs="+", help="only these columns besides whorl's")
    parser.add_argument("--newest", action="store_true",
                        help="the newest Intel MPI, Open MPI and MPICH from PyPI (400 MB, kept in the build directory) "
                             "instead of Debian's and Gloo; on one host")
    parser.add_argument("--together", action="store_true",
                        help="begin operations that are timed one by one on all ranks at the same moment, on one host "
                             "and where ranks have a core each; without it, when each leaves a barrier of its library")
    parser.add_argument("--figure", choices=["mean", "p50", "p99", "p999"], default="mean",
                        help="of the times of a run's operations, on the rank where it is largest; all are recorded, "
                             "so --from can show each (modes dirty and moving; default: mean)")
    parser.add_argument("-n", "--iterations", type=int, default=1000,
                        help="at most so many timed operations for each size and run")
    parser.add_argument("--json", type=pathlib.Path, help="also write all figures to this file")
    parser.add_argument("--from", dest="recorded", nargs="+", type=pathlib.Path, metavar="JSON",
                        help="measure nothing: show what --json wrote, of several runs together")
    parser.add_argument("--plot", metavar="PREFIX",
                        help="also draw bus bandwidth against size: PREFIX_*.svg and .png")
    args = parser.parse_args()
    args.build = args.build.resolve()
    args.programs = (args.peers or args.build).resolve() / "perf/compare"
    args.probe, args.limits = args.programs / "core_probe", args.programs / "raw_limits"
    args.limit = 60
    if args.figure != "mean" and not args.recorded and {"warm", "cold"} & set(args.modes):
        parser.error(f"--figure {args.figure} needs operations that are timed one by one: --modes dirty or moving")
    return args


def say(text):
    print(text, flush=True)


def cases_of(args):
    """Returns (cases, seconds for all)."""
    if args.collectives or args.ranks or args.sizes or args.tcp or args.hosts or \
            args.modes != ["dirty"]:
        return plan.chosen(args), args.seconds or 0
    if args.quick:
        return plan.quick(), args.seconds or 50
    return (plan.full(), args.seconds or 3300) if args.full else \
        (plan.ordinary(), args.seconds or 280)


def columns(args, problems):
    """Returns the libraries that are installed, and a description of each."""
    found, about = [], {}
    for library in libraries.all_of(args.build, args.programs, args.alloc, args.newest):
        own = tables.is_whorl(library.name)
        if args.libraries and not own and library.name not in args.libraries:
            continue
        try:
            library.check(say)
        except Failure as failure:
            if own:
                raise
            problems.append(f"{library.name} is left out: {failure}.")
            say(problems[-1])
            continue
        found.append(library)
        about[library.name] = library.about()
        say(f"{library.name}: {about[library.name]}")
    return found, about


@contextlib.contextmanager
def two_hosts(cases, problems):
    """Returns the namespaces if a case needs them; None where there are none, with the reason."""
    found = None
    if any(case.where == plan.HOSTS for case in cases):
        try:
            found = hosts.Hosts()
        except Failure as failure:
            problems.append(f"nothing is measured between hosts: {failure}.")
            say(problems[-1])
    try:
        yield found
    finally:
        if found:
            found.close()


def run(args, scratch):
    cases, seconds = cases_of(args)
    load = os.getloadavg()[0]
    say(f"machine: {machine.describe()}, load {load:.1f}")
    problems = []
    found, about = columns(args, problems)
    with two_hosts(cases, problems) as pair:
        if pair is None:
            cases = [case for case in cases if case.where != plan.HOSTS]
        session = measure.Session(args, found, scratch, pair, say)
        end, left = time.monotonic() + seconds, sum(case.share for case in cases)
        for case in cases:
            # Time that one case leaves over is shared by the others.
            session.case(case, max(end - time.monotonic(), 0) * case.share / left)
            left -= case.share
    problems += session.problems
    return {"date": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
            "machine": machine.describe(), "load_at_start": load, "command": sys.argv,
            "cores": machine.cores(), "cache_bytes": bounds.last_level_cache_bytes(),
            "libraries": about, "problems": problems, "limits": session.limits,
            "runs": session.runs}


def draw(found, prefix):
    """Runs plot.py with a Python that has matplotlib, which the present one may lack."""
    script = pathlib.Path(__file__).with_name("plot.py")
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(found, file)
        file.flush()
        for python in (sys.executable, "/usr/bin/python3"):
            done = subprocess.run([python, script, file.name, prefix], capture_output=True, text=True,
                                  check=False)
            if done.returncode == 0:
                break
    say((done.stdout or machine.first_line(done.stderr)).strip())


def show(result, prefix, figure):
    if figure != "mean":
        result = {**result, "runs": tables.by_figure(result["runs"], f"{figure}_us")}
        if not any(one["rows"] for one in result["runs"]):
            raise Failure(f"no run has a {figure}: recorded before compare had it, or in a mode that times many "
                          "operations together")
        say(f"times are {figure} of the operations of a run")
    found = tables.tables(result["runs"])
    bounds.add_bounds(found, result["limits"], result["cache_bytes"])
    for table in found:
        print(report.format_table(table))
    print("\n" + report.format_losses(found))
    if figure == "mean":  # which the targets are about
        print("\n" + report.format_verdicts(
            targets.verdicts(found, result["cores"], tables.creation_ms(result["runs"]))))
    runs = result["runs"]
    busy = sum(one["busy"] for one in runs if tables.usable(one))
    print(f"\n{sum(map(tables.usable, runs))} of {len(runs)} runs used.")
    if busy > BUSY_SHARE * len(runs):
        print("The figures are not worth quoting, because the machine did other work: cores busy in "
              f"{busy} used runs.")
    for problem in result["problems"]:
        print(problem)
    if prefix:
        draw(found, prefix)


def main():
    args = parse()
    try:
        if args.recorded:
            show(tables.merged([json.loads(path.read_text()) for path in args.recorded]),
                 args.plot, args.figure)
            return 0
        if args.json:
            args.json.touch()
        with tempfile.TemporaryDirectory(prefix="compare-") as scratch:
            result = run(args, pathlib.Path(scratch))
    except (OSError, ValueError) as error:
        print(f"compare: {error}.", file=sys.stderr)
        return 2
    except Failure as failure:
        print(f"compare: {failure}.", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    if args.json:
        args.json.write_text(report.records(result))
    show(result, args.plot, args.figure)
    return 0


if __name__ == "__main__":
    sys.exit(main())
