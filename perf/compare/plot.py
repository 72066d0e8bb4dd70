#!/usr/bin/env python3
"""Draws bus bandwidth against size, one line for each library: plot.py TABLES.json PREFIX writes
PREFIX_WHERE_MODE_STATE.svg and .png. TABLES.json is a list as tables.tables() returns it. Needs matplotlib
(Debian: python3-matplotlib)."""
import json
import sys

import bounds
import plan
import report

# Colours and markers, distinguishable without colour vision; whorl's lines are thick.
STYLES = {
    "whorl-plain": ("#0072b2", "o"), "whorl-whorl": ("#d55e00", "s"),
    "whorl-registered": ("#cc79a7", "^"), "openmpi-ucx": ("#009e73", "v"),
    "openmpi-ob1": ("#56b4e9", "<"), "openmpi-ucx-cma": ("#004d3a", ">"),
    "mpich": ("#e69f00", "D"), "gloo": ("#777777", "x"),
}


def lines_of(table):
    """Returns {library: [(bytes, busbw in GB/s)]}, the bound among them."""
    factor = bounds.bus_factor(table["collective"], table["ranks"])
    out = {}
    for row in table["rows"]:
        times = dict(row["median_us"])
        if "bound_us" in row:
            times["bound"] = row["bound_us"]
        for name, time_us in times.items():
            out.setdefault(name, []).append((row["bytes"], row["bytes"] * factor / time_us / 1e3))
    return out


def draw(axes, table):
    for name, points in lines_of(table).items():
        colour, marker = STYLES.get(name, ("black", None))
        wide = name.startswith("whorl")
        axes.plot(*zip(*points), color=colour, marker=marker, markersize=4 if wide else 3,
                  linewidth=2 if wide else 1, linestyle="--" if name == "bound" else "-",
                  label=name)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    sizes = [row["bytes"] for row in table["rows"]]
    ticks = [2 ** power for power in range(3, 31, 3) if sizes[0] <= 2 ** power <= sizes[-1]]
    axes.set_xticks(ticks, [report.size_name(tick).replace("iB", "") for tick in ticks])
    axes.grid(True, which="major", linewidth=0.4)
    axes.set_title(f"{table['collective']}, {table['ranks']} ranks", fontsize=10)
    axes.set_ylabel("bus bandwidth, GB/s", fontsize=8)
    axes.tick_params(labelsize=8)


def figure(pyplot, tables, title, prefix):
    columns = min(len(tables), 3)
    lines = -(-len(tables) // columns)
    page, grid = pyplot.subplots(lines, columns, figsize=(5.2 * columns + 1.4, 3.6 * lines + 0.7),
                                 squeeze=False)
    axes = [one for line in grid for one in line]
    for one, table in zip(axes, tables):
        draw(one, table)
    for one in axes[len(tables):]:
        one.set_axis_off()
    known = {}
    for one in axes:
        for handle, name in zip(*one.get_legend_handles_labels()):
            known.setdefault(name, handle)
    page.suptitle(title, fontsize=11)
    legend_share = 1.5 / page.get_figwidth()
    page.tight_layout(rect=(0, 0, 1 - legend_share, 0.98))
    page.legend(known.values(), known.keys(), loc="center right", fontsize=8)
    for ending in ("svg", "png"):
        page.savefig(f"{prefix}.{ending}", dpi=110)
    pyplot.close(page)


def main():
    try:
        import matplotlib
    except ImportError:
        print("no plots: matplotlib is not installed (Debian: python3-matplotlib)")
        return 3
    matplotlib.use("Agg")
    from matplotlib import pyplot
    with open(sys.argv[1], encoding="utf-8") as file:
        tables = [table for table in json.load(file) if table["rows"][-1]["bytes"] > 0]
    groups = {}
    for table in tables:
        groups.setdefault((table["where"], table["mode"], table["state"]), []).append(table)
    for (where, mode, state), some in groups.items():
        prefix = f"{sys.argv[2]}_{where}_{mode}_{state.replace(' ', '_')}"
        figure(pyplot, some, f"{plan.WHERE[where]}; {mode}, cores {state}", prefix)
        print(f"{prefix}.svg and .png")
    return 0


if __name__ == "__main__":
    sys.exit(main())
