#!/usr/bin/env python3
"""Measures what choices by topology bring on links between hosts that are slower than memory.

    perf/placement/shaped.py --build build/release --layout 4,4 5,3 2,2,2,2 --mbit 1000

A layout has the number of ranks of each host. Each round runs allreduce in turn
  aware    as whorl chooses, with the rate of the links in WHORL_COST_FILE,
  probe    as whorl chooses by what it measures (WHORL_PROBE),
  default  as whorl chooses by constants: hosts on one machine have fast links,
  flat     with one level (WHORL_DIMS), as if nothing were known of hosts,
and prints medians, the median of the rounds' ratios, the predicted time of `aware`, and the least time
that the links permit (whorl-explain) as a part of the measured one. Needs root, ip and tc."""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from shaped_hosts import ShapedHosts, machine

WAYS = ("aware", "probe", "default", "flat")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=Path("build/release"), help="build folder")
    parser.add_argument("--layout", nargs="+", default=["4,4", "5,3", "2,2,2,2"])
    parser.add_argument("--mbit", type=int, default=1000, help="rate of each host's link, in Mbit/s")
    parser.add_argument("--sizes", default="1K,64K,1M,16M")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, help="also write all times to this file")
    parser.add_argument("--plot", type=Path, help="also draw the ratios (needs matplotlib)")
    return parser.parse_args()


def write_costs(path: Path, mbit: int) -> None:
    rate = mbit / 8000  # GB/s
    path.write_text(json.dumps({"host": {"boundary_gb_per_s": rate},
                                "network": {"beta_us_per_kib": 1.024 / rate}}), encoding="utf-8")


def measure(args: argparse.Namespace, hosts: ShapedHosts, ranks: list[int], way: str,
            costs: Path) -> dict[int, float]:
    """Returns the times in µs by size."""
    extra = {}
    if way == "aware":
        extra["WHORL_COST_FILE"] = str(costs)
    if way == "probe":
        extra["WHORL_PROBE"] = "1"
    if way == "flat":
        extra["WHORL_DIMS"] = str(sum(ranks))
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.json"
        hosts.run_ranks(ranks, [str(args.build / "perf/all_reduce_perf"), "--sizes", args.sizes, "-c", "0",
                          "-n", "100", "--budget", "400", "--side", "out", "-J", str(out)], extra, 120)
        rows = json.loads(out.read_text(encoding="utf-8"))["rows"]
    return {row["bytes"]: row["out_of_place"]["time_us"] for row in rows}


def predict(args: argparse.Namespace, ranks: list[int], costs: Path) -> dict[int, dict]:
    done = subprocess.run(
        [args.build / "tools/whorl-explain", "allreduce", "--ranks", str(sum(ranks)), "--hosts",
         ",".join(map(str, ranks)), "--one-machine", "--bytes", args.sizes, "--json"],
        env={**os.environ, "WHORL_COST_FILE": str(costs)}, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise machine.Failure(done.stderr.strip())
    return {row["bytes"]: row for row in json.loads(done.stdout)["rows"]}


def text_of(us: float) -> str:
    return f"{us:.1f}" if us < 1000 else f"{us:.0f}"


def compare(args: argparse.Namespace, layout: str, costs: Path) -> list[dict]:
    """Measures one layout, and prints and returns its rows."""
    ranks = [int(part) for part in layout.split(",")]
    times: dict[str, list[dict[int, float]]] = {way: [] for way in WAYS}
    hosts = ShapedHosts(len(ranks), args.mbit)
    try:
        for number in range(args.rounds):
            for way in WAYS if number % 2 == 0 else reversed(WAYS):
                times[way].append(measure(args, hosts, ranks, way, costs))
    finally:
        hosts.close()
    predicted = predict(args, ranks, costs)
    rows = []
    for size in sorted(predicted):
        medians = {way: statistics.median(one[size] for one in times[way]) for way in WAYS}
        ratios = {way: statistics.median(flat[size] / one[size] for flat, one in
                                         zip(times["flat"], times[way])) for way in WAYS}
        row = predicted[size]
        expected = row["algorithms"][row["choice"]]["predicted_us"]
        rows.append({"layout": layout, "bytes": size, "choice": row["choice"], "median_us": medians,
                     "flat_over": ratios, "predicted_us": expected,
                     "of_bound": row["least_us"] / medians["aware"],
                     "times_us": {way: [one[size] for one in times[way]] for way in WAYS}})
        print(f"| {layout.replace(',', ' + ')} | {size} | {text_of(medians['aware'])} | "
              f"{text_of(medians['probe'])} | {text_of(medians['default'])} | "
              f"{text_of(medians['flat'])} | {ratios['aware']:.2f} | {ratios['probe']:.2f} | "
              f"{ratios['default']:.2f} | {row['choice']} | "
              f"{text_of(expected)} | {100 * rows[-1]['of_bound']:.0f} % |", flush=True)
    return rows


def draw(rows: list[dict], file: Path) -> None:
    """Draws how many times as long as each way the flat choice takes, one field for each layout."""
    from matplotlib import pyplot  # only where it is asked for
    layouts = list(dict.fromkeys(row["layout"] for row in rows))
    page, fields = pyplot.subplots(1, len(layouts), figsize=(3.6 * len(layouts), 3.2), sharey=True,
                                   squeeze=False)
    for field, layout in zip(fields[0], layouts):
        mine = [row for row in rows if row["layout"] == layout]
        for number, way in enumerate(WAYS[:-1]):
            field.bar([place + 0.27 * (number - 1) for place in range(len(mine))],
                      [row["flat_over"][way] for row in mine], 0.25, label=way,
                      color=("#0072b2", "#56b4e9", "#bbbbbb")[number])
        field.axhline(1, color="black", linewidth=0.8)
        field.set_xticks(range(len(mine)), [f"{row['bytes'] // 1024} KiB" for row in mine], fontsize=8)
        field.set_title(layout.replace(",", " + ") + " ranks", fontsize=10)
    fields[0][0].set_ylabel("time of flat / time")
    fields[0][0].legend(fontsize=8)
    page.tight_layout()
    page.savefig(file)


def main() -> int:
    args = arguments()
    print(f"allreduce of float32, links of {args.mbit} Mbit/s, {args.rounds} rounds, µs\n\n"
          "| ranks | bytes | aware | probe | default | flat | flat / aware | flat / probe | "
          "flat / default | choice | predicted | of bound |\n" + "|---" * 12 + "|")
    rows = []
    try:
        with tempfile.TemporaryDirectory() as folder:
            costs = Path(folder) / "costs.json"
            write_costs(costs, args.mbit)
            for layout in args.layout:
                rows += compare(args, layout, costs)
    except machine.Failure as failure:
        print(f"shaped.py: {failure}", file=sys.stderr)
        return 1
    if args.plot:
        draw(rows, args.plot)
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
