"""Lower bounds for the time of a collective, from the figures of raw_limits.cc."""
import statistics

import plan

# Bytes up to which a message costs no more than its flag.
SMALL = 1024


def last_level_cache_bytes():
    try:
        with open("/sys/devices/system/cpu/cpu0/cache/index3/size", encoding="utf-8") as file:
            return int(file.read().strip().removesuffix("K")) << 10
    except (OSError, ValueError):
        return 32 << 20


def limits_at(limits, where, state):
    """Returns the medians of the limits measured at `where` with the cores at this distance."""
    values = {}
    for one in limits:
        if one["where"] == where and one["state"] == state:
            for name, value in one["values"].items():
                values.setdefault(name, []).append(value)
    return {name: statistics.median(many) for name, many in values.items()}


def bus_factor(collective, ranks):
    """Returns the bytes that pass each rank's link, per byte of the vector."""
    if collective in ("broadcast", "reduce"):
        return 1
    return (2 if collective == "all_reduce" else 1) * (ranks - 1) / ranks


def traffic(collective, ranks):
    """Returns the bytes read from inputs and written to results on all ranks, per byte of the vector."""
    return {"all_reduce": 2 * ranks, "alltoall": 2 * ranks, "broadcast": ranks}.get(
        collective, ranks + 1)


def between_hosts(collective, ranks):
    """Returns the bytes that cross the cable one way, per byte of the vector."""
    return {"all_reduce": 1, "reduce_scatter": 0.5, "all_gather": 0.5,
            "alltoall": ranks / 4}.get(collective, 1)


def bound_us(table, size, values, cache_bytes):
    """Returns the bound in microseconds; None where nothing is known."""
    collective, ranks = table["collective"], table["ranks"]
    if table["where"] == plan.SHM:
        if table["exchange_ns"] is None or not values:
            return None
        parts = [table["exchange_ns"] / 1e3]
        moved = traffic(collective, ranks) * size
        memory = max((values.get(name, 0) for name in ("copy", "copy_nt", "reduce", "reduce_nt")),
                     default=0)
        if moved > 2 * cache_bytes:
            if not memory:
                return None
            parts.append(moved / memory / 1e3)
        elif ranks > 2 and size > SMALL:
            return None  # the savings of ranks that share a core are not known
        if values.get("cross_read") and ranks == 2:
            parts.append(bus_factor(collective, ranks) * size / values["cross_read"] / 1e3)
        return max(parts)
    if "round_trip_us" not in values or (table["where"] == plan.TCP and ranks != 2):
        return None
    rate = values["one_way" if collective in ("broadcast", "reduce") else "two_way"]
    return max(values["round_trip_us"] / 2,
               between_hosts(collective, ranks) * size / rate / 1e3)


def add_bounds(tables, limits, cache_bytes):
    for table in tables:
        values = limits_at(limits, table["where"], table["state"])
        for row in table["rows"]:
            bound = bound_us(table, row["bytes"], values, cache_bytes)
            if bound is not None:
                row["bound_us"] = bound
