"""Tables of the rows of perf/gpu/measure.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from plan import Row, text_of

TITLES = {
    "M1": "M1: one kernel for all ranks, against the device's own kernels",
    "M2": "M2: against NCCL with several ranks on the device, and PyTorch's own operations",
    "M3": "M3: latency of an allreduce, against the launch of an empty kernel",
    "M4": "M4: ranks in processes, by mapped memory",
    "M5": "M5: ranks in processes, by the host (`WHORL_DEVICE_IPC=0`)",
    "M6": "M6: reduction by datatype",
    "M7": "M7: the kernel that interprets schedules, against a ring kernel made for the case",
    "M8": "M8: results bit for bit",
    "M10": "M10: what the device's own steps cost, in µs",
    "M9": "M9: from an abort until the kernels that interpret schedules have left",
}


def number(value: Any, digits: int = 4) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.{max(0, digits - len(str(int(abs(value)))))}f}"
    return str(value)


def speed(row: Row, variant: str) -> str:
    """Returns the bytes read and written in a second, in units of 10⁹."""
    us = (row.get("us") or {}).get(variant)
    return "–" if not us or "moved_bytes" not in row else number(row["moved_bytes"] / us / 1000)


def us_of(variant: str, group: str = "us") -> Callable[[Row], str]:
    return lambda row: number((row.get(group) or {}).get(variant))


def ratio_to(variant: str) -> Callable[[Row], str]:
    def text(row: Row) -> str:
        ratio = (row.get("times_as_fast_as") or {}).get(variant)
        return "–" if ratio is None else f"{ratio:.3f}"
    return text


def field(name: str) -> Callable[[Row], str]:
    return lambda row: number(row.get(name))


def size_of(row: Row) -> str:
    return text_of(row["bytes"]) if "bytes" in row else "–"


def miss(row: Row) -> str:
    predicted, measured = row.get("predicted_us"), (row.get("us") or {}).get("whorl")
    if not predicted or not measured:
        return "–"
    return f"{(measured / predicted - 1) * 100:+.0f} %"


def us_of_all(row: Row) -> str:
    return "; ".join(f"{name} {number(value)}" for name, value in (row.get("us") or {}).items())


Columns = list[tuple[str, Callable[[Row], str]]]
WHAT: Columns = [("collective", field("collective")), ("ranks", field("ranks")), ("size", size_of)]
MODEL: Columns = [("predicted µs [model]", field("predicted_us")), ("whorl µs", us_of("whorl")),
                  ("miss", miss)]
TARGET: Columns = [("target", lambda row: row.get("target") or "–"),
                   ("", lambda row: row.get("verdict") or "–")]
SPEEDS: Columns = [("GB/s", lambda row: speed(row, "whorl")),
                   ("triad GB/s", lambda row: speed(row, "triad"))]
WRONG: Columns = [("wrong", lambda row: "–" if row.get("wrong", -1) < 0 else str(row["wrong"]))]

COLUMNS: dict[str, Columns] = {
    "M1": [*WHAT, *MODEL, *SPEEDS, ("copy GB/s", lambda row: speed(row, "copy")),
           ("of triad", ratio_to("triad")), *TARGET, *WRONG],
    "M2": [*WHAT, *MODEL, ("NCCL µs [model]", field("predicted_nccl_us")), ("NCCL µs", us_of("nccl")),
           ("of NCCL's speed", ratio_to("nccl")), ("torch µs [model]", field("predicted_torch_us")),
           ("torch µs", us_of("torch")), *TARGET, *WRONG],
    "M3": [("ranks", field("ranks")), ("size", size_of), *MODEL, ("empty µs", us_of("empty")),
           ("queued µs", us_of("whorl queued")), ("empty queued µs", us_of("empty queued")),
           ("in a graph µs", us_of("whorl", "graph_us")),
           ("empty in a graph µs", us_of("empty", "graph_us")), *TARGET],
    "M4": [*WHAT, *MODEL, *SPEEDS, ("of triad", ratio_to("triad")),
           ("words µs", us_of("words, one way")), ("events µs", us_of("events, one way")), *TARGET],
    "M5": [*WHAT, *MODEL, ("copies of one µs", us_of("copies of one")),
           ("copies of all µs", us_of("copies of all")), ("of these", ratio_to("copies of all")),
           *TARGET],
    "M6": [("type", field("type")), *WHAT, *MODEL, *SPEEDS, ("of triad", ratio_to("triad")), *TARGET,
           *WRONG],
    "M7": [("slots", field("slots")), *WHAT,
           *MODEL, ("ring µs [model]", field("predicted_ring_us")), ("ring µs", us_of("ring")),
           ("of the ring's speed", ratio_to("ring")), *TARGET, *WRONG],
    "M8": [("path", field("path")), ("ranks", field("ranks")), ("type", field("type")),
           ("size", size_of), ("data", field("data")), ("compared", field("compared")),
           ("differ from rank order", field("differ_from_rank_order")),
           ("differ from the host's", field("differ_from_host")), *TARGET],
    "M10": [("", us_of_all)],
    "M9": [*WHAT, ("whole operation µs", us_of("operation")), ("abort µs", us_of("whorl")), *TARGET],
}


def table(name: str, rows: list[Row]) -> list[str]:
    columns = COLUMNS[name]
    lines = ["| " + " | ".join(title for title, _ in columns) + " | |",
             "|" + "---|" * (len(columns) + 1)]
    for row in rows:
        lines.append("| " + " | ".join(text(row) for _, text in columns) + " | "
                     + row.get("skipped", row.get("note", "")) + " |")
    return lines


def gather(rows: list[Row]) -> list[Row]:
    """Merges the M8 rows that met their target, one for each path, so that the others stand out."""
    out: list[Row] = []
    for row in rows:
        last = out[-1] if out else None
        same = last is not None and all(last.get(key) == row.get(key)
                                        for key in ("path", "ranks", "data", "verdict", "skipped"))
        if row["measurement"] != "M8" or not same or row.get("verdict") != "met":
            out.append(dict(row))
            continue
        assert last is not None
        if row["type"] not in str(last["type"]).split(", "):
            last["type"] = f"{last['type']}, {row['type']}"
        for key in ("compared", "differ_from_rank_order", "differ_from_host"):
            last[key] += row[key]
        last.pop("bytes", None)
    return out


def report(result: dict[str, Any]) -> str:
    device = result["device"]
    lines = ["# whorl on one device", ""]
    if device.get("pretended"):
        lines += ["**A pretended device: no figure here says anything about speed.**", ""]
    lines += [f"- Command: `{result['command']}`", f"- Begun {result['begun']}, "
              f"{result['seconds']:.0f} s of {result['budget_s']:.0f} s",
              f"- Device: {device_line(result)}"]
    if device.get("peak_bytes_per_s"):
        lines.append(f"- Peak of its memory, 2 · clock · width: "
                     f"{device['peak_bytes_per_s'] / 1e9:.0f} GB/s")
    lines += [f"- {note}" for note in result["notes"]]
    lines += ["", "GB/s: bytes that any algorithm must read and write at least, in 10⁹ each second. "
              "Ratios are medians over rounds in which the variants take turns. [model]: from byte "
              "counts (docs/gpu_tests.md), no measurement.", ""]
    for name, title in TITLES.items():
        rows = [row for row in result["rows"] if row["measurement"] == name]
        if not rows:
            continue
        lines += [f"## {title}", ""]
        lines += table(name, gather(sorted_of(rows)))
        lines.append("")
        commands = [step["command"] for step in result["steps"] if step["measurement"] == name]
        lines += [f"First of {len(commands)} commands: `{commands[0]}`", ""]
    lines += ["## Summary", "", *summary(result), ""]
    return "\n".join(lines)


def sorted_of(rows: list[Row]) -> list[Row]:
    if rows[0]["measurement"] != "M8":
        return rows
    return sorted(rows, key=lambda row: (row["path"], row["ranks"], row["data"], row.get("verdict")
                                         or ""))


def device_line(result: dict[str, Any]) -> str:
    device, known = result["device"], result.get("devices_before") or {}
    parts = [device.get("name", "none")]
    for one in known.get("devices", [])[:1]:
        parts += [one["uuid"], f"PCI {one['bus_id']}", f"{one['memory_bytes'] / (1 << 30):.1f} GiB",
                  f"SM {one['sm_clock_mhz']} of {one['max_sm_clock_mhz']} MHz",
                  f"memory {one['memory_clock_mhz']} MHz",
                  "slowed by: " + (", ".join(one["slowed_by"]) or "nothing")]
        after = (result.get("devices_after") or {}).get("devices", [])[:1]
        parts += [f"afterwards SM {two['sm_clock_mhz']} MHz, slowed by: "
                  + (", ".join(two["slowed_by"]) or "nothing") for two in after]
    parts.append(f"driver {known.get('driver', 'unknown')}")
    if "cuda_version" in device:
        parts.append(f"CUDA {device['cuda_version'] // 1000}.{device['cuda_version'] % 1000 // 10}")
    return ", ".join(parts)


def summary(result: dict[str, Any]) -> list[str]:
    lines = ["| | rows | measured | targets met | missed | not run | failed |", "|" + "---|" * 7]
    for name in TITLES:
        rows = [row for row in result["rows"] if row["measurement"] == name]
        if not rows:
            continue
        verdicts = [row.get("verdict") for row in rows]
        skipped = [str(row["skipped"]) for row in rows if "skipped" in row]
        failed = sum(text.startswith("failed") for text in skipped)
        lines.append(f"| {name} | {len(rows)} | {len(rows) - len(skipped)} | {verdicts.count('met')} |"
                     f" {verdicts.count('missed')} | {len(skipped) - failed} | {failed} |")
    return lines
