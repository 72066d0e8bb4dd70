"""Callbacks of futures that communicate: whatever the timing, each operation meets the one of the other
ranks that belongs to it. All tensors of a test have one shape, so that only the order tells them apart."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from torch.futures import Future

from ranks import DIED, outcomes, run

Then = Callable[[Future], object]


def reduced(value: float) -> torch.Tensor:
    """Started and waited for as PowerSGD does."""
    return dist.all_reduce(torch.full((4,), value), async_op=True).get_future().wait()[0]


def later_receive(rank: int, size: int, limited: bool, source: int | None) -> float:
    """A callback waits for a receive that fails with its own, when the sender dies."""
    if rank == 1:
        dist.send(torch.ones(1), 0)
        os.kill(os.getpid(), signal.SIGKILL)
    first, second, third = torch.ones(1), torch.ones(1), torch.ones(1)
    dist.recv(first, 1)
    works = [dist.irecv(tensor, source) for tensor in (first, second, third)]
    limit = [timedelta(seconds=600)] if limited else []
    start = time.monotonic()
    futures = [
        works[0].get_future().then(lambda _: works[1].wait(*limit)),
        works[1].get_future().then(lambda _: works[2].get_future().wait()),
    ]
    for future in futures:
        with pytest.raises((RuntimeError, dist.DistError)):
            future.wait()
    return time.monotonic() - start


@pytest.mark.parametrize("source", [1, None])
@pytest.mark.parametrize("limited", [False, True])
def test_a_callback_that_waits_for_a_later_receive(limited: bool, source: int | None) -> None:
    results = outcomes(2, later_receive, limited, source, seconds=600, limit=30)
    assert results[1] == (DIED, -signal.SIGKILL)
    assert results[0][0] == "returned" and results[0][1] < 10, results[0]


def later_operation(rank: int, size: int) -> float:
    """A callback waits for an operation that an abort ends together with its own."""
    store = dist.distributed_c10d._get_default_store()
    if rank == 1:
        store.wait(["aborted"], timedelta(seconds=60))
        return 0.0
    works = [dist.all_reduce(torch.ones(1), async_op=True) for _ in range(3)]
    future = works[1].get_future().then(lambda _: works[2].wait())
    time.sleep(0.2)  # so that the first is under way, and the others are not
    start = time.monotonic()
    dist.group.WORLD._get_backend(torch.device("cpu")).abort()
    seconds = time.monotonic() - start
    store.set("aborted", "")
    with pytest.raises((RuntimeError, dist.DistError)):
        future.wait()
    return seconds


def test_a_callback_that_waits_for_a_later_operation() -> None:
    assert run(2, later_operation, seconds=600, limit=30)[0] < 10


def chains(rank: int, size: int, seed: int) -> None:
    """Several chains under way at once, and each rank dawdles elsewhere: before it attaches a callback, so
    that it runs at once on this thread, in callbacks, or between operations."""
    print(f"seed {seed}")
    dawdle = random.Random(1000 * seed + rank)

    def pause() -> None:
        if dawdle.random() < 0.4:
            time.sleep(dawdle.random() * 0.004)

    def first(bucket: int) -> Then:
        def callback(future: Future) -> float:
            assert future.value()[0].eq(100 * bucket * size).all(), ("the program's own", bucket)
            pause()
            value = reduced(100 * bucket + 1)
            assert value.eq((100 * bucket + 1) * size).all(), ("first", bucket, value)
            return 100.0 * bucket
        return callback

    def second(future: Future) -> float:
        pause()
        bucket = future.value()
        value = reduced(bucket + 2)
        assert value.eq((bucket + 2) * size).all(), ("second", bucket, value)
        return bucket

    for _ in range(20):
        futures = []
        for bucket in range(4):
            pause()
            future = dist.all_reduce(torch.full((4,), 100.0 * bucket), async_op=True).get_future()
            pause()
            future = future.then(first(bucket))
            pause()
            futures.append(future.then(second))
        own = torch.full((4,), -1.0)  # the program's, while callbacks are under way
        dist.all_reduce(own)
        assert own.eq(-size).all()
        assert [future.wait() for future in futures] == [100.0 * bucket for bucket in range(4)]


@pytest.mark.parametrize("seed", range(3))
def test_chains(seed: int) -> None:
    run(2, chains, seed)


def test_chains_of_three_ranks() -> None:
    run(3, chains, 7)


def deeper(rank: int, size: int) -> None:
    """Callbacks of what callbacks issue; nobody waits in between."""
    dawdle = random.Random(rank)
    ended: dict[int, Future] = {}

    def link(chain: int, left: int) -> Then:
        def callback(future: Future) -> None:
            time.sleep(dawdle.random() * 0.002)
            assert future.value()[0].eq(size * (10 * chain + left)).all(), (chain, left)
            if left == 0:
                ended[chain].set_result(None)
                return
            work = dist.all_reduce(torch.full((4,), 10.0 * chain + left - 1), async_op=True)
            work.get_future().add_done_callback(link(chain, left - 1))
        return callback

    for _ in range(10):
        for chain in range(3):
            ended[chain] = Future()
            work = dist.all_reduce(torch.full((4,), 10.0 * chain + 3), async_op=True)
            work.get_future().add_done_callback(link(chain, 3))
        for future in ended.values():
            future.wait()


def test_callbacks_of_callbacks() -> None:
    run(2, deeper)


def long_chain(rank: int, size: int) -> None:
    """A chain that goes on for ever takes no more communicators than a short one."""
    done = threading.Event()
    left = [40]

    def callback(future: Future) -> None:
        assert future.value()[0].eq(size).all()
        left[0] -= 1
        if left[0] == 0:
            done.set()
        else:
            dist.all_reduce(torch.ones(4), async_op=True).get_future().add_done_callback(callback)

    dist.all_reduce(torch.ones(4), async_op=True).get_future().add_done_callback(callback)
    assert done.wait(20)


def test_long_chain() -> None:
    run(2, long_chain)


def later_one(rank: int, size: int) -> None:
    """A callback waits for a later operation of the program: its own callback comes afterwards."""
    for i in range(20):
        seen: list[str] = []
        works = [dist.all_reduce(torch.full((4,), float(n)), async_op=True) for n in range(3)]

        def first(_: Future, works: list[dist.Work] = works, seen: list[str] = seen) -> None:
            if i % 2:
                works[2].wait()
            assert works[2].get_future().wait()[0].eq(2 * size).all()
            seen.append("first")

        if (i + rank) % 3 == 0:
            time.sleep(0.002)
        a = works[0].get_future().then(first)
        b = works[2].get_future().then(lambda _, seen=seen: seen.append("second"))
        works[1].wait()
        a.wait()
        b.wait()
        assert seen == ["first", "second"]


def test_waiting_for_a_later_operation() -> None:
    run(2, later_one)


def kinds(rank: int, size: int) -> None:
    future = dist.all_reduce(torch.ones(2), async_op=True).get_future()
    assert isinstance(future, Future)
    assert isinstance(future.then(lambda done: 7), Future)
    assert torch.futures.wait_all([future.then(lambda done: 8), future])[0] == 8
    with dist._coalescing_manager(async_ops=True) as manager:
        tensor = torch.ones(2)
        dist.all_reduce(tensor)
    manager.wait()
    assert tensor.eq(size).all()
    assert future.then(lambda done: reduced(3.0)).wait().eq(3 * size).all()
    # A group in whose callback another one is used.
    other = dist.new_group(list(range(size)))
    value = future.then(lambda done: dist.all_reduce(torch.ones(2), group=other, async_op=True)).wait()
    value.wait()
    assert reduced(1.0).eq(size).all()


def test_kinds_of_futures() -> None:
    run(2, kinds)


def under_way(rank: int, size: int) -> None:
    futures = [dist.all_reduce(torch.full((4,), float(i)), async_op=True).get_future().then(
        lambda done, i=i: reduced(10.0 + i)) for i in range(3)]
    dist.destroy_process_group()  # waits for them
    for i, future in enumerate(futures):
        assert future.wait().eq((10 + i) * size).all()


def test_destroyed_with_callbacks_under_way() -> None:
    run(2, under_way)


def destroyed_inside(rank: int, size: int, kind: str) -> None:
    """Callbacks of later operations, on other threads, wait for the one that destroys the group."""
    seen: list[str] = []

    def first(_: Future) -> None:
        time.sleep(0.3)
        dist.destroy_process_group()
        seen.append("destroyed")

    if kind == "collectives":
        works = [dist.all_reduce(torch.ones(1 << 20), async_op=True) for _ in range(3)]
    elif rank == 0:
        works = [dist.isend(torch.ones(1 << 20), 1) for _ in range(3)]
    else:
        works = [dist.irecv(torch.empty(1 << 20), 0) for _ in range(3)]
    futures = [work.get_future().then(callback) for work, callback in
               zip(works, [first, lambda _: seen.append("later"), lambda _: None])]
    for future in futures:
        future.wait()
    assert sorted(seen) == ["destroyed", "later"]


@pytest.mark.parametrize("kind", ["collectives", "messages"])
def test_destroyed_in_a_callback(kind: str) -> None:
    run(2, destroyed_inside, kind, limit=40)


def aborted(rank: int, size: int) -> None:
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    assert reduced(1.0).eq(size).all()
    futures = []
    if rank == 0:  # callbacks that wait for operations which the other rank never issues
        for _ in range(3):
            done = dist.all_reduce(torch.ones(4), async_op=True).get_future()
            futures.append(done.then(lambda future: (future.value(), reduced(2.0))))
    else:
        time.sleep(0.5)  # the other has attached its callbacks by then: they do not run on its main thread
        for _ in range(3):
            dist.all_reduce(torch.ones(4))
    dist.barrier()
    start = time.monotonic()
    if rank == 0:
        time.sleep(0.2)
        backend.abort()
        for future in futures:
            with pytest.raises(Exception, match="whorl"):
                future.wait()
        assert time.monotonic() - start < 5


def test_abort_with_callbacks_that_wait() -> None:
    run(2, aborted, limit=40)
