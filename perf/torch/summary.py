"""Tables of recorded runs in Markdown."""

from __future__ import annotations

import statistics
from typing import Any

import report
import tables
import workloads

GLOO = "gloo"


def _ratio(found: dict[str, Any] | None) -> str:
    if not found:
        return "-"
    number = report.number
    return f"{number(found['ratio'])} ({number(found['least'])} ... {number(found['most'])})"


def _title(table: dict[str, Any]) -> str:
    exchange = f", flag exchange {table['exchange_ns']:.0f} ns" if table["exchange_ns"] else ""
    return (f"### {table['collective']}, {table['ranks']} ranks, {table['mode']}; "
            f"cores {table['state']}{exchange}")


def _local(runs: list[dict[str, Any]], table: dict[str, Any], name: str, size: str) -> float | None:
    found = [run["rows"][size]["us"] for run in runs
             if run["library"] == name and run["state"] == table["state"]
             and tables.key_of(run) == (table["where"], table["collective"], table["ranks"],
                                        table["mode"])]
    return statistics.median(found) if found else None


def _table(table: dict[str, Any], runs: list[dict[str, Any]]) -> list[str]:
    names = sorted(table["libraries"], key=lambda name: (name != GLOO, name))
    owns = [name for name in names if tables.is_whorl(name) and GLOO in names]
    step = table["collective"].startswith("step")
    unit, scale = ("ms", 1e3) if step else ("µs", 1)
    locals_ = sorted({run["library"] for run in runs if workloads.is_local(run["library"])}) * step
    heads = ["size", *locals_, *names, *(f"gloo / {own}" for own in owns)]
    lines = [_title(table), "", f"Median {unit}; ratios with the least and the greatest of the rounds.",
             "", f"| {' | '.join(heads)} |", "|---" + "|---:" * (len(heads) - 1) + "|"]
    for row in table["rows"]:
        cells = [report.size_name(row["bytes"])]
        for name in locals_:
            local = _local(runs, table, name, str(row["bytes"]))
            cells.append(report.number(local and local / scale))
        cells += [report.number(row["median_us"][name] / scale if name in row["median_us"] else None)
                  for name in names]
        cells += [_ratio(row["ratios"].get(own)) for own in owns]
        lines.append(f"| {' | '.join(cells)} |")
    counts = ", ".join(f"{name} {count}" for name, count in table["runs"].items())
    means = ", ".join(f"{own} {report.number(mean)}" for own, mean in table["means"].items() if mean)
    lines += ["", f"Runs: {counts}; {table['lost_runs']} lost because the cores moved."
              + (f" Geometric mean of the ratios: {means}." if means and len(table["rows"]) > 1 else "")]
    return [*lines, ""]


def text(results: list[dict[str, Any]]) -> str:
    lines = []
    for one in results:
        lines.append(f"- machine: {one['machine']}, torch {one['torch']}, commit {one['commit']}, "
                     f"{one['date']}, load {one['load']:.1f}, ranks "
                     f"{'bound to cores' if one['bound'] else 'not bound'}: {one['command']}")
    whole = tables.merged(results)
    lines += ["", *(f"- {problem}" for problem in dict.fromkeys(whole["problems"])), ""]
    lost: list[tuple[float, str]] = []
    for table in tables.tables([run for run in whole["runs"] if not workloads.is_local(run["library"])]):
        lines += _table(table, whole["runs"])
        for row in table["rows"]:
            lost += [(found["ratio"], f"{table['collective']}, {table['ranks']} ranks, "
                      f"{table['mode']}, {report.size_name(row['bytes'])}, {own}, {table['state']}")
                     for own, found in row["ratios"].items() if found["ratio"] < 1]
    lines.append(f"{len(lost)} places where whorl is slower than gloo" + (":" if lost else "."))
    lines += [f"- {report.number(ratio)}: {place}" for ratio, place in sorted(lost)]
    return "\n".join(lines)
