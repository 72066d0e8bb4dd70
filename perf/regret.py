#!/usr/bin/env python3
"""Measures how far the library's choice of algorithms is from the best one, on this machine.

    perf/regret.py --build build --ranks 2,4,8 --json regret.json --seconds 50
    perf/regret.py --json regret.json --report
    perf/regret.py --build build --json regret.json --replay
    perf/regret.py --build build --json regret.json --replay --constants

The first adds measurements to the file until the time is over, each of one collective and number of
ranks in processes and communicators of its own (`whorl-explain --measure`), those with the fewest
measurements first: repeat it until there are enough. The second reports what is in the file.
The third judges the choices of the present cost model by recorded times and link costs, without
measuring; the last judges the choices that communicators of this machine make by constants. So the
first with WHORL_PROBE=1 in the environment and the last compare measured and constant costs by the
very same times.

An algorithm's time is the median over measurements of the median over rounds; on a machine where
other programs delay most rounds, `--quantile 0.1` says more about the algorithms. Rounds during which
the cores moved towards or away from each other are left out, and the two states are never mixed.
The choice is measured in two communicators: regret is computed from both together; noise is
the difference between the two, which measurements of the same choice have."""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent / "compare"))
from machine import kind  # noqa: E402

COLLECTIVES = ("allreduce", "reduce", "broadcast", "allgather", "reducescatter", "gather",
               "scatter", "barrier")

def output_of(*command):
    return subprocess.run([str(part) for part in command], check=True, stdout=subprocess.PIPE,
                          text=True, timeout=150).stdout


def measure(args, runs):
    """Measures for args.seconds and adds the results to `runs`."""
    end = time.monotonic() + args.seconds
    cases = {(ranks, collective): 0 for ranks in args.ranks for collective in args.collectives}
    took = {}
    for run in runs:
        if (run["ranks"], run["collective"]) in cases:
            cases[run["ranks"], run["collective"]] += 1
    while True:
        ranks, collective = case = min(cases, key=cases.get)
        begin = time.monotonic()
        if begin + took.get(case, 5) > end:
            return
        runs.append(json.loads(output_of(
            args.build / "tools/whorl-explain", collective, "--ranks", ranks, "--measure", "--json",
            "--rounds", args.rounds)))
        cases[case] += 1
        took[case] = time.monotonic() - begin
        print(f"{collective} of {ranks} ranks: {took[case]:.1f} s", file=sys.stderr)


def flags(costs):
    levels = costs.get("levels", {})
    link = costs.get("link") or levels.get("host") or levels["cache"]
    return ["--alpha", link["alpha_us"], "--overhead", link["overhead_us"],
            "--beta", link["beta_us_per_kib"], "--send", link["send_us_per_kib"],
            "--receive", link["receive_us_per_kib"], "--gamma", costs["gamma_us_per_kib"],
            "--copy", costs["copy_us_per_kib"], "--ranks-per-core", costs["ranks_per_core"],
            "--cache-bytes", costs["cache_bytes"], "--slots", costs["slots"],
            "--message-bytes", costs["message_bytes"]]


def replay(args, runs):
    """Replaces the choices in `runs` by those of the present model or constants."""
    for run in runs:
        report = json.loads(output_of(
            args.build / "tools/whorl-explain", run["collective"], "--ranks", run["ranks"],
            "--channels", run["channels"], "--json",
            "--bytes", ",".join(str(row["bytes"]) for row in run["rows"]),
            *([] if args.constants else flags(run["costs"]))))
        for row, new in zip(run["rows"], report["rows"]):
            row["measured_choice"] = row["choice"]
            row["choice"] = new["choice"]


def state_of(recorded):
    """Returns the distance of the cores in a round; None where it changed."""
    before, after = map(kind, recorded["exchange_ns"])
    return after if before == after else None


def quantile(values, q):
    return sorted(values)[round(q * (len(values) - 1))] if q != 0.5 else statistics.median(values)


class Point:
    """One collective, number of ranks, size and distance of the cores."""

    def __init__(self, q):
        self.q = q
        self.times = {}  # for each algorithm, the median of each measurement
        self.again = {}  # for each chosen algorithm, the medians in the second communicator
        self.choices = []
        self.rounds = 0

    def add(self, row, rounds):
        for name in row["algorithms"]:
            times = [one["us"][name] for one in rounds]
            self.times.setdefault(name, []).append(quantile(times, self.q))
        measured = row.get("measured_choice", row["choice"])
        self.again.setdefault(measured, []).append(
            quantile([one["again_us"] for one in rounds], self.q))
        self.choices.append(row["choice"])
        self.rounds += len(rounds)

    def evaluate(self):
        once = {name: quantile(times, self.q) for name, times in self.times.items()}
        twice = {name: quantile(times, self.q) for name, times in self.again.items()}
        both = {name: (us + twice.get(name, us)) / 2 for name, us in once.items()}
        self.best = min(both, key=both.get)
        self.best_us = both[self.best]
        # Choices can differ from one communicator to the next, since each measures its links.
        self.regret = statistics.mean(both[name] for name in self.choices) / self.best_us - 1
        name = statistics.mode(self.choices)
        self.noise = (max(once[name], twice[name]) / min(once[name], twice[name]) - 1
                      if name in twice else None)


def points(runs, q):
    found = {}
    for run in runs:
        for row in run["rows"]:
            by_state = {}
            for one in row["rounds"]:
                by_state.setdefault(state_of(one), []).append(one)
            for state, rounds in by_state.items():
                if state is not None and len(rounds) >= 3:
                    key = (run["ranks"], state, run["collective"], row["bytes"])
                    found.setdefault(key, Point(q)).add(row, rounds)
    for point in found.values():
        point.evaluate()
    return found


def lost_rounds(runs):
    rounds = [one for run in runs for row in run["rows"] for one in row["rounds"]]
    return len(rounds), sum(state_of(one) is None for one in rounds)


def report(runs, worst, q):
    """Prints a table in Markdown."""
    found = points(runs, q)
    groups = {}
    for key, point in sorted(found.items()):
        groups.setdefault(key[:2], []).append(point)
    print("| ranks | cores | points | rounds of each | mean regret | median | 90 % below | max "
          "| noise: mean | median | 90 % below |\n" + "|---" * 11 + "|")
    for (ranks, state), group in groups.items():
        regrets = sorted(point.regret for point in group)
        noise = sorted(point.noise for point in group if point.noise is not None) or [float("nan")]
        print(f"| {ranks} | {state} | {len(group)} "
              f"| {statistics.median(point.rounds for point in group):.0f} "
              f"| {statistics.mean(regrets):.1%} | {statistics.median(regrets):.1%} "
              f"| {regrets[int(0.9 * len(regrets))]:.1%} | {regrets[-1]:.1%} "
              f"| {statistics.mean(noise):.1%} | {statistics.median(noise):.1%} "
              f"| {noise[int(0.9 * len(noise))]:.1%} |")
    print("\n{} rounds of one size, {} lost because the cores moved\n".format(*lost_rounds(runs)))
    print("| ranks | cores | collective | bytes | choice | best | regret | noise |\n"
          + "|---" * 8 + "|")
    for key, point in sorted(found.items(), key=lambda item: -item[1].regret)[:worst]:
        ranks, state, collective, size = key
        noise = "" if point.noise is None else f"{point.noise:.1%}"
        print(f"| {ranks} | {state} | {collective} | {size} "
              f"| {'/'.join(sorted(set(point.choices)))} | {point.best} {point.best_us:.2f} µs "
              f"| {point.regret:.1%} | {noise} |")


def main():
    def number_list(text):
        return [int(part) for part in text.split(",")]
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build"))
    parser.add_argument("--ranks", type=number_list, default=[2, 4, 8])
    parser.add_argument("--collectives", type=lambda text: text.replace("_", "").split(","), default=COLLECTIVES)
    parser.add_argument("--seconds", type=float, default=50, help="how long to measure")
    parser.add_argument("--rounds", type=int, default=7, help="of one measurement")
    parser.add_argument("--worst", type=int, default=20, help="points to list")
    parser.add_argument("--json", type=pathlib.Path, required=True, help="where times are recorded")
    parser.add_argument("--report", action="store_true", help="do not measure")
    parser.add_argument("--replay", action="store_true", help="do not measure; the present model")
    parser.add_argument("--constants", action="store_true",
                        help="with --replay: choices as without WHORL_PROBE")
    parser.add_argument("--quantile", type=float, default=0.5,
                        help="of rounds and of measurements that is a time")
    args = parser.parse_args()
    runs = json.loads(args.json.read_text()) if args.json.exists() else []
    if args.replay:
        replay(args, runs)
    elif not args.report:
        measure(args, runs)
        args.json.write_text(json.dumps(runs))
    runs = [run for run in runs
            if run["ranks"] in args.ranks and run["collective"] in args.collectives]
    if not runs:
        sys.exit("nothing has been measured for these collectives and numbers of ranks")
    report(runs, args.worst, args.quantile)


if __name__ == "__main__":
    main()
