#!/usr/bin/env python3
"""usage: client.py LIBRARY [SCENARIO]: a ctypes client of NCCL on four processes.

Without a scenario all of them run. Each rank is a process of its own; the id travels in a file.
Results are compared with plain Python numbers that are exact in every datatype."""
import argparse
import ctypes
import os
import pathlib
import subprocess
import sys
import tempfile
import time

from element_types import FLOAT32, TYPES
from later_releases import device_api_and_encryption, options_of_calls
from pynccl import Comm, Config, NcclError, SimInfo, UniqueId
from rank import (
    AVG,
    DEADLINE_S,
    IN_PROGRESS,
    INVALID_ARGUMENT,
    INVALID_USAGE,
    MAX,
    MIN,
    PROD,
    RANKS,
    SUM,
    Rank,
    buffer,
    expect,
    fails,
    reference,
)


def every_type_and_operator(self: Rank) -> None:
    """Tests AllReduce, Reduce, ReduceScatter of every datatype with every operator, also in place."""
    count = 24
    for element in TYPES:
        for op in (SUM, PROD, MAX, MIN, AVG):
            inputs = [[1 + (i + r) % 2 for i in range(count)] for r in range(RANKS)]
            wanted = reference(op, inputs, element)
            what = f"{element.name}, operator {op}"
            expect(self.all_reduce(inputs[self.rank], element, op), wanted, f"all_reduce {what}")
            mine = buffer(element, inputs[self.rank])
            self.nccl.ncclAllReduce(mine, mine, count, element.number, op, self.comm, None)
            expect(element.decode(mine.raw), wanted, f"all_reduce in place {what}")

            out = buffer(element, [1] * count) if self.rank == 2 else None
            self.nccl.ncclReduce(buffer(element, inputs[self.rank]), out, count, element.number, op,
                                 2, self.comm, None)
            if out is not None:
                expect(element.decode(out.raw), wanted, f"reduce {what}")

            block = count // RANKS
            whole = buffer(element, inputs[self.rank])
            part = ctypes.addressof(whole) + self.rank * block * element.size
            self.nccl.ncclReduceScatter(whole, part, block, element.number, op, self.comm, None)
            expect(element.decode(ctypes.string_at(part, block * element.size)),
                   wanted[self.rank * block:(self.rank + 1) * block], f"reduce_scatter {what}")


def data_movement(self: Rank) -> None:
    """Tests AllGather, Broadcast, Bcast, AlltoAll, Gather, Scatter of every datatype."""
    count = 5
    for element in TYPES:
        name, size = element.name, element.size
        blocks = [[(r + i) % 4 for i in range(count)] for r in range(RANKS)]
        flat = [value for block in blocks for value in block]
        mine = buffer(element, blocks[self.rank])
        everything = buffer(element, [0] * count * RANKS)
        self.nccl.ncclAllGather(mine, everything, count, element.number, self.comm, None)
        expect(element.decode(everything.raw), flat, f"all_gather {name}")
        in_place = buffer(element, [0] * (count * self.rank) + blocks[self.rank] +
                          [0] * (count * (RANKS - 1 - self.rank)))
        self.nccl.ncclAllGather(ctypes.addressof(in_place) + self.rank * count * size, in_place,
                                count, element.number, self.comm, None)
        expect(element.decode(in_place.raw), flat, f"all_gather in place {name}")

        for root in range(RANKS):
            out = buffer(element, [0] * count)
            self.nccl.ncclBroadcast(mine if self.rank == root else None, out, count, element.number,
                                    root, self.comm, None)
            expect(element.decode(out.raw), blocks[root], f"broadcast {name}")
            again = buffer(element, blocks[self.rank])
            self.nccl.ncclBcast(again, count, element.number, root, self.comm, None)
            expect(element.decode(again.raw), blocks[root], f"bcast {name}")
            gathered = buffer(element, [0] * count * RANKS) if self.rank == root else None
            self.nccl.ncclGather(mine, gathered, count, element.number, root, self.comm, None)
            if gathered is not None:
                expect(element.decode(gathered.raw), flat, f"gather {name}")
            self.nccl.ncclScatter(gathered, out, count, element.number, root, self.comm, None)
            expect(element.decode(out.raw), blocks[self.rank], f"scatter {name}")

        sent = buffer(element, [(self.rank + r) % 4 for r in range(RANKS)])
        received = buffer(element, [0] * RANKS)
        self.nccl.ncclAlltoAll(sent, received, 1, element.number, self.comm, None)
        expect(element.decode(received.raw), [(r + self.rank) % 4 for r in range(RANKS)],
               f"alltoall {name}")


def groups_and_transfers(self: Rank) -> None:
    """Tests a ring of sends and receives, nested groups, an all-gather of unequal parts, streams."""
    nccl, element, length = self.nccl, FLOAT32, 100_000
    right, left = (self.rank + 1) % RANKS, (self.rank - 1) % RANKS
    sent, out = buffer(element, [self.rank] * length), buffer(element, [0] * length)
    nccl.ncclGroupStart()
    nccl.ncclSend(sent, length, element.number, right, self.comm, None)
    nccl.ncclGroupStart()
    nccl.ncclRecv(out, length, element.number, left, self.comm, None)
    nccl.ncclGroupEnd()
    expect(element.decode(out.raw[:8]), [0.0, 0.0], "an inner end of a group issues nothing")
    nccl.ncclGroupEnd()
    expect(element.decode(out.raw), [float(left)] * length, "ring")
    # Without a group, the order of the calls avoids a deadlock.
    token = buffer(element, [7])
    if self.rank == 0:
        nccl.ncclSend(token, 1, element.number, 1, self.comm, None)
    elif self.rank == 1:
        nccl.ncclRecv(token, 1, element.number, 0, self.comm, None)

    counts = [3, 0, 5, 1]
    starts = [sum(counts[:r]) for r in range(RANKS)]
    whole = buffer(element, [self.rank] * sum(counts))
    nccl.ncclGroupStart()
    for root, (start, count) in enumerate(zip(starts, counts)):
        part = ctypes.addressof(whole) + start * element.size
        nccl.ncclBroadcast(part, part, count, element.number, root, self.comm, None)
    nccl.ncclGroupEnd()
    expect(element.decode(whole.raw), [float(r) for r in range(RANKS) for _ in range(counts[r])],
           "all_gather of unequal parts")
    # The default streams of CUDA have the numbers 1 and 2.
    for stream in (None, 1, 2):
        expect(self.all_reduce([1, self.rank], stream=stream), [4.0, 6.0], f"stream {stream}")

    simulated = SimInfo(ctypes.sizeof(SimInfo), 0x74685283, 22809, -1.0)
    untouched = buffer(element, [0])
    nccl.ncclGroupStart()
    nccl.ncclAllReduce(buffer(element, [1]), untouched, 1, element.number, SUM, self.comm, None)
    nccl.ncclGroupSimulateEnd(ctypes.byref(simulated))
    expect(element.decode(untouched.raw), [0.0], "a simulated group issues nothing")
    fails(INVALID_USAGE, nccl.ncclGroupEnd, "ncclGroupEnd", "ncclGroupStart")
    expect(self.all_reduce([1]), [4.0], "after a simulated group")


def operators_and_memory(self: Rank) -> None:
    """Tests PreMulSum, ncclMemAlloc, registrations, windows."""
    nccl, op = self.nccl, ctypes.c_int()
    scalar = ctypes.c_float(self.rank + 1)
    nccl.ncclRedOpCreatePreMulSum(ctypes.byref(op), ctypes.byref(scalar), FLOAT32.number, 1,
                                  self.comm)
    scalar.value = 100
    expect(op.value >= 5, True, "an operator that was made has a number after the built-in ones")
    expect(self.all_reduce([1, 2], op=op.value), [10.0, 20.0], "premulsum")
    fails(INVALID_ARGUMENT, lambda: self.all_reduce([1], TYPES[8], op.value))
    nccl.ncclRedOpDestroy(op.value, self.comm)
    fails(INVALID_ARGUMENT, lambda: nccl.ncclRedOpDestroy(op.value, self.comm))
    for number in (-1, 5, 6, *range(7, 13), 63, 64, 65, 0x7fffffff, op.value):
        fails(INVALID_ARGUMENT, lambda number=number: self.all_reduce([1], op=number), "op")

    memory, handle, window = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    size = 1 << 16
    nccl.ncclMemAlloc(ctypes.byref(memory), size)
    ctypes.memmove(memory, FLOAT32.encode([self.rank] * (size // 4)), size)
    nccl.ncclAllReduce(memory, memory, size // 4, FLOAT32.number, SUM, self.comm, None)
    expect(set(FLOAT32.decode(ctypes.string_at(memory, size))), {6.0}, "memory of ncclMemAlloc")
    nccl.ncclMemFree(memory)

    own = ctypes.create_string_buffer(3 * size)
    nccl.ncclCommRegister(self.comm, own, len(own), ctypes.byref(handle))
    nccl.ncclCommDeregister(self.comm, handle)
    nccl.ncclCommWindowRegister(self.comm, own, len(own), ctypes.byref(window), 0)
    address = ctypes.c_void_p()
    nccl.ncclWinGetUserPtr(self.comm, window, ctypes.byref(address))
    expect(address.value, ctypes.addressof(own), "address of a window")
    nccl.ncclCommWindowDeregister(self.comm, window)
    fails(INVALID_ARGUMENT, lambda: nccl.ncclCommWindowDeregister(self.comm, window), "window")


def more_communicators(self: Rank) -> None:
    """Tests split, shrink, grow, several ids, nonblocking creation, finalize."""
    nccl, child = self.nccl, Comm()
    config = Config(commName=b"halves", netName=b"Socket", maxCTAs=64)
    nccl.ncclCommSplit(self.comm, self.rank % 2, -self.rank, ctypes.byref(child),
                       ctypes.byref(config))
    rank, count = ctypes.c_int(), ctypes.c_int()
    nccl.ncclCommUserRank(child, ctypes.byref(rank))
    nccl.ncclCommCount(child, ctypes.byref(count))
    expect((rank.value, count.value), (0 if self.rank >= 2 else 1, 2), "split by key")
    expect(self.all_reduce([self.rank], comm=child), [2.0 + 2 * (self.rank % 2)], "sum of a part")

    grown, unique_id = Comm(), UniqueId()
    if self.rank % 2 == 0:  # the even ranks, in descending order, and then the odd ones
        root = rank.value == 1
        if root:
            nccl.ncclCommGetUniqueId(child, ctypes.byref(unique_id))
            (self.folder / "grow.draft").write_bytes(bytes(unique_id))
            (self.folder / "grow.draft").rename(self.folder / "grow")
        nccl.ncclCommGrow(child, RANKS, ctypes.byref(unique_id) if root else None, -1,
                          ctypes.byref(grown), None)
    else:
        unique_id = self.exchange_id("grow", False)
        nccl.ncclCommGrow(None, RANKS, ctypes.byref(unique_id), 2 + rank.value,
                          ctypes.byref(grown), None)
    expect(self.all_reduce([1], comm=grown), [4.0], "grown communicator")
    nccl.ncclCommDestroy(grown)
    nccl.ncclCommDestroy(child)

    child = Comm()
    nccl.ncclCommSplit(self.comm, 0 if self.rank == 1 else -1, 0, ctypes.byref(child), None)
    expect(child.value is not None, self.rank == 1, "no color, no communicator")
    nccl.ncclCommDestroy(child)

    if self.rank != 1:
        leaves = (ctypes.c_int * 1)(1)
        nccl.ncclCommShrink(self.comm, leaves, 1, ctypes.byref(child), None, 0)
        expect(self.all_reduce([self.rank], comm=child), [5.0], "shrunk communicator")
        nccl.ncclCommDestroy(child)
    else:
        fails(INVALID_ARGUMENT, lambda: nccl.ncclCommShrink(
            self.comm, (ctypes.c_int * 1)(1), 1, ctypes.byref(child), None, 0), "rank 1")
    expect(self.all_reduce([1]), [4.0], "the parent after shrinking")

    ids = (UniqueId * 2)(self.exchange_id("first", self.rank == 0),
                         self.exchange_id("second", self.rank == 0))
    nccl.ncclCommInitRankScalable(ctypes.byref(child), RANKS, self.rank, 2, ids, None)
    nccl.ncclCommDestroy(child)

    unique_id = self.exchange_id("nonblocking", self.rank == 0)
    code = nccl.raw("ncclCommInitRankConfig", ctypes.byref(child), RANKS, unique_id, self.rank,
                    ctypes.byref(Config(blocking=0)))
    expect(code in (0, IN_PROGRESS), True, f"nonblocking creation returned {code}")
    state, end = ctypes.c_int(IN_PROGRESS), time.monotonic() + DEADLINE_S
    while state.value == IN_PROGRESS and time.monotonic() < end:
        nccl.ncclCommGetAsyncError(child, ctypes.byref(state))
        time.sleep(0.001)
    expect(state.value, 0, "state after a nonblocking creation")
    expect(self.all_reduce([1], comm=child), [4.0], "after a nonblocking creation")
    nccl.ncclCommFinalize(child)
    fails(INVALID_USAGE, lambda: self.all_reduce([1], comm=child))
    nccl.ncclCommDestroy(child)


def errors(self: Rank) -> None:
    """Tests that wrong arguments give a sentence and no effect, and stop a group."""
    nccl, data, out = self.nccl, buffer(FLOAT32, [1]), buffer(FLOAT32, [0])

    def call(count: int = 1, element: int = 7, op: int = SUM, comm: Comm | None = self.comm) -> None:
        nccl.ncclAllReduce(data, out, count, element, op, comm, None)

    for element in (12, 13, 14, 15, 2**31 - 1):
        fails(INVALID_ARGUMENT, lambda element=element: call(element=element), "ncclAllReduce",
              "datatype")
    fails(INVALID_ARGUMENT, lambda: call(element=-1), "ncclInt8")
    fails(INVALID_ARGUMENT, lambda: call(op=7), "op")
    fails(INVALID_ARGUMENT, lambda: call(count=2**62), "count")
    fails(INVALID_ARGUMENT, lambda: call(comm=None), "comm")
    for root in (-1, RANKS):
        fails(INVALID_ARGUMENT, lambda root=root: nccl.ncclBroadcast(data, out, 1, 7, root,
                                                                     self.comm, None), "root")
        fails(INVALID_ARGUMENT, lambda root=root: nccl.ncclSend(data, 1, 7, root, self.comm, None),
              "peer")
    nccl.ncclGroupStart()
    call()
    fails(INVALID_ARGUMENT, lambda: call(element=12))
    fails(INVALID_ARGUMENT, nccl.ncclGroupEnd, "datatype")
    expect(FLOAT32.decode(out.raw), [0.0], "a group with a wrong call issues nothing")
    nccl.ncclGroupStart()
    call()
    child, small = Comm(), Config(size=8)
    nccl.ncclCommSplit(self.comm, 0, 0, ctypes.byref(child), ctypes.byref(small))
    fails(INVALID_ARGUMENT, nccl.ncclGroupEnd, "ncclCommSplit", "NCCL_CONFIG_INITIALIZER")
    fails(INVALID_ARGUMENT, lambda: nccl.ncclCommRevoke(self.comm, 1), "revokeFlags")
    for options in ({"magic": 1}, {"size": 4}, {"blocking": 2}, {"maxCTAs": 0},
                    {"minCTAs": 9, "maxCTAs": 8}, {"splitShare": 5}, {"netName": b"nosuch"}):
        config = Config(**options)
        fails(INVALID_ARGUMENT, lambda config=config: nccl.ncclCommSplit(
            self.comm, 0, 0, ctypes.byref(child), ctypes.byref(config)), "config")
    # Older and newer programs: a shorter structure, and a longer one.
    longer = (ctypes.c_char * 256)()
    ctypes.memmove(longer, ctypes.byref(Config(size=256)), ctypes.sizeof(Config))
    for config in (ctypes.cast(longer, ctypes.POINTER(Config)),
                   ctypes.pointer(Config(size=24, minCTAs=0, splitShare=99))):
        nccl.ncclCommSplit(self.comm, 0, self.rank, ctypes.byref(child), config)
        expect(self.all_reduce([1], comm=child), [4.0], "with a config of another release")
        nccl.ncclCommDestroy(child)
    old = Comm(child.value)
    fails(INVALID_ARGUMENT, lambda: nccl.ncclCommDestroy(old), "destroyed")
    expect(self.all_reduce([1]), [4.0], "the communicator after all that")


def abort(self: Rank) -> None:
    """Tests an abort by rank 3 while the others wait for it: they get an error, and do not hang."""
    nccl = self.nccl
    expect(self.all_reduce([1]), [4.0], "before the abort")
    if self.rank == 3:
        time.sleep(0.1)
        nccl.ncclCommAbort(self.comm)
        return
    try:
        self.all_reduce([1])
        raise AssertionError("a collective without rank 3 succeeded")
    except NcclError as error:
        expect("3" in error.text, True, f"the sentence names the rank: {error.text}")
    state = ctypes.c_int()
    nccl.ncclCommGetAsyncError(self.comm, ctypes.byref(state))
    expect(state.value != 0, True, "state after the abort")
    child, leaves = Comm(), (ctypes.c_int * 1)(3)
    fails(INVALID_USAGE, lambda: nccl.ncclCommShrink(self.comm, leaves, 1, ctypes.byref(child),
                                                     None, 0), "NCCL_SHRINK_ABORT")
    nccl.ncclCommShrink(self.comm, leaves, 1, ctypes.byref(child), None, 1)
    expect(self.all_reduce([1], comm=child), [3.0], "the ranks that remain")
    if self.rank == 0:
        nccl.ncclCommRevoke(child, 0)
    try:
        while True:
            self.all_reduce([1], comm=child)
    except NcclError as error:
        expect("ncclCommRevoke" in error.text or "whorlCommRevoke" in error.text, True, error.text)
    nccl.ncclCommDestroy(child)
    nccl.ncclCommAbort(self.comm)


def options_of_one_rank(self: Rank) -> None:
    """Tests that wrong options of rank 2 are soon an error on all ranks, with its reason."""
    nccl = self.nccl
    expect(self.all_reduce([1]), [4.0], "before wrong options")
    comm, leaves = Comm(), (ctypes.c_int * 1)(3)
    for wrong, words in (({"size": 8}, "NCCL_CONFIG_INITIALIZER"), ({"splitShare": 5}, "splitShare is 5"),
                         ({"minCTAs": 9, "maxCTAs": 8}, "minCTAs is 9, more than")):
        config = Config(**(wrong if self.rank == 2 else {}))
        given = ctypes.byref(comm), ctypes.byref(config)
        unique_id = self.exchange_id(f"refused {words}", self.rank == 0)
        calls = [lambda: nccl.ncclCommInitRankConfig(given[0], RANKS, unique_id, self.rank, given[1]),
                 lambda: nccl.ncclCommSplit(self.comm, 0, 0, *given)]
        if self.rank != 3:
            calls.append(lambda: nccl.ncclCommShrink(self.comm, leaves, 1, *given, 0))
        for call in calls:
            begin = time.monotonic()
            fails(INVALID_ARGUMENT, call, words, *(() if self.rank == 2 else ("rank 2",)))
            expect(time.monotonic() - begin < 20, True, "the others hear of it soon")
    # The others have heard of the last refusal, after which they expect the rank once more.
    expect(self.all_reduce([1]), [4.0], "before an empty list")
    if self.rank != 3:
        begin, count = time.monotonic(), 0 if self.rank == 2 else 1
        words = ["excludeRanksList is empty"] if self.rank == 2 else ["excludeRanksList is empty", "rank 2"]
        fails(INVALID_ARGUMENT, lambda: nccl.ncclCommShrink(self.comm, leaves, count,
                                                            ctypes.byref(comm), None, 0), *words)
        expect(time.monotonic() - begin < 20, True, "the others hear of an empty list soon")
    expect(self.all_reduce([1]), [4.0], "after wrong options")


SCENARIOS = {scenario.__name__: scenario
             for scenario in (every_type_and_operator, data_movement, groups_and_transfers,
                              operators_and_memory, more_communicators, errors, abort,
                              options_of_calls, options_of_one_rank, device_api_and_encryption)}


def work(rank: int, folder: pathlib.Path, scenario: str) -> None:
    """Runs a scenario as the process of one rank."""
    self = Rank(rank, folder)
    SCENARIOS[scenario](self)
    if scenario != "abort":
        self.nccl.ncclCommDestroy(self.comm)


def launch(library: pathlib.Path, scenario: str) -> int:
    """Runs the ranks; returns the worst exit status."""
    environment = {**os.environ, "VLLM_NCCL_SO_PATH": str(library)}
    with tempfile.TemporaryDirectory() as folder:
        ranks = [subprocess.Popen([sys.executable, __file__, str(library), scenario, "--rank",
                                   str(rank), "--folder", folder], env=environment)
                 for rank in range(RANKS)]
        end, status = time.monotonic() + DEADLINE_S, 0
        for rank, process in enumerate(ranks):
            try:
                code = process.wait(max(0.1, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                code = process.wait()
                print(f"{scenario}: rank {rank} did not end within {DEADLINE_S:.0f} s")
            status = max(status, abs(code))
    print(f"{scenario}: {'ok' if status == 0 else 'failed'}", flush=True)
    return status


def main() -> int:
    """Launches the ranks or, with --rank, runs one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("library", type=pathlib.Path)
    parser.add_argument("scenario", nargs="?", choices=SCENARIOS)
    parser.add_argument("--rank", type=int)
    parser.add_argument("--folder", type=pathlib.Path)
    options = parser.parse_args()
    if options.rank is not None:
        work(options.rank, options.folder, options.scenario)
        return 0
    chosen = [options.scenario] if options.scenario else list(SCENARIOS)
    return max(launch(options.library, scenario) for scenario in chosen)


if __name__ == "__main__":
    sys.exit(main())
