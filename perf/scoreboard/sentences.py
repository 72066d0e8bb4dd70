"""What the text of an error says: which rank is at fault, in which operation, and why; and whether that is true."""
import dataclasses
import re

import faults

RANK = r"rank (\d+) \(host [^)]*\)"
TWO_CALLS = re.compile(RANK + r" calls (.+?), " + RANK + r" calls (.+?); they differ in (.+?)\. All ranks")
FIELD = re.compile(r"([a-z ]+?) \((\S+) here, (\S+) there\)")
# Sentences that blame one rank.
BLAME = re.compile(RANK + r" (?:died|has destroyed|hung up|cannot be reached|has called whorlCommAbort|may be|"
                   r"left the)")
WAITS_FOR = re.compile(r"waiting for " + RANK)
ANY_RANK = re.compile(r"\brank[ :=#]*(\d+)", re.I)

RIGHT, WRONG, NONE = "right", "wrong", "none"


@dataclasses.dataclass(frozen=True)
class Naming:
    """What an error names, each truthfully. `rank` is RIGHT, WRONG or NONE."""
    rank: str
    operation: bool
    field: bool

    @property
    def full(self):
        return self.rank == RIGHT and self.operation and self.field


def true_value(fault, rank, count):
    """Returns the value that an error must give for the fault's field of a rank's call."""
    own, others = {"count": (str(count // 2), str(count)), "datatype": ("int32", "float32"),
                   "operator": ("max", "sum"), "root": (str(faults.CULPRIT), "0"),
                   "order": ("broadcast", "allreduce")}[fault.name]
    return own if rank == faults.CULPRIT else others


def judge(text, fault, count):
    """Returns what `text`, the error of a rank, names in a run of `fault` with so many elements."""
    operation = re.search(r"allreduce|broadcast|bcast", text, re.I) is not None
    if found := TWO_CALLS.search(text):
        return _of_two_calls(found, fault, count, operation)
    blamed = [int(rank) for rank in BLAME.findall(text)]
    if not blamed:  # no sentence of whorl
        blamed = [int(rank) for rank in ANY_RANK.findall(text)]
    rank = NONE if not blamed else RIGHT if faults.CULPRIT in blamed else WRONG
    words = [re.escape(word) for word in fault.fields]
    field = re.search(r"\b(?:" + "|".join(words) + r")\b", text) is not None if words else False
    return Naming(rank, operation, field)


def _of_two_calls(found, fault, count, operation):
    here, _, there, _, differences = found.groups()
    ranks = int(here), int(there)
    if fault.kind != faults.DISAGREEMENT or faults.CULPRIT not in ranks:
        return Naming(WRONG, operation, False)
    values = {name.strip(" ,"): (one, other) for name, one, other in FIELD.findall(differences)}
    said = values.get(fault.fields[0])
    if said is None:
        return Naming(RIGHT, operation, False)
    # An error of the next call compares that call with the faulty one of the other rank.
    late = "operation number" in values
    true = tuple(true_value(fault, rank, count) for rank in ranks)
    return Naming(RIGHT, operation, late or said == true)


def warned_of(output):
    """Returns the ranks for which the warnings in a program's output say that it waits."""
    return {int(rank) for line in output.splitlines() if "no progress for" in line
            for rank in WAITS_FOR.findall(line)}
