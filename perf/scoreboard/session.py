"""One run: starts the ranks of a library, lets one fail, and collects what all of them report."""
import json
import os
import pathlib
import random
import signal
import subprocess
import time

import faults
from columns import Failure
from intruders import Intruders

ROOT = pathlib.Path(__file__).resolve().parents[2]

READY_S = 30      # for ranks to join
START_NS = 30_000_000  # from the driver's word to the moment when ranks go on
STEP_S = 0.003    # between two looks at the journals
ENDING_S = 2.0    # for processes to end by themselves once their fault is over
MARK = "SCOREBOARD_RUN"


class Journals:
    """What the ranks of a run have written."""

    def __init__(self, folder, ranks):
        self.files = [folder / f"rank-{rank}.jsonl" for rank in range(ranks)]

    def events(self, rank):
        try:
            lines = self.files[rank].read_text().splitlines(keepends=True)
        except OSError:
            return []
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def has(self, rank, event):
        return any(one["event"] == event for one in self.events(rank))

    def pid(self, rank):
        events = self.events(rank)
        return events[0]["pid"] if events else None


def lives(pid):
    """Whether a process runs; one that has ended and waits for its parent does not."""
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def marked(mark):
    """Returns the processes that run and have inherited the run's mark."""
    found = []
    wanted = f"{MARK}={mark}".encode()
    for folder in pathlib.Path("/proc").iterdir():
        if not folder.name.isdigit() or not lives(folder.name):
            continue
        try:
            variables = (folder / "environ").read_bytes().split(b"\0")
            command = (folder / "cmdline").read_bytes().split(b"\0")[0].decode(errors="replace")
        except OSError:
            continue
        if wanted in variables:
            found.append((int(folder.name), os.path.basename(command)))
    return found


def names_in(folder):
    try:
        return set(os.listdir(folder))
    except OSError:
        return set()


class Run:
    """One run of a case with one library. `record()` is what there is to say of it."""

    def __init__(self, column, case, folder, limit_s, shm=True):
        self.column, self.case, self.folder, self.limit_s = column, case, folder, limit_s
        self.fault = case.fault
        self.watch_shm = shm
        self.mark = f"{os.getpid()}.{random.getrandbits(60)}"
        self.journals = Journals(folder, case.ranks)
        self.processes = []
        self.start_ns = self.signal_ns = None
        self.warned = {}    # output file: time of its first warning
        self.intruders = None
        self.done_ns = None  # moment when no remaining rank was waited for any more

    # --- the course of a run ---------------------------------------------------------------------

    def go(self):
        temporary = self.folder / "tmp"
        temporary.mkdir()
        before = names_in("/dev/shm")
        between = None
        if self.fault.kind == faults.INTRUSION:
            self.intruders = Intruders(garbage=self.fault.name == "garbage")
            between = self.intruders.arrive
        try:
            self.processes = self.column.start(self.case, self.folder, {MARK: self.mark, "TMPDIR": str(temporary)},
                                               between)
            unready = self.await_ready()
            self.start_ns = time.monotonic_ns() + START_NS
            hung = [] if unready else self.course()
        finally:
            left = self.clear()
            if self.intruders:
                self.intruders.leave()
        # What is left behind by ranks that had to be killed is no fault of the library.
        left_files = [] if hung or not self.watch_shm else sorted(names_in("/dev/shm") - before)
        left_folders = [] if hung else sorted(names_in(temporary))
        return {**self.record(hung, {"processes": [] if hung else left, "shm": left_files, "tmp": left_folders}),
                **({"unready": unready} if unready else {})}

    def course(self):
        """Lets the ranks begin, one of them fail, and all end. Returns the ranks that still wait at the limit."""
        self.tell("go", self.start_ns)
        self.injure()
        hung = self.await_survivors()
        self.done_ns = time.monotonic_ns()
        self.tell("end", 0)
        self.end()
        return hung

    def tell(self, name, number):
        draft = self.folder / f"{name}.draft"
        draft.write_text(f"{number}\n")
        draft.rename(self.folder / name)

    def await_ready(self):
        """Waits until all ranks have joined and made a good call. Returns why they cannot, if intruders are to blame,
        else ""."""
        intruded = self.fault.kind == faults.INTRUSION
        deadline = time.monotonic() + (self.limit_s if intruded else READY_S)
        joined = self.all_come_to("joined", deadline)
        self.tell("warm", 0)  # so that no rank's deadline includes what another one does before its call
        if joined and self.all_come_to("ready", deadline) and not self.first_errors():
            return ""
        why = " ".join((self.output() + " ".join(self.first_errors())).split())[:400] or "some still wait for others"
        if intruded and self.intruders.sockets:
            return why
        raise Failure(f"{self.column.name}, {self.fault.name}: the ranks did not become ready: {why}")

    def all_come_to(self, event, deadline):
        """Waits until all ranks have written an event. Returns whether they have, before the deadline and the end of
        any process."""
        while not all(self.journals.has(rank, event) for rank in range(self.case.ranks)):
            if time.monotonic() > deadline or any(process.poll() is not None for process in self.processes):
                return False
            time.sleep(STEP_S)
        return True

    def first_errors(self):
        return [one["text"] for rank in range(self.case.ranks) for one in self.journals.events(rank)
                if one["event"] == "call" and one["part"] == "warm up" and not one["ok"]]

    def injure(self):
        """Does what the driver does to the culprit, at a random moment of its operations."""
        if self.fault.offset_ms is not None:
            return
        time.sleep(max(self.start_ns - time.monotonic_ns(), 0) * 1e-9 + random.uniform(0.05, 0.09))
        pid = self.journals.pid(faults.CULPRIT)
        self.signal_ns = time.monotonic_ns()
        os.kill(pid, signal.SIGKILL if self.fault.kind == faults.DEATH else signal.SIGSTOP)
        if self.fault.kind == faults.HARMLESS:
            time.sleep(faults.FREEZE_MS * 1e-3)
            os.kill(pid, signal.SIGCONT)
            time.sleep(0.3)
            self.tell("enough", 0)

    def await_survivors(self):
        """Waits until the remaining ranks have left or their processes are gone; returns those that still wait at
        the limit."""
        waiting = set(self.fault.remaining(self.case.ranks))
        pids = {rank: self.journals.pid(rank) for rank in waiting}
        deadline = time.monotonic() + self.limit_s
        while waiting and time.monotonic() < deadline:
            time.sleep(STEP_S)
            self.look_for_warnings()
            waiting = {rank for rank in waiting if lives(pids[rank]) and not self.journals.has(rank, "left")}
        return sorted(waiting)

    def look_for_warnings(self):
        if self.fault.kind != faults.SILENCE:
            return
        for path in self.folder.glob("output*"):
            if path.name not in self.warned and b"no progress for" in path.read_bytes():
                self.warned[path.name] = time.monotonic_ns()

    def end(self):
        """Lets a stopped culprit go on, and waits for the end of all processes."""
        pid = self.journals.pid(faults.CULPRIT)
        if self.fault.name == "stop" and pid and lives(pid):
            os.kill(pid, signal.SIGCONT)
        deadline = time.monotonic() + ENDING_S
        while time.monotonic() < deadline and any(process.poll() is None for process in self.processes):
            time.sleep(STEP_S)

    def clear(self):
        """Ends what still runs, launchers first, and returns the names of processes that outlive them."""
        for process in self.processes:
            if process.poll() is None:
                process.terminate()
        for process in self.processes:
            try:
                process.wait(1)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        left = marked(self.mark)
        if left:  # daemons of a launcher may need a moment
            time.sleep(0.3)
            left = marked(self.mark)
        for pid, _ in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        return [name for _, name in left]

    # --- its record ------------------------------------------------------------------------------

    def output(self):
        return "\n".join(path.read_text(errors="replace") for path in sorted(self.folder.glob("output*")))

    def since_ns(self):
        """Returns the moment from which time counts: the fault is there, and the others wait."""
        if self.signal_ns is not None:
            return self.signal_ns
        return self.start_ns + int((self.fault.offset_ms or 0) * 1e6)

    def record(self, hung, left):
        exits = [process.returncode for process in self.processes] if len(self.processes) == self.case.ranks else None
        since = self.since_ns()
        out = {"library": self.column.name, "fault": self.fault.name, "ranks": self.case.ranks,
               "count": self.case.count, "hung": hung, "exits": exits, "done_ms": _ms(self.done_ns, since),
               "of_rank": [compact(self.journals.events(rank), since) for rank in range(self.case.ranks)],
               "warnings": [{"file": name, "ms": _ms(at, since)} for name, at in sorted(self.warned.items())],
               "output": self.output()[-1500:].replace(f"{ROOT}/", ""), "left": left,
               "load": round(os.getloadavg()[0], 1)}
        if self.intruders:
            out |= {"port": self.intruders.port, "intruders": len(self.intruders.sockets)}
        return out


def _ms(at_ns, since_ns):
    return None if at_ns is None else round((at_ns - since_ns) * 1e-6, 3)


def compact(events, since_ns):
    """Returns what a rank has written, with milliseconds since the fault: when it `joined` and `left`, from when to
    when, and its `calls`."""
    def both(event):
        return [_ms(event["began_ns"], since_ns), _ms(event["ended_ns"], since_ns)]
    out = {"calls": []}
    for event in events:
        if event["event"] in ("joined", "left"):
            out[event["event"]] = both(event)
        elif event["event"] == "call" and event["part"] != "warm up":
            call = {"part": event["part"], "ms": both(event), "output": event["output"]}
            out["calls"].append(call if event["ok"] else {**call, "error": event["text"]})
    return out
