#!/usr/bin/env python3
"""How far the library's choice of algorithms is from the best one, on this machine.

    perf/regret.py --build build --ranks 2,4,8 --json regret.json
    perf/regret.py --build build --replay regret.json

The first runs `whorl-explain --measure` for each collective and number of ranks, several times, and
compares the time of the library's choice with that of the quickest algorithm. The second judges the
choices of the present cost model by recorded times and link costs, without measuring."""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys

COLLECTIVES = ("allreduce", "reduce", "broadcast", "allgather", "reducescatter", "gather",
               "scatter", "barrier")


def output_of(*command):
    return subprocess.run([str(part) for part in command], check=True, stdout=subprocess.PIPE,
                          text=True, timeout=150).stdout


def exchange_ns(build):
    """How far apart the cores are; see docs/perf.md."""
    probe = build / "perf/compare/core_probe"
    return float(output_of(probe).split()[0]) if probe.exists() else None


def measure(args):
    runs = []
    for number in range(args.repeat):
        for ranks in args.ranks:
            for collective in args.collectives:
                before = exchange_ns(args.build)
                report = json.loads(output_of(
                    args.build / "tools/whorl-explain", collective, "--ranks", ranks, "--measure",
                    "--json", "--rounds", args.rounds))
                report["exchange_ns"] = [before, exchange_ns(args.build)]
                runs.append(report)
                print(f"{number + 1}/{args.repeat}: {collective} of {ranks} ranks", file=sys.stderr)
    return runs


def flags(costs):
    link = costs["link"]
    return ["--alpha", link["alpha_us"], "--overhead", link["overhead_us"],
            "--beta", link["beta_us_per_kib"], "--send", link["send_us_per_kib"],
            "--receive", link["receive_us_per_kib"], "--gamma", costs["gamma_us_per_kib"],
            "--copy", costs["copy_us_per_kib"], "--ranks-per-core", costs["ranks_per_core"],
            "--cache-bytes", costs.get("cache_bytes", 1 << 20), "--slots", costs.get("slots", 4),
            "--message-bytes", costs["message_bytes"]]


def replay(args, runs):
    """Replaces the choices in `runs` by those of the present model."""
    for run in runs:
        report = json.loads(output_of(
            args.build / "tools/whorl-explain", run["collective"], "--ranks", run["ranks"],
            "--channels", run["channels"], "--json",
            "--bytes", ",".join(str(row["bytes"]) for row in run["rows"]), *flags(run["costs"])))
        for row, new in zip(run["rows"], report["rows"]):
            if row["choice"] != new["choice"]:
                row.pop("again_us", None)
            row["choice"] = new["choice"]
            for name, cell in new["algorithms"].items():
                row["algorithms"][name]["predicted_us"] = cell["predicted_us"]


def points(runs):
    """Median times of each collective, number of ranks and size: {key: (regrets, noises, …)}."""
    found = {}
    for run in runs:
        for row in run["rows"]:
            found.setdefault((run["ranks"], run["collective"], row["bytes"]), []).append(row)
    for key, rows in sorted(found.items()):
        times = {name: statistics.median(row["algorithms"][name]["measured_us"] for row in rows)
                 for name in rows[0]["algorithms"]}
        best = min(times, key=times.get)
        # Choices can differ from run to run, since each measures its links.
        chosen = statistics.mean(times[row["choice"]] for row in rows)
        again = [abs(row["again_us"] / row["algorithms"][row["choice"]]["measured_us"] - 1)
                 for row in rows if "again_us" in row]
        yield (*key, "/".join(sorted({row["choice"] for row in rows})), best, times,
               chosen / times[best] - 1, statistics.median(again) if again else None)


def report(runs, worst):
    """Markdown."""
    by_ranks = {}
    for point in points(runs):
        by_ranks.setdefault(point[0], []).append(point)
    print("| ranks | points | mean regret | median | 90 % below | max | noise: median | 90 % below |")
    print("|---|---|---|---|---|---|---|---|")
    for ranks, rows in by_ranks.items():
        regrets = sorted(row[6] for row in rows)
        noise = sorted(row[7] for row in rows if row[7] is not None) or [float("nan")]
        print(f"| {ranks} | {len(rows)} | {statistics.mean(regrets):.1%} | "
              f"{statistics.median(regrets):.1%} | {regrets[int(0.9 * len(rows))]:.1%} | "
              f"{regrets[-1]:.1%} | {statistics.median(noise):.1%} | "
              f"{noise[int(0.9 * len(noise))]:.1%} |")
    print("\n| ranks | collective | bytes | choice | best | regret |\n|---|---|---|---|---|---|")
    everything = sorted((row for rows in by_ranks.values() for row in rows), key=lambda r: -r[6])
    for ranks, collective, size, choice, best, times, regret, _ in everything[:worst]:
        print(f"| {ranks} | {collective} | {size} | {choice} | {best} {times[best]:.2f} µs | "
              f"{regret:.1%} |")


def main():
    def number_list(text):
        return [int(part) for part in text.split(",")]
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build"))
    parser.add_argument("--ranks", type=number_list, default=[2, 4, 8])
    parser.add_argument("--collectives", type=lambda text: text.split(","), default=COLLECTIVES)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--worst", type=int, default=20, help="points to list")
    parser.add_argument("--json", type=pathlib.Path, help="where to record the times")
    parser.add_argument("--replay", type=pathlib.Path, nargs="+", help="recorded times")
    args = parser.parse_args()
    if args.replay:
        runs = []
        for path in args.replay:
            recorded = json.loads(path.read_text())
            runs += recorded if isinstance(recorded, list) else [recorded]
        replay(args, runs)
    else:
        runs = measure(args)
        if args.json:
            args.json.write_text(json.dumps(runs, indent=1))
    report(runs, args.worst)


if __name__ == "__main__":
    main()
