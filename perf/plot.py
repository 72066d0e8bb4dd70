#!/usr/bin/env python3
"""Draws time and bus bandwidth over the size from the JSON of a perf program.

usage: plot.py FILE < JSON         draws the run
       plot.py --check FILE        says whether FILE could be drawn, with --curves N also whether so many
                                   curves can be in it

The perf programs call it for --plot. FILE ends in .png, .svg or .pdf; JSON is what -J writes, so recorded
runs can be drawn again."""
import argparse
import io
import json
import os
import pathlib
import sys

ENDINGS = (".png", ".svg", ".pdf")
DEBIANS = "/usr/bin/python3"  # has Debian's matplotlib, which another python3 in PATH lacks
SIDES = {"out_of_place": ("out of place", "-", "full"), "in_place": ("in place", "--", "none")}  # words, line, marker
COLOURS, MARKERS = 10, "os"  # after so many curves the colours return with another marker
MOST = 20  # curves that one picture shows: all operators, or one side of all datatypes


def refusal(count):
    """Returns the sentence that refuses a picture of so many curves; nothing if they can be told apart."""
    if count == 0:
        return "plot.py: no row has a size above 0, so there is nothing to draw; a barrier has no size"
    return "" if count <= MOST else (
        f"plot.py: {count} curves cannot be told apart, {MOST} can; choose a datatype by -d, an operator by -o, a root "
        "by -r or a side by --side")


def curves(report):
    """Returns the rows that belong together as {(type, operator, root): {side: (sizes, times, bandwidths)}}; the times
    of several cycles as their median."""
    found = {}
    for row in report["rows"]:
        for side in SIDES:
            if row[side] and row["bytes"] > 0:
                sides = found.setdefault((row["type"], row["redop"], row["root"]), {})
                sides.setdefault(side, {}).setdefault(row["bytes"], []).append(
                    (row[side]["time_us"], row[side]["busbw_gbs"]))
    for sides in found.values():
        for side, sizes in sides.items():
            points = sorted((size, *sorted(samples)[len(samples) // 2]) for size, samples in sizes.items())
            sides[side] = tuple(zip(*points))
    return found


def label_of(kind, kinds):
    """Returns what distinguishes a combination from the others: "float, sum", "root 3"."""
    words = (kind[0], kind[1], f"root {kind[2]}")
    several = [len({other[i] for other in kinds}) > 1 for i in range(3)]
    return ", ".join(word for word, differs in zip(words, several) if differs)


def size_label(size, _):
    for unit, power in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if size >= 1 << power:
            return f"{size / (1 << power):g} {unit}"
    return f"{size:g} B"


def draw(report, path):
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import lines, pyplot, ticker
    figure, (time, bandwidth) = pyplot.subplots(1, 2, figsize=(12, 4.6), layout="constrained")
    kinds = curves(report)
    legend = []
    for number, (kind, sides) in enumerate(kinds.items()):
        style = {"color": f"C{number % COLOURS}", "marker": MARKERS[number // COLOURS], "markersize": 4}
        if len(kinds) > 1:
            legend.append(lines.Line2D([], [], **style, label=label_of(kind, kinds)))
        for side, (sizes, times, busbw) in sides.items():
            for axes, values in ((time, times), (bandwidth, busbw)):
                axes.plot(sizes, values, SIDES[side][1], fillstyle=SIDES[side][2], **style)
    shown = {side for sides in kinds.values() for side in sides}
    legend += [lines.Line2D([], [], color="black", linestyle=line, marker=MARKERS[0], markersize=4, fillstyle=fill,
                            label=words) for side, (words, line, fill) in SIDES.items() if side in shown]
    bandwidth.legend(handles=legend, loc="upper left", bbox_to_anchor=(1.02, 1), fontsize=9, borderaxespad=0)
    for axes in (time, bandwidth):
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter(ticker.FuncFormatter(size_label))
        axes.xaxis.set_major_locator(ticker.LogLocator(base=2, numticks=9))
        axes.tick_params(axis="x", labelsize=8)
        axes.set_xlabel("size")
        axes.grid(alpha=0.3)
    time.set_yscale("log")
    time.set_ylabel("time of one operation, µs")
    bandwidth.set_ylabel("bus bandwidth, GB/s")
    bandwidth.set_ylim(bottom=0)
    config = report["config"]
    hosts = len({rank["host"] for rank in report["ranks"]})
    figure.suptitle(f"{report['program']}: {len(report['ranks'])} ranks on {hosts} "
                    f"host{'s' * (hosts != 1)}, mode {config['mode']}, buffers {config['alloc']}\n"
                    f"{report['machine']['processor']}, {report['date']}", fontsize=10)
    picture = io.BytesIO()  # matplotlib's own errors of a full disk hide the reason
    figure.savefig(picture, dpi=120, format=path.suffix[1:])
    return picture.getvalue()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=pathlib.Path, help="picture: .png, .svg or .pdf")
    parser.add_argument("--check", action="store_true", help="only say whether FILE could be drawn")
    parser.add_argument("--curves", type=int, default=1, help="number of curves of the run (1)")
    arguments = parser.parse_args()
    path = arguments.file
    if path.suffix not in ENDINGS:
        return f"plot.py: {path} is no picture; its name must end in {', '.join(ENDINGS)}"
    if not os.access(path.absolute().parent, os.W_OK):
        return f"plot.py: cannot write into the folder of {path}"
    if refusal(arguments.curves):
        return refusal(arguments.curves)
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        if sys.executable != DEBIANS and os.access(DEBIANS, os.X_OK):
            os.execv(DEBIANS, [DEBIANS, *sys.argv])
        return "plot.py: --plot needs matplotlib (Debian: python3-matplotlib, or pip install matplotlib)"
    if not arguments.check:
        report = json.load(sys.stdin)
        count = sum(len(sides) for sides in curves(report).values())
        if refusal(count):
            return refusal(count)
        picture = draw(report, path)
        try:
            path.write_bytes(picture)
        except OSError as error:
            return f"plot.py: cannot write {path}: {error.strerror}"
        print(f"# drawn to {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
