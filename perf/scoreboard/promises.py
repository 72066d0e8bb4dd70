"""What whorl promises, and where recorded runs of it fall short of that."""
import collections
import statistics

import faults
import outcomes
import sentences

LEAVING_MS = 100    # whorlCommAbort() and whorlCommDestroy(), whoever is dead


def shortfalls(record, undisturbed_ms=None):
    """Returns sentences about one run of whorl. `undisturbed_ms` is the time that joining takes without intruders."""
    fault = faults.BY_NAME[record["fault"]]
    if fault.kind == faults.INTRUSION and record["port"] is None:
        return []
    out = []
    by_sentence = collections.defaultdict(list)
    for one in outcomes.of_run(record):
        for sentence in _of_rank(one, fault):
            by_sentence[sentence].append(str(one.rank))
    out += [f"{sentence}, on rank {', '.join(ranks)}" for sentence, ranks in by_sentence.items()]
    bound, last = fault.bound_ms("tcp" if record["library"].endswith("-tcp") else "shm"), outcomes.last_ms(record)
    if fault.kind == faults.INTRUSION and not record["intruders"]:
        out.append("no intruder could connect")
    if "unready" in record:
        pass
    elif fault.kind == faults.INTRUSION:
        added = outcomes.join_ms(record) - (undisturbed_ms or 0)
        if added > bound:
            out.append(f"joining took {added:.0f} ms longer than undisturbed, promised {bound}")
    elif bound and last is not None and last > bound:
        out.append(f"the last rank returned after {last:.0f} ms, promised {bound}")
    if fault.kind == faults.SILENCE:
        out += _of_warnings(record, fault)
    for what, names in record["left"].items():
        if names:
            out.append(f"left behind ({what}): {', '.join(names)}")
    return out


def _of_rank(one, fault):
    if fault.kind in (faults.HARMLESS, faults.INTRUSION):
        if one.kind != outcomes.RIGHT:
            yield f"{one.label} in place of success"
    elif one.kind != outcomes.ERROR:
        yield f"{one.label} in place of an error"
    else:
        if one.late:
            yield "success, and the error at the next call only"
        if not one.naming.full:
            yield outcomes.name_of(one.naming)
        if fault.kind == faults.DISAGREEMENT and not one.late and one.output != "untouched":
            yield f"output {one.output}, promised untouched"
    if one.leaving_ms is not None and one.leaving_ms > LEAVING_MS:
        yield f"leaving took {one.leaving_ms:.0f} ms, promised {LEAVING_MS}"


def _of_warnings(record, fault):
    waiting = len(fault.remaining(record["ranks"]))
    if len(record["warnings"]) < waiting:
        yield f"{len(record['warnings'])} of {waiting} waiting ranks warned"
    for one in record["warnings"]:
        low, high = faults.WARNING_MS
        if not low <= one["ms"] <= high:
            yield f"a warning came after {one['ms']:.0f} ms, promised 1000"
    if record["warnings"] and faults.CULPRIT not in sentences.warned_of(record["output"]):
        yield "no warning names the rank that is waited for"


def undisturbed_ms(records, library, ranks):
    """Returns the median time of joining in runs without intruders; None without such runs."""
    times = [outcomes.join_ms(one) for one in records if one["library"] == library and one["ranks"] == ranks and
             faults.BY_NAME[one["fault"]].kind != faults.INTRUSION]
    return statistics.median(times) if times else None
