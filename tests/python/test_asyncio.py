"""Operations in an event loop: it goes on meanwhile, and buffers live until an operation is complete."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import resource
import time
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import whorl
from ranks import outcomes, run, until


def in_loop(comm: whorl.Communicator, function: Any, *args: Any) -> Any:
    return asyncio.run(function(comm, *args))


def pipes() -> int:
    """Returns the number of ends of pipes that this process has open."""
    count = 0
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the descriptor of the folder
            count += os.readlink(f"/proc/self/fd/{name}").startswith("pipe:")
    return count


async def all_operations(comm: whorl.Communicator) -> None:
    rank, size = comm.rank, comm.size
    mine = np.array([rank, 1.0])
    everyones = np.array([[other, 1.0] for other in range(size)])
    np.testing.assert_array_equal(await comm.allreduce_async(mine), everyones.sum(0))
    np.testing.assert_array_equal(await comm.allgather_async(mine), everyones)
    np.testing.assert_array_equal(await comm.bcast_async(mine.copy(), 1), everyones[1])
    np.testing.assert_array_equal(await comm.reduce_scatter_async(mine), [everyones.sum(0)[rank]])
    np.testing.assert_array_equal(await comm.alltoall_async(mine), everyones[:, rank])
    reduced, gathered = await asyncio.gather(comm.reduce_async(mine, "max", 1), comm.gather_async(mine, 0))
    assert (reduced is None) == (rank != 1) and (gathered is None) == (rank != 0)
    part = await comm.scatter_async(everyones if rank == 0 else None, out=np.zeros(2))
    np.testing.assert_array_equal(part, everyones[rank])
    if rank == 0:
        await comm.send_async(mine, 1)
    else:
        assert (await comm.recv_async(np.zeros(2), 0)).tolist() == [0, 1]
    await comm.barrier_async()
    futures = [comm.allreduce_async(np.full(10, number)) for number in range(100)]
    for number, future in reversed(list(enumerate(futures))):  # issued in order, awaited in another
        assert (await future)[0] == size * number


def test_all_operations() -> None:
    run(2, in_loop, all_operations)


async def loop_goes_on(comm: whorl.Communicator, turn: Path) -> None:
    if comm.rank == 1:
        until(turn.exists)
    turns, array = 0, np.ones(100_000)
    gone = weakref.ref(array)
    future = comm.allreduce_async(array, out=array)
    del array
    while not future.done():
        turns += 1
        gc.collect()
        assert gone() is not None
        if turns == 20:
            turn.touch()
        await asyncio.sleep(0.01)
    if comm.rank == 0:
        assert turns >= 20
    assert (await future)[0] == 2
    stream = whorl.Stream()
    result = comm.allreduce(np.ones(5), stream=stream)
    await stream.synchronized()
    assert result.tolist() == [2] * 5
    stream.free()


def test_the_loop_goes_on(tmp_path: Path) -> None:
    run(2, in_loop, loop_goes_on, tmp_path / "turn")


async def cancelled(comm: whorl.Communicator, turn: Path) -> None:
    if comm.rank == 1:
        until(turn.exists)
    total = np.zeros(1)
    future = comm.allreduce_async(np.ones(1), out=total)
    if comm.rank == 0:
        future.cancel()
        with pytest.raises(asyncio.CancelledError):
            await future
        turn.touch()
    await comm.barrier_async()  # behind the operation, which nothing has cancelled
    assert total[0] == 2
    files = len(os.listdir("/proc/self/fd"))
    for _ in range(50):
        await comm.barrier_async()
    assert len(os.listdir("/proc/self/fd")) <= files + 2


def test_a_cancelled_future(tmp_path: Path) -> None:
    run(2, in_loop, cancelled, tmp_path / "turn")


async def child_of_fork(comm: whorl.Communicator, turn: Path) -> None:
    """A child that is made while an operation is under way has a copy of the pipe, and must not keep it open."""
    if comm.rank == 1:
        until(turn.exists)
    future = comm.allreduce_async(np.ones(1))
    child = os.fork()
    if child == 0:
        time.sleep(60)
        os._exit(0)
    turn.touch()
    try:
        assert await asyncio.wait_for(future, 20) == 2
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)


def test_a_child_of_fork(tmp_path: Path) -> None:
    run(2, in_loop, child_of_fork, tmp_path / "turn")


async def without_descriptors(comm: whorl.Communicator) -> None:
    """Operations are issued, and awaited, where the process cannot have a pipe."""
    assert await comm.allreduce_async(1) == 2  # has all that the first operation of a communicator makes
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, before[1]))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            os.pipe()
        turns, future = 0, comm.allreduce_async(np.ones(5))
        if comm.rank == 1:
            await asyncio.sleep(0.1)
        await comm.barrier_async()
        assert (await future).tolist() == [2] * 5
        if comm.rank == 0:
            future = comm.allreduce_async(3)
            while not future.done():
                turns += 1
                await asyncio.sleep(0.001)
            assert turns > 2, "the loop goes on"
        else:
            await asyncio.sleep(0.2)
            future = comm.allreduce_async(3)
        assert await future == 6
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_without_descriptors() -> None:
    run(2, in_loop, without_descriptors)


async def failing(comm: whorl.Communicator) -> str:
    if comm.rank == 1:
        os.kill(os.getpid(), 9)
    with pytest.raises(whorl.RemoteError) as error:
        await comm.allreduce_async(np.ones(1))
    return str(error.value)


def test_an_error_is_raised_by_the_future() -> None:
    (what, text), (died, _) = outcomes(2, in_loop, failing)
    assert (what, died) == ("returned", "died"), text
    assert "rank 1" in text


async def aborted(comm: whorl.Communicator, turn: Path) -> None:
    if comm.rank == 0:
        future = comm.allreduce_async(np.ones(1))
        comm.abort()  # and drops the stream before the future has looked at its operation
        turn.touch()
        with pytest.raises(whorl.Error, match="whorlCommAbort"):
            await future
    else:
        until(turn.exists)


def test_abort_is_the_error_of_its_futures(tmp_path: Path) -> None:
    run(2, in_loop, aborted, tmp_path / "turn")


def unfinished(comm: whorl.Communicator, turn: Path) -> None:
    """Ends the loop, and the program, while rank 1 never comes: nothing hangs, and nothing crashes."""
    if comm.rank == 0:
        async def begin() -> None:
            comm.allreduce_async(np.ones(1))

        before = pipes()
        asyncio.run(begin())
        gc.collect()
        assert pipes() == before + 1  # which ends the operation, and is closed then
        comm.abort()
        until(lambda: pipes() == before)
        turn.touch()
    else:
        until(turn.exists)


def test_an_operation_that_nobody_awaits(tmp_path: Path) -> None:
    results = outcomes(2, unfinished, tmp_path / "turn")
    assert results[0] == ("returned", None), results


def test_without_a_loop() -> None:
    with whorl.init() as comm, pytest.raises(RuntimeError, match="no running event loop"):
        comm.allreduce_async(np.ones(1))


def test_within_a_group() -> None:
    """A group begins its operations at its end, so nothing in it can wait for them."""

    async def refused(comm: whorl.Communicator) -> None:
        stream = whorl.Stream()
        refuses = pytest.raises(whorl.UsageError, match="cannot be used within a group")
        with whorl.group():
            result = comm.allreduce(np.ones(3), stream=stream)
            for call in (lambda: comm.allreduce_async(1), comm.barrier_async, stream.synchronize, stream.synchronized,
                         stream.free):
                with refuses:
                    call()
        await stream.synchronized()
        assert result.tolist() == [1, 1, 1] and await comm.allreduce_async(2) == 2
        stream.free()

    with whorl.init() as comm:
        asyncio.run(refused(comm))
