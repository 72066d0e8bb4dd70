#!/usr/bin/env python3
"""Draws time and bus bandwidth over the size from the JSON of a perf program.

usage: plot.py FILE < JSON         draws the run
       plot.py --check FILE        says whether FILE could be drawn

The perf programs call it for --plot. FILE ends in .png, .svg or .pdf; JSON is what -J writes, so recorded
runs can be drawn again."""
import argparse
import json
import os
import pathlib
import sys

ENDINGS = (".png", ".svg", ".pdf")
DEBIANS = "/usr/bin/python3"  # has Debian's matplotlib, which another python3 in PATH lacks
SIDES = {"out_of_place": "out of place", "in_place": "in place"}


def curves(report):
    """Returns the rows that belong together as {label: (sizes, times, bandwidths)}; the times of several
    cycles as their median."""
    kinds = {(row["type"], row["redop"], row["root"]) for row in report["rows"]}
    found = {}
    for row in report["rows"]:
        for side, words in SIDES.items():
            if not row[side]:
                continue
            kind = [row["type"]] + [row["redop"]] * (row["redop"] != "none")
            kind += [f"root {row['root']}"] * (row["root"] >= 0)
            label = ", ".join(kind * (len(kinds) > 1) + [words])
            found.setdefault(label, {}).setdefault(row["bytes"], []).append(
                (row[side]["time_us"], row[side]["busbw_gbs"]))
    medians = {}
    for label, sizes in found.items():
        points = sorted((size, *sorted(samples)[len(samples) // 2]) for size, samples in sizes.items())
        medians[label] = tuple(zip(*points))
    return medians


def size_label(size, _):
    for unit, power in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if size >= 1 << power:
            return f"{size / (1 << power):g} {unit}"
    return f"{size:g} B"


def draw(report, path):
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot, ticker
    figure, (time, bandwidth) = pyplot.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    for label, (sizes, times, busbw) in curves(report).items():
        time.plot(sizes, times, marker=".", label=label)
        bandwidth.plot(sizes, busbw, marker=".", label=label)
    for axes in (time, bandwidth):
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter(ticker.FuncFormatter(size_label))
        axes.xaxis.set_major_locator(ticker.LogLocator(base=2, numticks=9))
        axes.tick_params(axis="x", labelsize=8)
        axes.set_xlabel("size")
        axes.grid(alpha=0.3)
        axes.legend()
    time.set_yscale("log")
    time.set_ylabel("time of one operation, µs")
    bandwidth.set_ylabel("bus bandwidth, GB/s")
    bandwidth.set_ylim(bottom=0)
    config = report["config"]
    hosts = len({rank["host"] for rank in report["ranks"]})
    figure.suptitle(f"{report['program']}: {len(report['ranks'])} ranks on {hosts} "
                    f"host{'s' * (hosts != 1)}, mode {config['mode']}, buffers {config['alloc']}\n"
                    f"{report['machine']['processor']}, {report['date']}", fontsize=10)
    figure.savefig(path, dpi=120)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=pathlib.Path, help="picture: .png, .svg or .pdf")
    parser.add_argument("--check", action="store_true", help="only say whether FILE could be drawn")
    arguments = parser.parse_args()
    path = arguments.file
    if path.suffix not in ENDINGS:
        return f"plot.py: {path} is no picture; its name must end in {', '.join(ENDINGS)}"
    if not os.access(path.absolute().parent, os.W_OK):
        return f"plot.py: cannot write into the folder of {path}"
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        if sys.executable != DEBIANS and os.access(DEBIANS, os.X_OK):
            os.execv(DEBIANS, [DEBIANS, *sys.argv])
        return "plot.py: --plot needs matplotlib (Debian: python3-matplotlib, or pip install matplotlib)"
    if not arguments.check:
        report = json.load(sys.stdin)
        if not curves(report):
            return "plot.py: the run has no rows to draw"
        draw(report, path)
        print(f"# drawn to {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
