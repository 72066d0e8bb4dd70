"""Ranks as threads of one process, and threads that share a communicator."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import whorl
from ranks import until
from whorl import _group


def test_ranks_as_threads() -> None:
    unique_id = whorl.unique_id()

    def rank_of(rank: int) -> float:
        with whorl.Communicator(unique_id, 3, rank, name="threads") as comm:
            for number in range(200):
                total = comm.allreduce(np.full(100, number + rank))
                assert (total == 3 * number + 3).all()
            return float(comm.allreduce(rank))

    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(rank_of, range(3))) == [3.0] * 3


def test_ranks_that_meet_at_an_address() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"

    def rank_of(rank: int) -> int:
        with whorl.Communicator.from_address(address, 2, rank, timeout=30) as comm:
            return int(comm.allreduce(rank))

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(rank_of, range(2))) == [1, 1]


def test_one_thread_for_all_ranks() -> None:
    comms = whorl.init_all(3)
    with whorl.group():
        results = [comm.allreduce(np.array([comm.rank])) for comm in comms]
    assert [int(result[0]) for result in results] == [3, 3, 3]
    streams = [whorl.Stream() for _ in comms]
    results = [comm.allgather(comm.rank, stream=stream) for comm, stream in zip(comms, streams)]
    for result, stream in zip(results, streams):
        stream.synchronize()
        assert result.tolist() == [0, 1, 2]
    for comm in comms:
        comm.free()


def test_the_interpreter_goes_on_during_a_wait() -> None:
    first, second = whorl.init_all(2)
    turns = 0
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(first.allreduce, 1)
        deadline = time.monotonic() + 0.3
        while time.monotonic() < deadline:
            turns += 1
        assert not waiting.done() and turns > 100
        assert second.allreduce(1) == 2 == waiting.result()
    first.free()
    second.free()


def test_two_threads_in_one_communicator() -> None:
    first, second = whorl.init_all(2)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(first.allreduce, 1)
        time.sleep(0.2)
        with pytest.raises(whorl.UsageError, match="another thread is inside a call on this communicator"):
            first.barrier()
        calls: list[Callable[[], object]] = [first.split, first.shrink, first.free, lambda: first.set_timeout(1),
                                             lambda: first.scaled_sum(2, "float32")]
        for call in calls:
            with pytest.raises(whorl.UsageError, match="another thread is inside a call on this communicator"):
                call()
        second.allreduce(1)
        assert waiting.result() == 2
    first.free()
    second.free()


def test_a_group_and_a_thread_in_one_communicator() -> None:
    first, second = whorl.init_all(2)

    called = threading.Event()

    def exchange(comm: whorl.Communicator) -> float:
        got = np.zeros(1)
        with whorl.group():
            comm.send(np.full(1, comm.rank + 1.0), 1 - comm.rank)
            comm.recv(got, 1 - comm.rank)
            called.set()
        return float(got[0])

    def is_in_use() -> bool:
        return repr(first._use).startswith("<locked")

    busy = "another thread is inside a call on this communicator"
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(exchange, first)
        assert called.wait(20)  # then only the end of the group uses the communicator
        until(is_in_use)
        with pytest.raises(whorl.UsageError, match=busy):
            first.barrier()
        assert exchange(second) == 1 and waiting.result() == 2
        waiting = pool.submit(lambda: first.allreduce(1))
        with pytest.raises(whorl.UsageError, match=busy), whorl.group():
            second.allreduce(5)
            until(is_in_use)
            _group.keep(first, None, None)  # as a call of the group does that came before the other thread's
        assert second.allreduce(1) == 2 == waiting.result()
    first.free()
    second.free()


def test_abort_by_another_thread() -> None:
    first, second = whorl.init_all(2)
    timer = threading.Timer(0.3, first.abort)
    timer.start()
    with pytest.raises(whorl.Error, match="rank 0 .* has called whorlCommAbort"):
        first.allreduce(1)
    with pytest.raises(whorl.Error):
        for _ in range(2):  # rank 0 may have sent its part of the first
            second.allreduce(1)
    assert isinstance(second.error, whorl.Error)
    second.free()
    timer.join()


def test_revoke_by_another_thread() -> None:
    comms = whorl.init_all(2)
    timer = threading.Timer(0.3, comms[0].revoke)
    timer.start()
    with pytest.raises(whorl.Error, match="rank 0 .* has called whorlCommRevoke"):
        comms[0].allreduce(1)
    timer.join()
    with ThreadPoolExecutor(2) as pool:
        again = list(pool.map(lambda comm: comm.shrink(), comms))
        assert list(pool.map(lambda comm: int(comm.allreduce(1)), again)) == [2, 2]
    for comm in comms + again:
        comm.free()
