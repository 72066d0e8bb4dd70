"""Recorded runs as text: the scoreboard, each case of it, and where whorl keeps less than it promises."""
import collections
import statistics

import columns
import faults
import outcomes
import promises

# Worst first: the order in which the outcomes of a cell are listed.
BADNESS = ("success, wrong numbers", "hang", "cannot join", "killed", "job killed", "ended",
           "error, names the wrong rank", "error, no rank", "error, rank", "one call late", "error, named", "success")


def size_name(count):
    return f"{count >> 20} Mi" if count >= 1 << 20 else f"{count >> 10} Ki"


def time_name(ms):
    return f"{ms:.1f}" if ms < 10 else f"{ms:.0f}"


def badness(label):
    return next((place for place, start in enumerate(BADNESS) if label.startswith(start)), len(BADNESS))


def times(records):
    """Returns "median (max) ms" of the last rank's answer; "" if none of the runs has one."""
    found = [ms for ms in map(outcomes.last_ms, records) if ms is not None]
    return f"{time_name(statistics.median(found))} ({time_name(max(found))}) ms" if found else ""


def labels(records):
    """Returns how often each outcome occurs among the ranks of these runs, worst first."""
    count = collections.Counter(one.label for record in records for one in outcomes.of_run(record))
    return sorted(count.items(), key=lambda item: badness(item[0]))


def disturbed(records, every):
    """Returns the cell of runs with intruders: by how much joining took longer."""
    if all(one["port"] is None for one in records):
        return "no port"
    found = [name for name, _ in labels(records)]
    if found != ["success"]:
        return " / ".join(found)
    usual = promises.undisturbed_ms(every, records[0]["library"], records[0]["ranks"]) or 0
    added = [max(outcomes.join_ms(one) - usual, 0) for one in records]
    return f"success, joining takes {time_name(statistics.median(added))} ({time_name(max(added))}) ms longer"


def cell(records, every):
    """Returns what one library makes of one fault, in all its cases."""
    if not records:
        return "–"
    fault = faults.BY_NAME[records[0]["fault"]]
    if fault.kind == faults.INTRUSION:
        return disturbed(records, every)
    found = " / ".join(name for name, _ in labels(records))
    if fault.kind == faults.HARMLESS or all(name == "success" for name, _ in labels(records)):
        return found
    return "; ".join(part for part in (found, times(records)) if part)


def matrix(result):
    """Returns the scoreboard as a table in Markdown."""
    names = list(result["libraries"])
    lines = ["| fault | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    for fault in faults.FAULTS:
        rows = [one for one in result["runs"] if one["fault"] == fault.name]
        if rows:
            cells = [cell([one for one in rows if one["library"] == name], result["runs"]) for name in names]
            lines.append(f"| {fault.title} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def grouped(records):
    """Returns the runs of each library and case."""
    out = collections.defaultdict(list)
    for one in records:
        out[one["library"], one["fault"], one["ranks"], one["count"]].append(one)
    return out


def details(result):
    """Returns a line for each library and case."""
    lines = []
    order = {name: place for place, name in enumerate(result["libraries"])}
    cases = sorted(grouped(result["runs"]).items(), key=lambda item: (
        [fault.name for fault in faults.FAULTS].index(item[0][1]), order[item[0][0]], item[0][2:]))
    title = None
    for (library, name, ranks, count), records in cases:
        fault = faults.BY_NAME[name]
        if fault.title != title:
            title = fault.title
            lines += ["", title]
        what = disturbed(records, result["runs"]) if fault.kind == faults.INTRUSION else "; ".join(
            f"{times_seen}× {label}" for label, times_seen in labels(records))
        left = sorted({word for one in records for names in one["left"].values() for word in names})
        lines.append(f"  {library:12} {ranks} ranks {size_name(count):>5}, {len(records)} runs: {what}" +
                     (f"; {times(records)}" if times(records) and fault.kind != faults.INTRUSION else "") +
                     (f"; left behind: {', '.join(left)}" if left else ""))
    return "\n".join(lines)


def verdict(result):
    """Returns where whorl keeps less than it promises, by case, with the number of runs."""
    lines, kept, total = [], 0, 0
    for (library, name, ranks, count), records in grouped(result["runs"]).items():
        if not columns.is_whorl(library):
            continue
        usual = promises.undisturbed_ms(result["runs"], library, ranks)
        found = [promises.shortfalls(one, usual) for one in records]
        total += len(found)
        kept += found.count([])
        sentences = collections.Counter(sentence for one in found for sentence in one)
        lines += [f"  {library}, {faults.BY_NAME[name].title}, {ranks} ranks, {size_name(count)}: {sentence} "
                  f"({times_seen} of {len(records)} runs)" for sentence, times_seen in sentences.items()]
    head = f"whorl keeps every promise in {kept} of {total} runs"
    return head + ("." if kept == total else "; not in these:\n" + "\n".join(sorted(lines)))


def warnings(result):
    """Returns a line about the warnings of ranks of whorl that wait."""
    found = [one["ms"] for record in result["runs"] if columns.is_whorl(record["library"])
             for one in record["warnings"]]
    if not found:
        return ""
    return (f"Ranks of whorl that wait for a silent one say so on stderr after {statistics.median(found):.0f} "
            f"(at most {max(found):.0f}) ms, {len(found)} times.")


def loads(result):
    """Returns a line about the other work of the machine during the runs."""
    found = [one["load"] for one in result["runs"] if "load" in one]
    return (f"Load of the machine during the runs: median {statistics.median(found)}, at most {max(found)}."
            if found else "")


def show(result):
    yield matrix(result)
    yield ("\nTimes: until the last remaining rank has answered, median (max) of all runs of the cell. "
           "Outcomes: of each remaining rank, worst first.")
    yield details(result)
    yield "\n" + warnings(result)
    yield verdict(result)
    yield loads(result)
