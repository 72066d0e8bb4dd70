"""From runs to tables: medians, ratios, geometric means. Nothing here measures or prints."""
import math
import statistics

WHORL = "whorl"
GLOO = "gloo"


def is_whorl(name):
    return name.startswith(WHORL)


def geometric_mean(values):
    values = list(values)
    return math.exp(statistics.fmean(map(math.log, values))) if values else None


def key_of(run):
    return run["where"], run["collective"], run["ranks"], run["mode"]


def usable(run):
    """Returns whether the cores kept their distance: else a run says nothing about either distance."""
    return run["state"] != "changed"


def by_figure(runs, figure):
    """Returns the runs with another figure, p50_us say, in place of the mean; without rows that lack it."""
    return [{**run, "rows": {size: {**row, "us": row[figure]} for size, row in run["rows"].items()
                             if row.get(figure)}} for run in runs]


def pair_ratios(runs, peer, own, size):
    """Returns peer / own for each round in which both ran in the state of `runs`."""
    by_round = {}
    for run in runs:
        if size in run["rows"]:
            by_round.setdefault(run["series"], {})[run["library"]] = run["rows"][size]["us"]
    return [times[peer] / times[own] for times in by_round.values()
            if peer in times and own in times and times[own] > 0]


def row_of(runs, names, size):
    """Returns medians of every library, and for each whorl column the ratio to the fastest other."""
    times = {}
    for run in runs:
        if size in run["rows"]:
            times.setdefault(run["library"], []).append(run["rows"][size])
    row = {"bytes": int(size), "ratios": {},
           "median_us": {name: statistics.median(one["us"] for one in times[name])
                         for name in names if name in times},
           "longest_us": {name: max(one["max_us"] for one in times[name])
                          for name in names if name in times}}
    for own in filter(is_whorl, names):
        ratios = {peer: pair_ratios(runs, peer, own, size) for peer in names if not is_whorl(peer)}
        most = max(map(len, ratios.values()), default=0)
        # A library with fewer than half of the rounds is not counted as the fastest.
        ratios = {peer: some for peer, some in ratios.items() if some and 2 * len(some) >= most}
        if ratios:
            peer = min(ratios, key=lambda one: statistics.median(ratios[one]))
            row["ratios"][own] = {
                "ratio": statistics.median(ratios[peer]), "least": min(ratios[peer]),
                "most": max(ratios[peer]), "pairs": len(ratios[peer]), "peer": peer}
        if GLOO in ratios:
            row.setdefault("gloo", {})[own] = statistics.median(ratios[GLOO])
    return row


def tables(runs):
    """Returns a table for each case and each distance of the cores."""
    names = list(dict.fromkeys(run["library"] for run in runs))
    names = [name for name in names if is_whorl(name)] + \
            [name for name in names if not is_whorl(name)]
    groups = {}
    for run in runs:
        run = {"series": run["round"], **run}
        groups.setdefault(key_of(run), {}).setdefault(run["state"], []).append(run)
    out = []
    for key, states in groups.items():
        lost = len(states.pop("changed", []))
        for state, used in sorted(states.items()):
            here = [name for name in names if any(run["library"] == name for run in used)]
            sizes = sorted({size for run in used for size in run["rows"]}, key=int)
            table = dict(zip(("where", "collective", "ranks", "mode"), key), state=state,
                         libraries=here, lost_runs=lost,
                         runs={name: sum(run["library"] == name for run in used) for name in here},
                         rows=[row_of(used, here, size) for size in sizes])
            table["means"] = {
                own: geometric_mean(row["ratios"][own]["ratio"] for row in table["rows"]
                                    if own in row["ratios"])
                for own in filter(is_whorl, here)}
            lows = [ns for run in used for ns in run["exchange_ns"] if ns is not None]
            table["exchange_ns"] = statistics.median(lows) if lows else None
            out.append(table)
    return out


def merged(results):
    """Merges results, whose rounds stay apart: only runs of one round are divided."""
    out = dict(results[0], runs=[], limits=[], problems=[])
    for number, result in enumerate(results):
        out["runs"] += [{**run, "series": f"{number}:{run.get('series', run['round'])}"}
                        for run in result["runs"]]
        out["limits"] += result["limits"]
        out["problems"] += result["problems"]
        out["libraries"] = {**out["libraries"], **result["libraries"]}
    return out


def creation_ms(runs):
    """Returns {ranks: median of the creation of whorl's communicator on one host}."""
    found = {}
    for run in runs:
        if run["where"] == "shm" and is_whorl(run["library"]) and run.get("init_ms"):
            found.setdefault(run["ranks"], []).append(run["init_ms"])
    return {ranks: statistics.median(times) for ranks, times in found.items()}


def losses(all_tables, below=1.0):
    """Returns (table, own, bytes, ratio) wherever whorl is slower than the fastest other library."""
    return [(table, own, row["bytes"], found) for table in all_tables for row in table["rows"]
            for own, found in row["ratios"].items() if found["ratio"] < below]
