#!/usr/bin/env python3
"""usage: nccl_random.py [PART…]: operations of random kinds, sizes, types, numbers of ranks and
placements through libnccl.so.2 by ctypes, results compared with numpy bit for bit: the ranks as
threads, as one thread, in a captured graph, and as processes, also with a graph
each; and the 16- and 8-bit floats on the device against the host's kernels. WHORL_GPU_TEST_SEED and
WHORL_GPU_TEST_ROUNDS set seed and number of the draws."""

from __future__ import annotations

import ctypes
import functools
import os
import random
import sys
import threading
from pathlib import Path
from typing import Any

import machine

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "nccl"))

SEED = int(os.environ.get("WHORL_GPU_TEST_SEED", "20"))
ROUNDS = int(os.environ.get("WHORL_GPU_TEST_ROUNDS", "120"))
SUM, PROD, MAX, MIN, AVERAGE = range(5)
# ncclDataType_t by the name of numpy; "bfloat16" is kept in 16-bit whole numbers.
TYPES = {"int8": 0, "uint8": 1, "int32": 2, "uint32": 3, "int64": 4, "uint64": 5, "float16": 6,
         "float32": 7, "float64": 8, "bfloat16": 9}
# ncclDataType_t, bits, and the code of 1.
NARROW = {"float16": (6, 16, 0x3C00), "bfloat16": (9, 16, 0x3F80), "float8e4m3": (10, 8, 0x38),
          "float8e5m2": (11, 8, 0x3C)}
KINDS = ("AllReduce", "ReduceScatter", "AllGather", "Broadcast", "Reduce")


def storage(name: str) -> Any:
    import numpy as np

    return np.dtype("uint16" if name == "bfloat16" else name)


def widen(name: str, array: Any) -> Any:
    """Converts to the type of the arithmetic."""
    import numpy as np

    if name == "bfloat16":
        return (array.astype(np.uint32) << 16).view(np.float32)
    return array.astype(np.float32) if name == "float16" else array


def narrow(name: str, array: Any) -> Any:
    """Rounds once, to the nearest, ties to even."""
    import numpy as np

    if name == "bfloat16":
        bits = array.astype(np.float32).view(np.uint32)
        return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return array.astype(storage(name))


def reduced(name: str, op: int, inputs: list) -> Any:
    """Reduces in the order of the ranks."""
    import numpy as np

    function = {SUM: np.add, PROD: np.multiply, MAX: np.maximum, MIN: np.minimum}[op]
    total = widen(name, inputs[0]).copy()
    with np.errstate(all="ignore"):
        for other in inputs[1:]:
            total = function(total, widen(name, other))
        return narrow(name, total)


class Draw:
    """One operation, the same on all ranks that use the same seed and round."""

    def __init__(self, size: int, seed: str, exact: bool) -> None:
        import numpy as np

        chance = random.Random(seed)
        self.size = size
        self.kind = chance.choice(KINDS)
        self.type = chance.choice(list(TYPES))
        self.op = chance.choice((SUM, PROD, MAX, MIN) if not exact else (SUM, MAX, MIN))
        self.root = chance.randrange(size)
        self.count = chance.choice((0, 1, 3, 17, 1000, 4096, 65_537, chance.randrange(1, 600_000)))
        self.in_place = chance.random() < 0.4
        self.offset = chance.choice((0, 0, 1, 3)) * storage(self.type).itemsize
        blocks = size if self.kind == "ReduceScatter" else 1
        numbers = np.random.default_rng([ord(one) for one in seed])
        whole = exact or np.issubdtype(np.dtype("float32" if self.type == "bfloat16" else self.type),
                                       np.integer)
        self.inputs = []
        for _ in range(size):
            if whole:  # sums are exact in any order and type
                values = numbers.integers(0, 5, self.count * blocks)
                self.inputs.append(narrow(self.type, values.astype(np.float32))
                                   if self.type in ("bfloat16", "float16")
                                   else values.astype(self.type))
            else:
                values = numbers.standard_normal(self.count * blocks)
                self.inputs.append(narrow(self.type, values.astype(np.float32))
                                   if self.type == "bfloat16" else values.astype(self.type))

    def __str__(self) -> str:
        return (f"{self.kind} of {self.count} {self.type}, operator {self.op}, root {self.root}, "
                f"{'in place' if self.in_place else 'out of place'}, offset {self.offset}, "
                f"{self.size} ranks")

    def expected(self, rank: int) -> Any:
        """Returns the expected output; None where it is not defined."""
        import numpy as np

        if self.kind == "AllGather":
            return np.concatenate(self.inputs)
        if self.kind == "Broadcast":
            return self.inputs[self.root]
        if self.kind == "Reduce" and rank != self.root:
            return None
        total = reduced(self.type, self.op, self.inputs)
        if self.kind == "ReduceScatter":
            return total[rank * self.count:(rank + 1) * self.count]
        return total


class Part:
    """Buffers of a rank for an operation."""

    def __init__(self, cuda: Any, draw: Draw, rank: int, stream: Any) -> None:
        import numpy as np

        from driver import Buffer

        self.draw, self.rank, self.stream = draw, rank, stream
        item = storage(draw.type).itemsize
        self.bytes = draw.count * item
        self.mine = np.ascontiguousarray(draw.inputs[rank])
        out = self.bytes * (draw.size if draw.kind == "AllGather" else 1)
        if draw.in_place:
            self.buffers = [Buffer(cuda, max(out, self.mine.nbytes), draw.offset)]
            begin = self.buffers[0].address
            shift = rank * self.bytes
            self.send = begin + (shift if draw.kind == "AllGather" else 0)
            self.recv = begin + (shift if draw.kind == "ReduceScatter" else 0)
        else:
            self.buffers = [Buffer(cuda, self.mine.nbytes, draw.offset), Buffer(cuda, out, draw.offset)]
            self.send, self.recv = (buffer.address for buffer in self.buffers)
        self.cuda = cuda

    def fill(self) -> None:
        if self.mine.nbytes:
            self.cuda.cuMemcpyAsync(self.send, self.mine.ctypes.data, self.mine.nbytes, self.stream)

    def issue(self, nccl: Any, comm: Any) -> None:
        draw, kind = self.draw, TYPES[self.draw.type]
        if draw.kind in ("AllReduce", "ReduceScatter"):
            getattr(nccl, f"nccl{draw.kind}")(self.send, self.recv, draw.count, kind, draw.op, comm,
                                              self.stream)
        elif draw.kind == "AllGather":
            nccl.ncclAllGather(self.send, self.recv, draw.count, kind, comm, self.stream)
        elif draw.kind == "Broadcast":
            nccl.ncclBroadcast(self.send, self.recv, draw.count, kind, draw.root, comm, self.stream)
        else:
            nccl.ncclReduce(self.send, self.recv, draw.count, kind, draw.op, draw.root, comm,
                            self.stream)

    def check(self) -> None:
        import numpy as np

        expected = self.draw.expected(self.rank)
        # Behind a stream that waits, a copy to pageable memory holds up the calls of all threads.
        self.cuda.cuStreamSynchronize(self.stream)
        if expected is not None:
            got = np.empty_like(expected)
            if got.nbytes:
                self.cuda.cuMemcpyAsync(got.ctypes.data, self.recv, got.nbytes, self.stream)
            self.cuda.cuStreamSynchronize(self.stream)
            # A NaN has many bit patterns.
            wide = [widen(self.draw.type, one) for one in (got, expected)]
            differ = (got != expected) & ~((wide[0] != wide[0]) & (wide[1] != wide[1]))
            assert not differ.any(), (
                f"rank {self.rank}: {self.draw}: {int(differ.sum())} elements differ, the first is "
                f"element {int(differ.argmax())}, {got[differ][0]} instead of {expected[differ][0]}")

    def free(self) -> None:
        for buffer in self.buffers:
            buffer.free()


def begin() -> tuple[Any, Any]:
    from pynccl import Library

    from driver import Driver

    return Driver(), Library(str(machine.need_library("libnccl.so.2")))


def communicators(nccl: Any, size: int) -> Any:
    from pynccl import Comm

    comms = (Comm * size)()
    nccl.ncclCommInitAll(comms, size, (ctypes.c_int * size)(*[0] * size))
    return comms


def as_one_thread(size: int) -> None:
    cuda, nccl = begin()
    comms = communicators(nccl, size)
    streams = [cuda.stream() for _ in range(size)]
    chance = random.Random(SEED)
    for turn in range(ROUNDS):
        # Several operations in one group.
        draws = [Draw(size, f"one {SEED} {turn} {i}", exact=False)
                 for i in range(chance.randrange(1, 4))]
        parts = [[Part(cuda, draw, rank, streams[rank]) for rank in range(size)] for draw in draws]
        for of_draw in parts:
            for part in of_draw:
                part.fill()
        nccl.ncclGroupStart()
        for of_draw in parts:
            for part in of_draw:
                part.issue(nccl, comms[part.rank])
        nccl.ncclGroupEnd()
        for of_draw in parts:
            for part in of_draw:
                part.check()
                part.free()
    for comm in comms:
        nccl.ncclCommDestroy(comm)


def as_threads(size: int) -> None:
    cuda, nccl = begin()
    comms = communicators(nccl, size)
    errors: list[BaseException] = []
    lock = threading.Lock()

    @functools.lru_cache(maxsize=4)
    def drawn(turn: int) -> Draw:
        return Draw(size, f"threads {SEED} {turn}", exact=False)

    def draw_of(turn: int) -> Draw:
        """Returns the draw of a turn, shared by all threads, since a draw for many ranks takes long."""
        with lock:
            return drawn(turn)

    # Freed at the end: that waits for all streams, one of which may wait for a later call of this thread.
    parts: list[list[Part]] = [[] for _ in range(size)]

    def rank_of(rank: int) -> None:
        try:
            cuda.enter()
            stream = cuda.stream()
            for turn in range(ROUNDS):
                part = Part(cuda, draw_of(turn), rank, stream)
                parts[rank].append(part)
                part.fill()
                part.issue(nccl, comms[rank])
                part.check()
        except BaseException as error:  # noqa: BLE001  # raised by the caller
            errors.append(error)
            nccl.raw("ncclCommAbort", comms[rank])

    threads = [threading.Thread(target=rank_of, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    for of_rank in parts:
        for part in of_rank:
            part.free()
    for comm in comms:
        nccl.ncclCommDestroy(comm)


def captured(size: int) -> None:
    """Captures the streams of all ranks in one graph, and launches it several times with other inputs."""
    from driver import Handle

    cuda, nccl = begin()
    comms = communicators(nccl, size)
    streams = [cuda.stream() for _ in range(size)]
    for turn in range(max(4, ROUNDS // 8)):
        draw = Draw(size, f"graph {SEED} {turn}", exact=False)
        parts = [Part(cuda, draw, rank, streams[rank]) for rank in range(size)]
        cuda.cuCtxSynchronize()
        everything = 0  # "global", which torch.cuda.graph uses: strict with all threads
        cuda.cuStreamBeginCapture_v2(streams[0], everything)
        with cuda.event(streams[0]) as fork:
            for stream in streams[1:]:
                cuda.cuStreamWaitEvent(stream, fork, 0)
            nccl.ncclGroupStart()
            for part in parts:
                part.issue(nccl, comms[part.rank])
            nccl.ncclGroupEnd()
            for stream in streams[1:]:
                with cuda.event(stream) as join:
                    cuda.cuStreamWaitEvent(streams[0], join, 0)
        graph, instance = Handle(), Handle()
        cuda.cuStreamEndCapture(streams[0], ctypes.byref(graph))
        cuda.cuGraphInstantiateWithFlags(ctypes.byref(instance), graph, 0)
        for again in range(3):
            draw.inputs = Draw(size, f"graph {SEED} {turn}", exact=False).inputs
            draw.inputs = [one[::-1].copy() if again % 2 else one for one in draw.inputs]
            for part in parts:
                part.mine = draw.inputs[part.rank].copy()
                part.fill()
            cuda.cuCtxSynchronize()
            cuda.cuGraphLaunch(instance, streams[0])
            cuda.cuStreamSynchronize(streams[0])
            for part in parts:
                part.check()
        cuda.cuGraphExecDestroy(instance)
        cuda.cuGraphDestroy(graph)
        for part in parts:
            part.free()
    for comm in comms:
        nccl.ncclCommDestroy(comm)


def processes_meet(rank: int, size: int) -> tuple:
    """Returns the driver, the library and a communicator of all processes."""
    from pynccl import Comm, UniqueId

    from nccl_cupy import meet

    cuda, nccl = begin()
    identity = UniqueId()
    if rank == 0:
        nccl.ncclGetUniqueId(ctypes.byref(identity))
    known = meet(rank, size, machine.rank_and_size()[2], bytes(identity) if rank == 0 else None)
    comm = Comm()
    nccl.ncclCommInitRank(ctypes.byref(comm), size, UniqueId.from_buffer_copy(known), rank)
    return cuda, nccl, comm


def as_process(rank: int, size: int) -> None:
    """Tests ranks as processes. Sums are exact, because another path may add in another order."""
    cuda, nccl, comm = processes_meet(rank, size)
    streams = [cuda.stream() for _ in range(2)]
    for turn in range(ROUNDS // 2):
        part = Part(cuda, Draw(size, f"processes {SEED} {turn}", exact=True), rank, streams[turn % 2])
        part.fill()
        part.issue(nccl, comm)
        part.check()
        part.free()
    nccl.ncclCommDestroy(comm)


def as_process_with_graph(rank: int, size: int) -> None:
    """Tests processes that each replay a graph with other inputs, among other operations."""
    from driver import Handle

    cuda, nccl, comm = processes_meet(rank, size)
    stream = cuda.stream()
    for turn in range(max(4, ROUNDS // 8)):
        draws = [Draw(size, f"graph of processes {SEED} {turn} {i}", exact=True) for i in range(3)]
        parts = [Part(cuda, draw, rank, stream) for draw in draws]
        cuda.cuStreamSynchronize(stream)
        everything = 0  # as torch.cuda.graph
        cuda.cuStreamBeginCapture_v2(stream, everything)
        for part in parts:
            part.issue(nccl, comm)
        graph, instance = Handle(), Handle()
        cuda.cuStreamEndCapture(stream, ctypes.byref(graph))
        cuda.cuGraphInstantiateWithFlags(ctypes.byref(instance), graph, 0)
        for again in range(20):
            for draw, part in zip(draws, parts):
                draw.inputs = [one[::-1].copy() for one in draw.inputs]
                part.mine = draw.inputs[rank].copy()
                part.fill()
            if again % 5 == 4:
                for part in parts:
                    part.issue(nccl, comm)
            else:
                cuda.cuGraphLaunch(instance, stream)
            for part in parts:
                part.check()
        cuda.cuGraphExecDestroy(instance)
        cuda.cuGraphDestroy(graph)
        for part in parts:
            part.free()
    nccl.ncclCommDestroy(comm)


def narrow_floats(size: int) -> None:
    """Tests all codes of 16- and 8-bit floats, and sums, products and averages of many pairs:
    the kernels convert by instructions of the device, and give the bits of the same call on host memory."""
    import numpy as np

    cuda, nccl = begin()
    comms = communicators(nccl, size)
    streams = [cuda.stream() for _ in range(size)]
    random_codes = np.random.default_rng(SEED)
    operators = (SUM, PROD, AVERAGE) if size == 2 else (SUM, PROD)  # a host rounds at each hop
    for name, (kind, bits, one) in NARROW.items():
        codes = np.arange(1 << 16, dtype=np.uint16)
        if bits == 8:
            pairs = [((codes >> 8).astype(np.uint8), (codes & 255).astype(np.uint8))]
        else:
            pairs = [(codes, random_codes.permutation(codes)) for _ in range(16)]
            pairs.append((codes, np.zeros_like(codes)))
        for first, second in pairs:
            for op in operators:
                neutral = np.full_like(first, one if op == PROD else 0)
                inputs = [first, second] + [neutral] * (size - 2)
                for offset in (0, 1):  # offset of the results, in elements
                    on_host = all_reduced(cuda, nccl, comms, streams, inputs, kind, op)
                    on_device = all_reduced(cuda, nccl, comms, streams, inputs, kind, op, offset)
                    for rank in range(size):
                        differ = on_host[rank] != on_device[rank]
                        at = int(differ.argmax())
                        assert not differ.any(), (
                            f"rank {rank} of {size}: operator {op} of {name}, offset {offset}: "
                            f"{int(differ.sum())} elements differ, the first is of "
                            f"{first[at]:#x} and {second[at]:#x}: {on_device[rank][at]:#x} on the "
                            f"device, {on_host[rank][at]:#x} on the host")
    for comm in comms:
        nccl.ncclCommDestroy(comm)


def all_reduced(cuda: Any, nccl: Any, comms: Any, streams: list, inputs: list, kind: int, op: int,
                offset: int | None = None) -> list:
    """Returns the results of the ranks, out of place; on the device if there is an `offset`."""
    import numpy as np

    from driver import Buffer

    results = [np.empty_like(one) for one in inputs]
    buffers = []
    if offset is not None:
        for one, stream in zip(inputs, streams):
            pair = (Buffer(cuda, one.nbytes), Buffer(cuda, one.nbytes, offset * one.itemsize))
            cuda.cuMemcpyAsync(pair[0].address, one.ctypes.data, one.nbytes, stream)
            buffers.append(pair)
    nccl.ncclGroupStart()
    for rank, (one, result) in enumerate(zip(inputs, results)):
        send, recv = ((one.ctypes.data, result.ctypes.data) if offset is None
                      else (buffer.address for buffer in buffers[rank]))
        nccl.ncclAllReduce(send, recv, one.size, kind, op, comms[rank], streams[rank])
    nccl.ncclGroupEnd()
    for rank, result in enumerate(results):
        if offset is not None:
            cuda.cuMemcpyAsync(result.ctypes.data, buffers[rank][1].address, result.nbytes,
                               streams[rank])
        cuda.cuStreamSynchronize(streams[rank])
    for pair in buffers:
        for buffer in pair:
            buffer.free()
    return results


INSIDE = {"one_thread": as_one_thread, "threads": as_threads, "graph": captured,
          "narrow_floats": narrow_floats}
PROCESSES = {"processes": as_process, "processes_graph": as_process_with_graph}


def main() -> None:
    if machine.am_rank():
        rank, size, _ = machine.rank_and_size()
        part = machine.choose({**INSIDE, **PROCESSES})[0]
        if part in PROCESSES:
            PROCESSES[part](rank, size)
        else:
            INSIDE[part](size_of_part())
        return
    machine.need_device()
    machine.need_module("numpy", "the comparison")
    machine.need_library("libnccl.so.2")
    from nccl_cupy import free_ports

    print(f"seed {SEED}, {ROUNDS} rounds")
    results = {}
    for part in machine.choose({**INSIDE, **PROCESSES}):
        for size in (2, 3, 4, 8):
            count = size if part in PROCESSES else 1
            good, _ = machine.run_ranks(
                count, [part], free_ports(), machine.environment(WHORL_GPU_TEST_THREADS=str(size)))
            results[f"{part}, {size} ranks"] = machine.say(f"{part}, {size} ranks", good)
    machine.finish(results)


def size_of_part() -> int:
    return int(os.environ["WHORL_GPU_TEST_THREADS"])


if __name__ == "__main__":
    main()
