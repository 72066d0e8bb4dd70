"""Outcomes of the ranks in one recorded run."""
import dataclasses
import signal

import faults
import sentences

ERROR, RIGHT, WRONG, KILLED, HANG, APART = "error", "right", "wrong", "killed", "hang", "apart"


@dataclasses.dataclass
class Outcome:
    """What became of one rank from which an answer was expected."""
    rank: int
    kind: str
    naming: object = None   # of an error
    late: bool = False      # whether the error is that of the next call, after a success
    output: str = ""        # state of the buffer after the faulty call
    ms: float = None        # time until its answer
    leaving_ms: float = None
    text: str = ""

    @property
    def label(self):
        """Returns the outcome in a few words."""
        if self.kind == ERROR:
            return ("one call late: " if self.late else "") + name_of(self.naming)
        if self.kind == HANG:
            return "hang after wrong numbers" if self.output in ("wrong", "overrun") else "hang"
        return {RIGHT: "success", WRONG: "success, wrong numbers", KILLED: self.text,
                APART: "cannot join"}[self.kind]


def name_of(naming):
    if naming.full:
        return "error, named"
    if naming.rank == sentences.WRONG:
        return "error, names the wrong rank"
    if naming.rank == sentences.NONE:
        return "error, no rank"
    lacking = [word for word, there in (("operation", naming.operation), ("field", naming.field)) if not there]
    return "error, rank but no " + " and no ".join(lacking)


def of_rank(record, rank):
    fault = faults.BY_NAME[record["fault"]]
    calls, left = record["of_rank"][rank]["calls"], record["of_rank"][rank].get("left")
    faulty = [one for one in calls if one["part"] == "faulty"]
    out = Outcome(rank, KILLED, output=faulty[0]["output"] if faulty else "",
                  leaving_ms=left[1] - left[0] if left else None)
    failed = next((one for one in calls if "error" in one), None)
    if failed:
        out.kind, out.text, out.ms = ERROR, failed["error"], failed["ms"][1]
        out.naming = sentences.judge(failed["error"], fault, record["count"])
        # In a fault of order, the second call is where the first one should have been.
        out.late = failed is not calls[0]
    elif left:
        good = all(one["output"] == "right" for one in calls)
        out.kind, out.ms = RIGHT if good else WRONG, faulty[-1]["ms"][1]
    elif rank in record["hung"]:
        out.kind = HANG
    else:
        out.text, out.ms = _end_of(record, rank), max(record["done_ms"], 0)
    return out


def _end_of(record, rank):
    exits = record["exits"]
    if exits is None:
        named = f"rank {faults.CULPRIT} " in record["output"]
        return "job killed by its launcher" + (", which names the rank" if named else "")
    code = exits[rank]
    return f"killed by {signal.Signals(-code).name}" if code is not None and code < 0 else f"ended with status {code}"


def of_run(record):
    fault = faults.BY_NAME[record["fault"]]
    if "unready" in record:
        return [Outcome(rank, APART, text=record["unready"]) for rank in range(record["ranks"])]
    return [of_rank(record, rank) for rank in fault.remaining(record["ranks"])]


def last_ms(record):
    """Returns the time until the last rank has answered; None if one has not."""
    times = [one.ms for one in of_run(record)]
    return None if None in times else max(times)


def join_ms(record):
    """Returns the time from the moment when the last rank has come until all have joined; None if
    they have not."""
    if "unready" in record:
        return None
    joined = [one["joined"] for one in record["of_rank"]]
    return max(ended for _, ended in joined) - max(began for began, _ in joined)
