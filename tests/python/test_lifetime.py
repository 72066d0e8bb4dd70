"""Memory lives as long as an operation on it, whatever the program drops, and no longer."""

from __future__ import annotations

import gc
import os
import signal
import time
import weakref
from pathlib import Path

import numpy as np
import pytest

import whorl
from ranks import run, until
from whorl._buffers import buffer_of
from whorl._library import ffi, lib
from whorl._stream import _dropped

HEAP = int(lib.whorlStatHostMemHeap)


def dropped_buffers(comm: whorl.Communicator, turn: Path) -> None:
    rank, stream = comm.rank, whorl.Stream()
    array, out = np.full(100_000, rank + 1.0), np.zeros(100_000)
    array_is_gone, out_is_gone = weakref.ref(array), weakref.ref(out)
    if rank == 0:
        comm.allreduce(array, out=out, stream=stream)
        del array, out
        gc.collect()
        time.sleep(0.1)  # for a defect to show
        assert array_is_gone() is not None and out_is_gone() is not None
        assert not stream.query()
        turn.touch()
        comm.send(np.zeros(1), 1, stream=stream)
    else:
        until(turn.exists)
        comm.allreduce(array, out=out, stream=stream)
        assert (comm.recv(np.ones(1), 0, stream=stream) is not None)
        del array, out
    stream.synchronize()
    gc.collect()
    assert stream.query()
    assert array_is_gone() is None and out_is_gone() is None
    stream.free()


def test_buffers_of_a_stream_are_kept(tmp_path: Path) -> None:
    run(2, dropped_buffers, tmp_path / "turn")


class Interruption(Exception):
    """What the handler of a signal raises."""


def interrupted_issue(comm: whorl.Communicator, turn: Path) -> None:
    """A signal comes right behind the call of the library that has queued an operation."""
    stream, array = whorl.Stream(), np.full(100_000, comm.rank + 1.0)
    if comm.rank == 1:
        until(turn.exists)
        comm.allreduce(array, out=array, stream=stream)
        stream.free()
        return
    gone = weakref.ref(array)

    def handler(number: int, frame: object) -> None:
        raise Interruption

    def allreduce(*arguments: object) -> int:
        result = int(lib.whorlAllReduce(*arguments))
        signal.raise_signal(signal.SIGUSR1)
        return result

    signal.signal(signal.SIGUSR1, handler)
    buffer = buffer_of(array, "a test", "array", True)
    with pytest.raises(Interruption):
        comm._run("a test", allreduce, (buffer.pointer, buffer.pointer, buffer.count, buffer.kind.code, 0),
                  (buffer, buffer), stream)
    del array, buffer
    gc.collect()
    assert gone() is not None and not stream.query()
    turn.touch()
    stream.synchronize()
    gc.collect()
    assert gone() is None
    stream.free()


def test_a_signal_behind_an_operation(tmp_path: Path) -> None:
    run(2, interrupted_issue, tmp_path / "turn")


def many_operations(comm: whorl.Communicator) -> None:
    stream = whorl.Stream()
    gone = 0

    def count(_: object) -> None:
        nonlocal gone
        gone += 1

    watched = []
    for _ in range(500):  # without a wait: what is complete is dropped all the same
        array = np.ones(1000)
        watched.append(weakref.ref(array, count))
        comm.allreduce(array, out=array, stream=stream)
        del array
        time.sleep(0.0005)
    until(lambda: stream.query())
    assert gone == 500
    stream.free()


def test_a_busy_stream_keeps_little() -> None:
    run(2, many_operations)


def dropped_stream(comm: whorl.Communicator, turn: Path) -> None:
    array = np.full(1000, comm.rank + 1.0)
    if comm.rank == 1:
        until(turn.exists)
    stream = whorl.Stream()
    comm.allreduce(array, out=array, stream=stream)
    handle = stream._handle
    del stream
    gc.collect()
    if comm.rank == 0:
        whorl.Stream()  # which looks for streams that are done
        assert [kept.handle for kept in _dropped] == [handle]  # with the operation under way
        turn.touch()
    comm.barrier()  # behind the operation of the stream
    assert (array == 3).all()
    until(lambda: whorl.Stream() is not None and not _dropped)


def test_a_stream_may_be_dropped(tmp_path: Path) -> None:
    run(2, dropped_stream, tmp_path / "turn")


def group_keeps(comm: whorl.Communicator) -> None:
    other = 1 - comm.rank
    with whorl.group():
        for number in range(20):
            comm.send(np.full(1000, number), other)  # an array that nobody else has
        got = [comm.recv(np.zeros(1000, int), other) for _ in range(20)]
    assert [int(array[999]) for array in got] == list(range(20))


def test_a_group_keeps_buffers() -> None:
    run(2, group_keeps)


def heap_bytes(comm: whorl.Communicator) -> int:
    value = ffi.new("uint64_t*")
    assert lib.whorlCommMemStats(comm._handle, HEAP, value) == 0
    return int(value[0])


def heap(comm: whorl.Communicator) -> None:
    before = heap_bytes(comm)
    arrays = [whorl.mem_alloc(1 << 20, np.uint8) for _ in range(4)]
    assert heap_bytes(comm) >= before + (4 << 20)
    view = arrays[0][10:20]
    arrays.clear()
    gc.collect()
    kept = heap_bytes(comm)
    view[...] = comm.rank
    assert comm.allreduce(view).tolist() == [1] * 10
    del view
    gc.collect()
    assert heap_bytes(comm) < kept
    array = whorl.mem_alloc(1 << 20, np.uint8)
    array[...] = 7
    part = comm.split()
    assert part is not None
    alive = weakref.ref(part)
    child = os.fork()
    if child == 0:  # shares the memory with its parent, and must not free it, nor the communicator
        del array, part
        gc.collect()
        os._exit(0 if alive() is None else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert (comm.allreduce(array, out=array) == 14).all()
    assert part.allreduce(1) == 2


def test_memory_of_the_heap_is_freed() -> None:
    run(2, heap)


def dropped_communicator(comm: whorl.Communicator) -> None:
    part = comm.split()
    assert part is not None and part.allreduce(1) == 2
    alive = weakref.ref(part)
    del part
    gc.collect()
    assert alive() is None
    comm.barrier()


def test_a_communicator_may_be_dropped() -> None:
    run(2, dropped_communicator)
