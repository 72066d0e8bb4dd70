#!/usr/bin/env python3
"""Compares the rings that whorl finds on described machines with the best that their links permit.

    perf/placement/recorded.py [--tool build/release/tools/whorl-topo] MACHINE.xml...

Rings: their number, whether over links beside PCI, the tree of PCI or both, and the bus bandwidth of an
all-gather over all of them. Cut: what leaves the tightest set of GPUs, which all rings cross and so cannot
exceed together. Bound: that of the best algorithm there could be. ~: by tables of usual figures."""
import argparse
import json
import subprocess
import sys
from pathlib import Path


def row_of(tool: Path, file: Path) -> str | None:
    """Returns a line of the table; nothing for a machine with fewer than two GPUs."""
    done = subprocess.run([tool, "--file", file, "--json"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return f"| {file.stem} | {done.stderr.strip()} |"
    found = json.loads(done.stdout)
    gpus = sum(node["kind"] == "GPU" for node in found["nodes"])
    if gpus < 2:
        return None
    rings = found["rings"]
    count = sum(ring["copies"] for ring in rings)
    rate = sum(ring["copies"] * (ring["bandwidth"] or {}).get("gb_per_s", 0) for ring in rings)
    bound = found["bounds"].get("allgather")  # missing: nothing is known that limits
    about = "~" if bound and bound["by_table"] else ""
    best = bound["bus_gb_per_s"] if bound else 0
    over = {"links": "links", "tree": "PCI"}.get("+".join({ring["over"] for ring in rings}), "both")
    part = f"{100 * rate / best:.0f} %" if best > 0 and rate > 0 else "unknown"
    cut = found["bounds"].get("broadcast", {}).get("bus_gb_per_s", 0)
    figures = [f"{about}{value:.0f}" if value > 0 else "?" for value in (rate, cut, best)]
    return f"| {file.stem} | {gpus} | {count} over {over} | {' | '.join(figures)} | {part} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tool", type=Path, default=Path("build/release/tools/whorl-topo"))
    parser.add_argument("machines", type=Path, nargs="+")
    args = parser.parse_args()
    print("| machine | GPUs | rings | GB/s | cut | bound | part |\n|---|---|---|---|---|---|---|")
    for row in filter(None, (row_of(args.tool, file) for file in sorted(args.machines))):
        print(row, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
