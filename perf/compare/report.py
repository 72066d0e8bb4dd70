"""Results as text: tables, and files of records."""
import json

import tables
from plan import WHERE

COLUMN = 12


def records(result):
    """Returns JSON with a line for each record, so that recorded files can be read and compared."""
    def value(one):
        if not isinstance(one, list) or not one:
            return json.dumps(one)
        return "[\n  " + ",\n  ".join(map(json.dumps, one)) + "\n ]"
    return "{\n " + ",\n ".join(f"{json.dumps(key)}: {value(one)}"
                                for key, one in result.items()) + "\n}\n"


def number(value):
    if value is None:
        return "-"
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:.0f}"


def size_name(size):
    for unit in ("B", "KiB", "MiB"):
        if size < 1024 or unit == "MiB" or size % 1024:
            return f"{size} {unit}"
        size //= 1024
    return ""


def short(own):
    return own.removeprefix("whorl-")


def title_of(table):
    exchange = f", flag exchange {table['exchange_ns']:.0f} ns" if table["exchange_ns"] else ""
    return (f"{table['collective']}, {table['ranks']} ranks, {table['mode']}; "
            f"{WHERE[table['where']]}; cores {table['state']}{exchange}")


def format_table(table):
    owns = [name for name in table["libraries"] if tables.is_whorl(name)]
    lines = ["", title_of(table)]
    head = f"{'size':>12}" + "".join(f"{name:>17}" if len(name) > 11 else f"{name:>{COLUMN}}"
                                     for name in table["libraries"])
    widths = [17 if len(name) > 11 else COLUMN for name in table["libraries"]]
    bounded = any("bound_us" in row for row in table["rows"])
    head += f"{'bound':>{COLUMN}}" if bounded else ""
    head += "   fastest other / " + ", / ".join(map(short, owns)) + " (least ... most)"
    lines.append(head)
    for row in table["rows"]:
        name = size_name(row["bytes"]) if row["bytes"] else "-"
        line = f"{name:>12}" + "".join(
            f"{number(row['median_us'].get(library)):>{width}}"
            for library, width in zip(table["libraries"], widths))
        line += f"{number(row.get('bound_us')):>{COLUMN}}" if bounded else ""
        for own in owns:
            found = row["ratios"].get(own)
            line += "   " + (f"{number(found['ratio']):>5} ({number(found['least'])} ... "
                             f"{number(found['most'])})" if found else f"{'-':>5}")
        lines.append(line)
    lines.append("runs: " + ", ".join(f"{name} {count}" for name, count in table["runs"].items())
                 + f"; {table['lost_runs']} lost because the cores moved")
    means = ", ".join(f"{short(own)} {number(mean)}" for own, mean in table["means"].items() if mean)
    if means:
        lines.append(f"geometric mean of the ratios: {means}")
    return "\n".join(lines)


def format_verdicts(verdicts):
    return "\n".join(["targets:"] + [f"  {sentence}" for _, sentence in verdicts])


def format_losses(all_tables):
    lost = sorted(tables.losses(all_tables), key=lambda one: one[3]["ratio"])
    if not lost:
        return "whorl is nowhere slower than the fastest other library."
    lines = [f"whorl is slower than the fastest other library in {len(lost)} places:"]
    for table, own, size, found in lost:
        lines.append(f"  {number(found['ratio']):>5} ({number(found['least'])} ... "
                     f"{number(found['most'])}, {found['pairs']} pairs)  {table['where']} "
                     f"{table['collective']}, {table['ranks']} ranks, {table['mode']}, "
                     f"{table['state']}, {size_name(size)}, {short(own)}: against {found['peer']}")
    return "\n".join(lines)
