"""What may be done with a Work and its future."""

from __future__ import annotations

import gc
import threading
import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

from ranks import run


def results(rank: int, size: int) -> None:
    tensor = torch.ones(4)
    work = dist.all_reduce(tensor, async_op=True)
    assert work.wait() is True
    assert work.is_completed() and work.exception() is None
    assert work.get_future().done()
    (value,) = work.get_future().value()
    assert value.data_ptr() == tensor.data_ptr() and value.eq(size).all()
    (result,) = work.result()
    assert result.data_ptr() == tensor.data_ptr()
    assert work.wait(timedelta(seconds=5)) is True, "a second wait returns at once"

    outputs = [torch.empty(2) for _ in range(size)]
    value = dist.all_gather(outputs, torch.full((2,), float(rank)), async_op=True).get_future().wait()
    assert len(value) == size and value[-1].eq(size - 1).all()
    assert dist.barrier(async_op=True).wait()


def test_results() -> None:
    run(2, results)


def without_wait(rank: int, size: int) -> None:
    """The threads of the group carry operations out that nobody waits for."""
    tensor = torch.ones(4)
    work = dist.all_reduce(tensor, async_op=True)
    deadline = time.monotonic() + 10
    while not work.is_completed():
        assert time.monotonic() < deadline
        time.sleep(0.001)
    assert tensor.eq(size).all()
    work.synchronize()


def test_without_wait() -> None:
    run(2, without_wait)


def chained(rank: int, size: int) -> None:
    # As PowerSGD does: a callback starts a further operation and waits for it.
    def again(future: torch.futures.Future) -> torch.Tensor:
        tensor = future.value()[0]
        return dist.all_reduce(tensor, async_op=True).get_future().wait()[0]

    # One at a time: callbacks run when they can, so with several the ranks might issue their
    # operations in different orders.
    for _ in range(60):
        future = dist.all_reduce(torch.ones(8), async_op=True).get_future()
        future = future.then(again).then(lambda done: done.value() + 1)
        assert future.wait().eq(size * size + 1).all()


def test_chained_futures() -> None:
    run(2, chained)


def callback_error(rank: int, size: int) -> None:
    def broken(_: torch.futures.Future) -> None:
        raise KeyError("mine")

    future = dist.all_reduce(torch.ones(2), async_op=True).get_future().then(broken)
    with pytest.raises(Exception, match="mine"):
        future.wait()
    dist.barrier()


def test_error_in_a_callback() -> None:
    run(2, callback_error)


def dropped(rank: int, size: int) -> None:
    for i in range(50):
        dist.all_reduce(torch.full((100_000,), float(i)), async_op=True)
        if i % 10 == 0:
            gc.collect()
    kept = torch.ones(3)
    dist.all_reduce(kept)
    assert kept.eq(size).all(), "the operations before it ran in order"


def test_dropped() -> None:
    run(2, dropped)


def order(rank: int, size: int) -> None:
    tensor = torch.ones(1000)
    works = [dist.all_reduce(tensor, async_op=True) for _ in range(10)]
    works[-1].wait()
    assert tensor.eq(float(size) ** 10).all()
    assert all(work.is_completed() for work in works)
    # Different kinds, waited for backwards.
    a, b, c = torch.full((3,), float(rank)), torch.ones(5), torch.empty(size * 2)
    works = [dist.broadcast(a, 1, async_op=True), dist.all_reduce(b, async_op=True),
             dist.all_gather_into_tensor(c, torch.full((2,), float(rank)), async_op=True)]
    for work in reversed(works):
        work.wait()
    assert a.eq(1).all() and b.eq(size).all() and c[-1] == size - 1


def test_order() -> None:
    run(3, order)


def overlap(rank: int, size: int) -> None:
    """The call returns although the other rank is late, and the Python thread goes on."""
    if rank == 0:
        time.sleep(0.5)
    tensor = torch.ones(4)
    start = time.monotonic()
    work = dist.all_reduce(tensor, async_op=True)
    assert time.monotonic() - start < 0.4
    ticks = 0
    if rank == 1:
        waiter = threading.Thread(target=work.wait)
        waiter.start()
        while waiter.is_alive():
            ticks += 1
            time.sleep(0.001)
        waiter.join()
        assert ticks > 20, "wait() releases the interpreter's lock"
    work.wait()
    assert tensor.eq(size).all()


def test_overlap() -> None:
    run(2, overlap)


def timed_wait(rank: int, size: int) -> None:
    if rank == 0:
        time.sleep(1.0)
    tensor = torch.ones(4)
    work = dist.all_reduce(tensor, async_op=True)
    if rank == 1:
        with pytest.raises(RuntimeError, match="was not complete after the 100 ms"):
            work.wait(timedelta(milliseconds=100))
        assert not work.is_completed()
    work.wait()
    assert tensor.eq(size).all(), "the operation went on"


def test_timed_wait() -> None:
    run(2, timed_wait)


def timed_wait_for_several(rank: int, size: int) -> None:
    """The timeout is that of the whole: parts that are complete within it each do not make it longer."""
    if rank == 0:
        for _ in range(4):
            time.sleep(0.7)
            dist.send(torch.ones(1), 1)
        return
    with dist._coalescing_manager(device=torch.device("cpu"), async_ops=True) as manager:
        for _ in range(4):
            dist.irecv(torch.empty(1), 0)
    start = time.monotonic()
    with pytest.raises(RuntimeError, match="was not complete after the 1000 ms"):
        manager.works[0].wait(timedelta(seconds=1))
    assert time.monotonic() - start < 2
    manager.wait()


def test_timed_wait_for_several() -> None:
    run(2, timed_wait_for_several)


def long_timeouts(rank: int, size: int) -> None:
    """Times that no clock can count are not over at once."""
    ages = timedelta(days=400 * 365)
    if rank == 0:
        time.sleep(0.3)
    assert dist.all_reduce(torch.ones(1), async_op=True).wait(ages)
    dist.group.WORLD._get_backend(torch.device("cpu")).monitored_barrier(ages)
    group = dist.new_group(timeout=ages)
    if rank == 0:
        time.sleep(0.3)
        dist.send(torch.ones(1), 1, group=group)
    else:
        assert dist.recv(torch.empty(1), group=group) == 0
    for none in (timedelta(0), timedelta.max):
        with pytest.raises(ValueError, match="the timeout of a process group is"):
            dist.new_group(timeout=none)


def test_long_timeouts() -> None:
    run(2, long_timeouts)


def own_timeout(rank: int, size: int) -> float:
    dist.all_reduce(torch.ones(3))
    start = time.monotonic()
    if rank == 1:
        options = dist.AllreduceOptions()
        options.timeout = timedelta(seconds=1)
        with pytest.raises(RuntimeError):
            dist.group.WORLD.allreduce([torch.ones(3)], options).wait()
    else:
        time.sleep(3)
        with pytest.raises(RuntimeError):
            for _ in range(10):  # what the other had sent before it gave up may still complete
                dist.all_reduce(torch.ones(3))
    return time.monotonic() - start


def test_timeout_of_one_operation() -> None:
    waited = run(2, own_timeout, seconds=30)
    assert 0.5 < waited[1] < 10


def several_threads(rank: int, size: int) -> None:
    groups = [dist.new_group(list(range(size))) for _ in range(4)]
    failures = []

    def work(index: int) -> None:
        try:
            for _ in range(30):
                tensor = torch.full((257,), float(index))
                dist.all_reduce(tensor, group=groups[index])
                assert tensor.eq(index * size).all()
        except Exception as error:  # noqa: BLE001  # reported below
            failures.append(error)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(len(groups))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures


def test_groups_in_several_threads() -> None:
    run(2, several_threads)


def profile(rank: int, size: int) -> list[str]:
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as profiler

    with profiler(activities=[ProfilerActivity.CPU]) as trace:
        dist.all_reduce(torch.ones(3), async_op=True).wait()
        dist.barrier()
    return [event.name for event in trace.events()]


def test_profile_shows_operations() -> None:
    names = run(2, profile)[0]
    assert "whorl:all_reduce" in names and "whorl:barrier" in names
