"""Targets for whorl's speed, and whether the given tables meet them."""
import plan
import report
import tables

M = 1 << 20
SHARED = ("whorl-whorl", "whorl-registered")
PLAIN = ("whorl-plain",)


class Worst:
    """The worst of many figures against a limit, and its place in the tables."""

    def __init__(self, limit, at_least):
        self.limit, self.at_least = limit, at_least
        self.value = self.place = None
        self.seen = self.missed = 0

    def add(self, value, place):
        self.seen += 1
        self.missed += value < self.limit if self.at_least else value > self.limit
        if self.value is None or (value < self.value if self.at_least else value > self.value):
            self.value, self.place = value, place

    def verdict(self, what):
        """Returns (met, sentence); met is None where nothing was measured."""
        limit = f"{'at least' if self.at_least else 'at most'} {self.limit:g}"
        if not self.seen:
            return None, f"not measured: {what}, {limit}"
        number = report.number(self.value)
        state = "met" if not self.missed else f"NOT met in {self.missed} of {self.seen}"
        return not self.missed, f"{state}: {what}, {limit}; worst {number} ({self.place})"


def place(table, row=None, own=None):
    parts = [table["collective"], f"{table['ranks']} ranks", table["state"]]
    parts += [report.size_name(row["bytes"])] if row and row["bytes"] else []
    parts += [report.short(own)] if own else []
    return ", ".join(parts)


def headline(all_tables, where):
    return [table for table in all_tables if table["where"] == where and table["mode"] == "dirty"]


def rows_of(some_tables, owns, sizes=lambda size: True):
    """Returns (table, row, own, ratio) of every ratio."""
    return [(table, row, own, row["ratios"][own]["ratio"]) for table in some_tables
            for row in table["rows"] if sizes(row["bytes"]) for own in owns if own in row["ratios"]]


def ratio_target(what, limit, found):
    worst = Worst(limit, True)
    for table, row, own, ratio in found:
        worst.add(ratio, place(table, row, own))
    return worst.verdict(what)


def mean_target(what, limit, some_tables, owns):
    """Judges the geometric mean over all sizes of these tables, for the worse of the columns."""
    worst = Worst(limit, True)
    for own in owns:
        ratios = [ratio for *_, ratio in rows_of(some_tables, (own,))]
        if ratios:
            worst.add(tables.geometric_mean(ratios), report.short(own))
    return worst.verdict(what)


def bound_target(what, limit, some_tables, owns, sizes):
    worst = Worst(limit, False)
    for table in some_tables:
        for row in table["rows"]:
            for own in owns:
                if sizes(row["bytes"]) and own in row["median_us"] and row.get("bound_us"):
                    worst.add(row["median_us"][own] / row["bound_us"], place(table, row, own))
    return worst.verdict(what)


def gloo_target(what, limit, some_tables, sizes):
    worst = Worst(limit, True)
    for table in some_tables:
        for row in table["rows"]:
            for own, ratio in row.get("gloo", {}).items():
                if sizes(row["bytes"]) and table["ranks"] <= 4:
                    worst.add(ratio, place(table, row, own))
    return worst.verdict(what)


def smallest(table):
    """Returns the row of 8 B, or of the least size that gives every rank an element."""
    return table["rows"][0] if table["rows"][0]["bytes"] <= 64 else None


def verdicts(all_tables, cores, init_ms):
    """Returns (met, sentence) for each target. `init_ms`: {ranks: creation of whorl's communicators}."""
    shm, hosts = headline(all_tables, plan.SHM), headline(all_tables, plan.HOSTS)
    upto8 = [table for table in shm if table["ranks"] <= 8]
    crowded = [table for table in shm if table["ranks"] > cores]
    huge = 64 * M
    stalls = Worst(10.0, False)
    for table in crowded:
        for row in table["rows"]:
            for own in PLAIN + SHARED:
                if row is smallest(table) and own in row["longest_us"]:
                    stalls.add(row["longest_us"][own] / 1e3, place(table, row, own))
    small = Worst(1.5, False)
    for table in shm:
        for row in table["rows"]:
            if table["collective"] == "all_reduce" and table["ranks"] == 2 and row["bytes"] == 8 \
                    and table["exchange_ns"]:
                for own in PLAIN + SHARED:
                    if own in row["median_us"]:
                        small.add(row["median_us"][own] * 1e3 / table["exchange_ns"],
                                  place(table, row, own))
    creation = Worst(10.0, False)
    if 8 in init_ms:
        creation.add(init_ms[8], "8 ranks")
    return [
        ratio_target("shared or registered buffers, ratio at every size", 1, rows_of(upto8, SHARED)),
        mean_target("shared or registered buffers, geometric mean of the ratios", 4, upto8, SHARED),
        ratio_target("shared or registered buffers, ratio from 64 MiB", 2.4,
                     rows_of(upto8, SHARED, lambda size: size >= huge)),
        bound_target("shared or registered buffers, time / bound from 64 MiB", 1.1, upto8, SHARED,
                     lambda size: size >= huge),
        ratio_target("plain buffers, ratio at every size", 1, rows_of(shm, PLAIN)),
        mean_target("plain buffers, geometric mean of the ratios", 2, shm, PLAIN),
        small.verdict("allreduce of 8 B on 2 ranks / flag exchange"),
        ratio_target("more ranks than cores, ratio at the smallest size", 2,
                     [found for found in rows_of(crowded, PLAIN + SHARED)
                      if found[1] is smallest(found[0])]),
        stalls.verdict("more ranks than cores, longest operation of the smallest size in ms"),
        gloo_target("Gloo / whorl up to 1 KiB", 100, shm, lambda size: 0 < size <= 1024),
        gloo_target("Gloo / whorl from 1 MiB", 10, shm, lambda size: size >= M),
        bound_target("TCP between hosts, time / bound from 8 MiB", 1.1, hosts, PLAIN,
                     lambda size: size >= 8 * M),
        ratio_target("TCP between hosts, ratio at every size", 1.4, rows_of(hosts, PLAIN)),
        creation.verdict("creation of a communicator of 8 ranks in ms"),
    ]
