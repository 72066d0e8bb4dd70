#!/usr/bin/env python3
"""Measures whorl's allreduce against Open MPI, MPICH and Gloo on this machine.

Sum of float32 in plain host memory, 8 B to 16 MiB, for 2 and 4 ranks. Every library runs the same
steps as all_reduce_perf in dirty mode: each rank rewrites its input and reads its result between
operations, each operation is timed by itself after a barrier, every result is verified, and a
figure is the mean over iterations and ranks.

A round is one run of each library, one behind the other. The distance of two cores is probed
before each run and after the last: on a virtual machine it changes, and times with it. A round in
which it changed is marked and not used. From the others, of each state by itself: the median time
of each library, and the median of the rounds' ratios (fastest peer of the round / whorl) with the
least and the greatest ratio.
"""
import argparse
import datetime
import json
import os
import pathlib
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
SWEEP = ["-b", "8", "-e", "16M", "-f", "8", "-w", "5"]
# Below the first: two threads of one core. Below the second: one core complex (50-60 ns as a rule).
# Above: two (230-255 ns).
SAME_CORE_NS, NEAR_NS = 22, 120
# A round is not steady either if the exchange's time varied by more than this factor.
STEADY = 2
# The cores are in use by others if the median exchange takes this many times the low one.
BUSY = 2
# A machine whose load is below this at the start does nothing else.
QUIET_LOAD = 1


class Failure(Exception):
    """A sentence: why a library has no result."""


def first_line(text):
    lines = (line.strip() for line in text.splitlines())
    return next((line for line in lines if line.strip("-=# ")), "it printed nothing")


def run_all(commands, limit_s):
    """Runs the (argv, environment) pairs at the same time. Failure if one fails or is late."""
    with tempfile.TemporaryFile("w+") as output:
        processes, late = [], False
        try:
            for argv, extra in commands:
                processes.append(subprocess.Popen(
                    [str(arg) for arg in argv], env={**os.environ, **extra},
                    stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=output,
                    start_new_session=True))
            deadline = time.monotonic() + limit_s
            for process in processes:
                process.wait(max(deadline - time.monotonic(), 0.1))
        except subprocess.TimeoutExpired:
            late = True
        except OSError as error:
            raise Failure(f"could not be started: {error}") from None
        finally:
            stop(processes)
        output.seek(0)
        said = first_line(output.read())
    if late:
        raise Failure(f"did not end within {limit_s:.0f} s")
    for process in processes:
        if process.returncode in (-signal.SIGALRM, 128 + signal.SIGALRM):
            raise Failure("ran into its own time limit")
        if process.returncode != 0:
            raise Failure(f"ended with status {process.returncode}: {said}")


def stop(processes):
    """Ends those still running: politely, so that a launcher ends its ranks, then with force."""
    running = [process for process in processes if process.poll() is None]
    for process in running:
        process.terminate()
    for process in running:
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # its own group: start_new_session
            process.wait()


def output_of(*argv):
    try:
        return subprocess.run(argv, capture_output=True, text=True, timeout=20, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""


# --- libraries -----------------------------------------------------------------------------------

class Library:
    """One column. `settings` says what was chosen for it; `commands` starts one run."""
    title = settings = package = launcher = None

    def __init__(self, program):
        self.program = program

    def check(self):
        if self.launcher and not shutil.which(self.launcher):
            raise Failure(f"{self.launcher} is not installed (package {self.package})")
        if not self.program.exists():
            raise Failure(f"{self.program} has not been built; it needs package {self.package} "
                          "and then the target compare_programs")

    def times(self, ranks, args, scratch):
        """{bytes: microseconds} from one run."""
        result = scratch / "result.json"
        result.unlink(missing_ok=True)
        flags = [*SWEEP, "-n", args.iterations, "-T", args.limit, "-J", result]
        run_all(self.commands(ranks, flags, scratch), args.limit + 10)
        try:
            report = json.loads(result.read_text())
        except (OSError, ValueError) as error:
            raise Failure(f"left no readable result: {error}") from None
        if report["out_of_bounds"] != 0:
            raise Failure("computed wrong results")
        return {row["bytes"]: row["out_of_place"]["time_us"] for row in report["rows"]}


class Whorl(Library):
    package = "libcli11-dev"

    def __init__(self, program, alloc):
        super().__init__(program)
        self.alloc = alloc
        self.title = "whorl"
        self.settings = f"defaults; bound to cores where there is one for each rank; buffers: {alloc}"

    def commands(self, ranks, flags, _):
        return [([self.program, "-N", ranks, "--alloc", self.alloc, *flags], {})]


def cores():
    return len(os.sched_getaffinity(0))


class OpenMpi(Library):
    title, package, launcher = "Open MPI", "openmpi-bin libopenmpi-dev", "mpirun.openmpi"
    settings = ("pml ob1, btl self,vader (shared memory); bound to cores where there is one for "
                "each rank, otherwise unbound with mpi_yield_when_idle")

    def version(self):
        return first_line(output_of(self.launcher, "--version"))

    def commands(self, ranks, flags, _):
        placing = (["--bind-to", "core"] if ranks <= cores() else
                   ["--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1"])
        return [([self.launcher, "-n", ranks, *placing, "--mca", "pml", "ob1",
                  "--mca", "btl", "self,vader", self.program, *flags],
                 {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"})]


class Mpich(Library):
    title, package, launcher = "MPICH", "mpich libmpich-dev", "mpirun.mpich"
    settings = ("bound to cores where there is one for each rank, otherwise unbound with "
                "MPIR_CVAR_POLLS_BEFORE_YIELD=1 (its ch4 device may ignore it)")

    def version(self):
        for line in output_of("mpichversion").splitlines():
            if line.startswith("MPICH Version"):
                return "MPICH " + line.split()[-1]
        return "unknown"

    def commands(self, ranks, flags, _):
        spare = ranks <= cores()
        return [([self.launcher, "-n", ranks, "-bind-to", "core" if spare else "none",
                  self.program, *flags], {} if spare else {"MPIR_CVAR_POLLS_BEFORE_YIELD": "1"})]


class Gloo(Library):
    title, package = "Gloo", "libgloo-dev"
    settings = "TCP over 127.0.0.1, gloo::allreduce with its default algorithm, unbound"

    def version(self):
        return output_of("dpkg-query", "-W", "-f", "${Version}", "libgloo-dev").strip() or "unknown"

    def commands(self, ranks, flags, scratch):
        store = tempfile.mkdtemp(dir=scratch)
        return [([self.program, *flags],
                 {"GLOO_RANK": str(rank), "GLOO_SIZE": str(ranks), "GLOO_STORE": store})
                for rank in range(ranks)]


# --- machine -------------------------------------------------------------------------------------

def probe(program):
    """(low, median) flag exchange of two cores in ns; None where there is one core."""
    if cores() < 2:
        return None
    try:
        done = subprocess.run([program], capture_output=True, text=True, timeout=20, check=True)
        low, median = map(float, done.stdout.split())
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise Failure(f"{program} did not work: {error}") from None
    return low, median


def kind(ns):
    return "same core" if ns < SAME_CORE_NS else "near" if ns < NEAR_NS else "far"


def state_of(probes):
    """(state, steady, busy) of a round."""
    if probes[0] is None:
        return "one core", True, False
    low = [ns for ns, _ in probes]
    steady = max(low) < STEADY * min(low) and len(set(map(kind, low))) == 1
    return kind(low[0]), steady, any(median > BUSY * ns for ns, median in probes)


def machine():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        models = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
    return f"{models[0] if models else 'unknown processor'}, {cores()} cores, {os.uname().release}"


# --- measuring -----------------------------------------------------------------------------------

def one_round(libraries, ranks, args, scratch, problems):
    """One run of each library that still works. Those that fail are taken out of the list."""
    probes, times = [], {}
    for library in list(libraries):
        probes.append(probe(args.probe))
        try:
            times[library.title] = library.times(ranks, args, scratch)
        except Failure as failure:
            sentence = f"{library.title} on {ranks} ranks {failure}"
            if isinstance(library, Whorl):
                raise Failure(sentence) from None
            problems.append(f"{sentence}. Its column is left out.")
            say(problems[-1])
            libraries.remove(library)
    probes.append(probe(args.probe))
    state, steady, busy = state_of(probes)
    return {"ranks": ranks, "state": state, "steady": steady, "busy": busy,
            "load": os.getloadavg()[0], "exchange_ns": probes, "times_us": times}


def describe(number, one):
    exchanges = " ".join(f"{p[0]:.0f}" for p in one["exchange_ns"] if p) or "-"
    note = "" if one["steady"] else "; CHANGED: not used"
    note += "; cores busy with other work" if one["busy"] else ""
    return (f"round {number}, {one['ranks']} ranks: {one['state']} (flag exchange {exchanges} ns, "
            f"load {one['load']:.1f}){note}")


def tables(rounds):
    """For each number of ranks and state, a row for each size."""
    out = []
    for ranks, state in sorted({(r["ranks"], r["state"]) for r in rounds if r["steady"]}):
        used = [r["times_us"] for r in rounds
                if r["steady"] and (r["ranks"], r["state"]) == (ranks, state)]
        # A library that failed on the way has no column.
        titles = [title for title in used[0] if all(title in times for times in used)]
        peers = [title for title in titles if title != "whorl"]
        rows = []
        for size in used[0]["whorl"]:
            medians = {title: statistics.median(t[title][size] for t in used) for title in titles}
            row = {"bytes": size, "median_us": medians}
            if peers:
                ratios = [min(t[peer][size] for peer in peers) / t["whorl"][size] for t in used]
                row["ratio"] = [statistics.median(ratios), min(ratios), max(ratios)]
            rows.append(row)
        out.append({"ranks": ranks, "state": state, "rounds": len(used), "titles": titles,
                    "rows": rows})
    return out


def number(value):
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:.0f}"


def size_name(size):
    for unit in ("B", "KiB", "MiB"):
        if size < 1024 or unit == "MiB":
            return f"{size} {unit}"
        size //= 1024


def print_table(table):
    print(f"\n{table['ranks']} ranks, cores {table['state']}, us, rounds: {table['rounds']}")
    print(f"{'size':>9}" + "".join(f"{title:>10}" for title in table["titles"])
          + "   fastest peer / whorl (min ... max)")
    for row in table["rows"]:
        line = f"{size_name(row['bytes']):>9}"
        line += "".join(f"{number(row['median_us'][title]):>10}" for title in table["titles"])
        if "ratio" in row:
            middle, least, most = row["ratio"]
            line += f"{number(middle):>10} ({number(least)} ... {number(most)})"
        print(line)


def say(text):
    print(text, flush=True)


def parse():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release",
                        help="build directory of whorl (default: build/release)")
    parser.add_argument("--peers", type=pathlib.Path,
                        help="build directory of the other programs (default: --build)")
    parser.add_argument("--quick", action="store_true", help="about one minute instead of five")
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--alloc", choices=["plain", "whorl", "registered"], default="plain",
                        help="whorl's buffers (default: plain memory, as the others have)")
    parser.add_argument("-n", "--iterations", type=int, default=20,
                        help="timed operations for each size and run (default: 20)")
    parser.add_argument("--json", type=pathlib.Path, help="also write all figures to this file")
    args = parser.parse_args()
    args.build = args.build.resolve()
    args.programs = (args.peers or args.build).resolve() / "perf/compare"
    args.probe = args.programs / "core_probe"
    args.seconds = 50 if args.quick else 280
    args.limit = 30 if args.quick else 60
    return args


def measure(args, scratch):
    whorl = Whorl(args.build / "perf/all_reduce_perf", args.alloc)
    whorl.check()
    load = os.getloadavg()[0]
    say(f"machine: {machine()}, load {load:.1f}")
    say(f"whorl: {whorl.settings}")
    problems, libraries, about = [], [whorl], {"whorl": whorl.settings}
    for peer in (OpenMpi(args.programs / "openmpi_allreduce"),
                 Mpich(args.programs / "mpich_allreduce"), Gloo(args.programs / "gloo_allreduce")):
        try:
            peer.check()
        except Failure as failure:
            problems.append(f"{peer.title} is left out: {failure}.")
            say(problems[-1])
            continue
        libraries.append(peer)
        about[peer.title] = f"{peer.version()}; {peer.settings}"
        say(f"{peer.title}: {about[peer.title]}")
    say(f"float32 sum, dirty mode, {args.iterations} timed operations for each size and run\n")

    rounds = []
    for ranks in args.ranks:
        working = list(libraries)
        end = time.monotonic() + args.seconds / len(args.ranks)
        taken, count = 0.0, 0
        # Another round if it will probably end in time; two at least, so that there is a spread.
        while count < 2 or time.monotonic() + taken < end:
            start = time.monotonic()
            rounds.append(one_round(working, ranks, args, scratch, problems))
            taken, count = time.monotonic() - start, count + 1
            say(describe(count, rounds[-1]))
    return {"date": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
            "machine": machine(), "load_at_start": load, "command": sys.argv,
            "libraries": about, "problems": problems, "rounds": rounds, "tables": tables(rounds)}


def main():
    args = parse()
    if args.json:
        try:
            args.json.touch()
        except OSError as error:
            print(f"compare: cannot write --json {args.json}: {error.strerror}.", file=sys.stderr)
            return 2
    with tempfile.TemporaryDirectory(prefix="compare-") as scratch:
        try:
            result = measure(args, pathlib.Path(scratch))
        except Failure as failure:
            print(f"compare: {failure}.", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            return 130
    for table in result["tables"]:
        print_table(table)
    rounds = result["rounds"]
    changed = sum(not one["steady"] for one in rounds)
    busy = sum(one["busy"] for one in rounds if one["steady"])
    quiet = busy == 0 and result["load_at_start"] < QUIET_LOAD
    print()
    for ranks in args.ranks:
        if not any(one["steady"] for one in rounds if one["ranks"] == ranks):
            print(f"{ranks} ranks: no figures, because the cores' distance changed in every round; "
                  "run it again.")
    print(f"{len(rounds) - changed} of {len(rounds)} rounds used.")
    if not quiet:
        print("The figures are not worth quoting, because the machine did other work: load "
              f"{result['load_at_start']:.1f} at the start, cores busy in {busy} used rounds.")
    for problem in result["problems"]:
        print(problem)
    if args.json:
        args.json.write_text(json.dumps(result, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
