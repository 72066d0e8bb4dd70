"""Faults that are tried, and what whorl promises for each."""
import dataclasses

# Ways to go wrong, by what the ranks that are left can expect.
DISAGREEMENT, DEATH, SILENCE, HARMLESS, INTRUSION = "disagreement", "death", "silence", "harmless", "intrusion"

# Deadline of an operation, for whorl (`timeoutMs`) and Gloo (`setTimeout`); the other libraries have none.
DEADLINE_MS = 1500
# Time after the deadline by which a rank that waits has returned.
AFTER_DEADLINE_MS = 500
WARNING_MS = (900, 1500)
FREEZE_MS = 1000
# Rank that is at fault.
CULPRIT = 1


@dataclasses.dataclass(frozen=True)
class Fault:
    name: str
    title: str
    kind: str
    # Name of the field in an error's text, or words of which one tells the cause.
    fields: tuple = ()
    # Milliseconds from `go` to the moment from which time counts; None: the driver's signal.
    offset_ms: float = 0
    sized: bool = True    # whether the number of elements matters
    program: str = ""     # value of the rank's --fault, where it is not the name

    @property
    def word(self):
        return self.program or self.name

    @property
    def slow(self):
        """Whether a good library takes seconds."""
        return self.kind in (SILENCE, HARMLESS)

    def bound_ms(self, where):
        """Returns the time within which whorl promises that all remaining ranks have returned."""
        if self.kind == DISAGREEMENT:
            return 100
        if self.kind == DEATH:
            return 200 if where == "tcp" else 50
        if self.kind == SILENCE:
            return DEADLINE_MS + AFTER_DEADLINE_MS
        return 100 if self.kind == INTRUSION else None  # added to the time of joining

    def remaining(self, ranks):
        """Returns the ranks from which an answer is expected."""
        gone = self.kind in (DEATH, SILENCE)
        return [rank for rank in range(ranks) if not (gone and rank == CULPRIT)]


DIED = ("died", "has destroyed its communicator", "killed", "signal", "exited")
STOPPED = ("may be stopped", "may be dead, stopped", "is stopped")
ABSENT = (*STOPPED[:2], "has not made this call")
FAULTS = (
    Fault("count", "one rank's count differs", DISAGREEMENT, ("count",)),
    Fault("datatype", "one rank's datatype differs", DISAGREEMENT, ("datatype",)),
    Fault("operator", "one rank's reduction operator differs", DISAGREEMENT, ("operator",)),
    Fault("root", "one rank's root differs (broadcast)", DISAGREEMENT, ("root",)),
    Fault("order", "order of calls differs (allreduce, broadcast)", DISAGREEMENT, ("collective",)),
    Fault("absent", "a rank never calls", SILENCE, ABSENT),
    Fault("stop", "SIGSTOP of a rank during operations", SILENCE, STOPPED, offset_ms=None),
    Fault("kill-before", "SIGKILL of a rank between operations", DEATH, DIED, offset_ms=20),
    Fault("kill-during", "SIGKILL of a rank during operations", DEATH, DIED, offset_ms=None),
    Fault("exit", "exit(0) of a rank while others wait", DEATH, DIED, offset_ms=100),
    Fault("quit", "_exit(0) of a rank while others wait", DEATH, DIED, offset_ms=100),
    Fault("freeze", "a rank is frozen for a second, and goes on", HARMLESS, offset_ms=None),
    Fault("idle", "40 idle connections to the port where ranks meet", INTRUSION, sized=False, program="none"),
    Fault("garbage", "40 connections with random bytes there", INTRUSION, sized=False, program="none"),
)
BY_NAME = {fault.name: fault for fault in FAULTS}


@dataclasses.dataclass(frozen=True)
class Case:
    fault: Fault
    ranks: int
    count: int

    def key(self):
        return self.fault.name, self.ranks, self.count
