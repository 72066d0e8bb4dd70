"""Tensors of a device, on a pretended one: values, and what waits for what."""

from __future__ import annotations

import ctypes
import functools
import os
import threading
import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

import pretended
import ranks

# The pretended device is there once a rank has loaded it, which it does before it communicates.
HOW = {"backend": "cpu:whorl,cuda:whorl", "eager": False}
run = functools.partial(ranks.run, **HOW)
outcomes = functools.partial(ranks.outcomes, **HOW)


@pytest.fixture(scope="session")
def module() -> str:
    return pretended.build()


def values(rank: int, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    count = torch.Size(shape).numel()
    return ((torch.arange(count) * 7 + rank * 13) % 31).to(dtype).reshape(shape)


def every_collective(rank: int, size: int, path: str) -> None:
    """Each on the device, and then on the host with the same input."""
    cuda = pretended.load(path)

    def same(function, *tensors: torch.Tensor | list[torch.Tensor]) -> None:
        def moved(value):
            return [moved(one) for one in value] if isinstance(value, list) else cuda.to_device(value)

        def back(value):
            return [back(one) for one in value] if isinstance(value, list) else cuda.to_host(value)

        on_device = [moved(tensor) for tensor in tensors]
        function(*on_device)
        function(*tensors)
        cuda.synchronize(cuda.current_stream())
        for got, expected in zip(back(on_device), tensors):
            torch.testing.assert_close(got, expected, rtol=0, atol=0)

    def zeros(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.zeros(shape, dtype=dtype)

    for dtype in (torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.uint8):
        same(dist.all_reduce, values(rank, 1000, dtype=dtype))
    same(lambda t: dist.all_reduce(t, dist.ReduceOp.AVG), values(rank, 33))
    same(lambda t: dist.all_reduce(t, dist.ReduceOp.MAX), values(rank, 33).half())
    same(dist.all_reduce, values(rank, 6, 5).t())
    same(dist.all_reduce, zeros(0))
    factor = dist._make_nccl_premul_sum(0.5)
    same(lambda t: dist.all_reduce(t, factor), values(rank, 20))
    root = size - 1
    same(lambda t: dist.broadcast(t, root), values(rank, 300_000))
    reduced = values(rank, 40)
    if rank == root:
        same(lambda t: dist.reduce(t, root), reduced)
    else:
        for tensor in (cuda.to_device(reduced), reduced):
            dist.reduce(tensor, root)
    same(dist.all_gather_into_tensor, zeros(size * 12), values(rank, 12))
    same(dist.reduce_scatter_tensor, zeros(9), values(rank, size * 9))
    same(dist.all_gather, [zeros(4, 3) for _ in range(size)], values(rank, 4, 3))
    same(dist.all_gather, [zeros(j + 1) for j in range(size)], values(rank, rank + 1))
    same(dist.reduce_scatter, zeros(5), [values(rank + j, 5) for j in range(size)])
    lists = [zeros(6) for _ in range(size)]
    for to in ([cuda.to_device(one) for one in lists], lists):
        source = values(rank, 6)
        dist.gather(cuda.to_device(source) if to is not lists else source,
                    to if rank == root else None, root)
    sources = [values(j, 6) for j in range(size)]
    output = cuda.to_device(zeros(6))
    dist.scatter(output, [cuda.to_device(one) for one in sources] if rank == root else None, root)
    assert cuda.to_host(output).equal(values(rank, 6))
    sent = [(rank + j) % 3 for j in range(size)]
    received = [(j + rank) % 3 for j in range(size)]
    same(lambda out, into: dist.all_to_all_single(out, into, received, sent),
         zeros(sum(received), 2), values(rank, sum(sent), 2))
    same(dist.all_to_all, [zeros(j + rank + 1) for j in range(size)],
         [values(rank, j + rank + 1) for j in range(size)])

    def coalesced(first: torch.Tensor, second: torch.Tensor) -> None:
        with dist._coalescing_manager(async_ops=True) as manager:
            dist.all_reduce(first)
            dist.all_reduce(second)
        manager.wait()

    same(coalesced, values(rank, 10), values(rank, 20))
    assert cuda.recorded_uses() > 0


@pytest.mark.parametrize("size", [2, 3])
def test_every_collective(module: str, size: int) -> None:
    run(size, every_collective, module)


def a_device_each(rank: int, size: int, path: str) -> None:
    os.environ.update(FAKE_CUDA_FIRST_DEVICE=str(rank), FAKE_CUDA_PROCESSORS="32")
    every_collective(rank, size, path)
    assert ctypes.CDLL("libcuda.so.1").fake_cuda_interpreter_launches() > 0


@pytest.mark.parametrize("size", [2, 3])
def test_every_collective_with_a_device_each(module: str, size: int) -> None:
    run(size, a_device_each, module)


def order(rank: int, size: int, path: str) -> None:
    cuda = pretended.load(path)
    expected = sum(values(j, 50_000) for j in range(size))
    tensor = cuda.to_device(values(rank, 50_000))
    dist.all_reduce(tensor)  # makes the communicator
    dist.barrier()
    copies = [cuda.to_device(torch.zeros(50_000)) for _ in range(2)]
    source = cuda.to_device(values(rank, 50_000))
    cuda.synchronize(cuda.current_stream())
    with pretended.stream(cuda) as busy:
        held = rank == 0
        if held:
            cuda.hold(busy)
        # Comes after the hold: whoever does not wait for this stream sees the old values.
        tensor.copy_(source)
        began = time.monotonic()
        work = dist.all_reduce(tensor, async_op=True)
        assert time.monotonic() - began < 5, "the call waited for the device"
        assert not (held and work.is_completed())
        with pretended.stream(cuda) as other:
            work.wait()
            copies[0].copy_(tensor)
            assert not (held and cuda.idle(other)), "the current stream does not wait"
        value = work.get_future().then(lambda future: future.value()[0])
        copies[1].copy_(value.wait())
        if held:
            with pytest.raises(RuntimeError, match="was not complete after the 50 ms"):
                work.wait(timedelta(milliseconds=50))
            cuda.release(busy)
        work.wait(timedelta(seconds=20))
        assert work.is_completed() and work.exception() is None
        cuda.synchronize(other)
        cuda.synchronize(busy)
    for copy in copies:
        assert cuda.to_host(copy).equal(expected)
    if rank == 0:  # a barrier is one for the device, too
        with pretended.stream(cuda) as busy:
            cuda.hold(busy)
            copies[0].copy_(tensor)
            began = time.monotonic()
            threading.Timer(0.3, cuda.release, [busy]).start()
            dist.barrier()
            assert time.monotonic() - began > 0.2
    else:
        began = time.monotonic()
        dist.barrier()
        assert time.monotonic() - began > 0.1


def test_order(module: str) -> None:
    run(2, order, module)


def unfinished(rank: int, size: int, path: str) -> None:
    """A barrier covers collectives that nobody has waited for."""
    cuda = pretended.load(path)
    tensor = cuda.to_device(values(rank, 100))
    dist.all_reduce(tensor)
    dist.barrier()
    held = rank == 0
    with pretended.stream(cuda) as busy:
        if held:
            cuda.hold(busy)
        work = dist.all_reduce(tensor, async_op=True)
    began = time.monotonic()
    if held:
        threading.Timer(0.3, cuda.release, [busy]).start()
    dist.barrier()
    assert not held or time.monotonic() - began > 0.2
    assert work.is_completed()


def test_a_barrier_covers_what_is_unfinished(module: str) -> None:
    run(2, unfinished, module)


def captured(rank: int, size: int, path: str) -> None:
    """A message that cannot be captured is refused before the other side hears of it."""
    cuda = pretended.load(path)
    peer = 1 - rank
    tensor = cuda.to_device(values(rank, 100))
    into = cuda.to_device(torch.zeros(100))
    for _ in range(2):
        with pretended.stream(cuda) as stream:
            cuda.begin_capture(stream)
            with pytest.raises(ValueError, match="captured into a graph"):
                dist.isend(tensor, peer)
            with pytest.raises(ValueError, match="captured into a graph"):
                dist.irecv(into, peer)
            cuda.end_capture(stream)
        sent = dist.isend(tensor, peer)
        dist.recv(into, peer)
        sent.wait()
        assert cuda.to_host(into).equal(values(peer, 100))


def test_a_captured_message(module: str) -> None:
    run(2, captured, module)


def returns_at_once(rank: int, size: int, path: str) -> None:
    """Where ranks share a device, an operation meets the calls of the others; the call does not."""
    cuda = pretended.load(path)
    tensor = cuda.to_device(values(rank, 1000))
    other = cuda.to_device(torch.zeros(1000))
    dist.all_reduce(tensor)
    store = dist.distributed_c10d._get_default_store()
    if rank == 0:
        works = [dist.all_reduce(tensor, async_op=True), dist.broadcast(tensor, 1, async_op=True)]
        assert not any(work.is_completed() for work in works)
        later = works[1].get_future().then(lambda future: other.copy_(future.value()[0]))
        store.set("issued", "1")
        works[0].wait()
        later.wait()
    else:
        store.wait(["issued"], timedelta(seconds=15))
        dist.all_reduce(tensor)
        dist.broadcast(tensor, 1)
        other.copy_(tensor)
    cuda.synchronize(cuda.current_stream())
    expected = 2 * (values(0, 1000) + values(1, 1000))
    assert cuda.to_host(tensor).equal(expected)
    assert cuda.to_host(other).equal(expected)


def test_async_calls_return_at_once(module: str) -> None:
    run(2, returns_at_once, module)


def mixed(rank: int, size: int, path: str) -> None:
    """Kinds of memory need not agree."""
    cuda = pretended.load(path)
    tensor = values(rank, 1000)
    tensor = cuda.to_device(tensor) if rank == 0 else tensor
    dist.all_reduce(tensor)
    assert cuda.to_host(tensor).equal(values(0, 1000) + values(1, 1000))
    with pytest.raises(ValueError, match="must be on one device"):
        dist.all_gather_into_tensor(torch.zeros(size * 2), cuda.to_device(torch.zeros(2)))


def test_mixed(module: str) -> None:
    run(2, mixed, module)


def messages(rank: int, size: int, path: str) -> None:
    cuda = pretended.load(path)
    peer = 1 - rank
    for mine, theirs in (("cuda", "cuda"), ("cpu", "cuda"), ("cuda", "cpu")):
        def place(tensor: torch.Tensor, kind: str) -> torch.Tensor:
            return cuda.to_device(tensor) if kind == "cuda" else tensor

        sent = dist.isend(place(values(rank, 5000), mine), peer)  # both send first
        received = place(torch.zeros(5000), theirs)
        dist.recv(received, peer)
        sent.wait()
        assert cuda.to_host(received).equal(values(peer, 5000))
        # Messages come in another order than they are wanted.
        sends = [dist.isend(place(values(rank + tag, 70), mine), peer, tag=tag)
                 for tag in (1, 2, 3)]
        into = {tag: place(torch.zeros(7, 10), theirs).t() for tag in (3, 1, 2)}
        for tag, tensor in into.items():
            dist.recv(tensor, peer, tag=tag)
            assert cuda.to_host(tensor).equal(values(peer + tag, 70).reshape(10, 7))
        for work in sends:
            work.wait()
        dist.barrier()
    operations = [dist.P2POp(dist.isend, cuda.to_device(values(rank, 9)), peer),
                  dist.P2POp(dist.irecv, cuda.to_device(torch.zeros(9)), peer)]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    assert cuda.to_host(operations[1].tensor).equal(values(peer, 9))
    anything = cuda.to_device(torch.zeros(4))
    sent = dist.isend(cuda.to_device(values(rank, 4)), peer)
    assert dist.recv(anything) == peer
    sent.wait()
    assert cuda.to_host(anything).equal(values(peer, 4))


def test_messages(module: str) -> None:
    run(2, messages, module)


def dies(rank: int, size: int, path: str) -> str:
    cuda = pretended.load(path)
    tensor = cuda.to_device(values(rank, 100))
    first = dist.all_reduce(tensor, async_op=True)
    while not first.is_completed():
        time.sleep(0.001)
    dist.barrier()
    if rank == 1:
        os._exit(3)
    work = dist.all_reduce(tensor, async_op=True)
    deadline = time.monotonic() + 15
    while work.exception() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    with pytest.raises(dist.DistError) as caught:
        work.wait()
    assert first.is_success() and first.exception() is None  # that of another operation
    dist.destroy_process_group()
    return str(caught.value)


def test_a_rank_dies(module: str) -> None:
    (what, text), _ = outcomes(2, dies, module)
    assert what == "returned", text
    assert "rank 1" in text


def backend() -> dist.distributed_c10d.Backend:
    return dist.distributed_c10d._get_default_group()._get_backend(torch.device("cpu"))


def aborted(rank: int, size: int, path: str, shared: str) -> None:
    """One rank waits for another, which does not come: in its stream, or with `shared`, for the
    call."""
    os.environ["WHORL_DEVICE_IPC"] = shared
    cuda = pretended.load(path)
    tensor = cuda.to_device(values(rank, 100))
    dist.all_reduce(tensor)
    dist.barrier()
    store = dist.distributed_c10d._get_default_store()
    if rank == 0:
        work = dist.all_reduce(tensor, async_op=True)
        time.sleep(0.1)
        assert not work.is_completed() and work.exception() is None
        backend().abort()
        with pytest.raises(dist.DistError, match="[aA]bort"):
            work.wait()
        with pytest.raises(dist.DistError):
            dist.all_reduce(tensor)
        store.set("over", "1")
    else:
        store.wait(["over"])
    dist.destroy_process_group()


@pytest.mark.parametrize("shared", ["0", "1"])
def test_abort(module: str, shared: str) -> None:
    began = time.monotonic()
    run(2, aborted, module, shared)
    assert time.monotonic() - began < 18  # not by the timeout of the group


def asked_while_aborting(rank: int, size: int, path: str) -> None:
    """An abort waits for the streams of this rank; who asks for the state meanwhile does not."""
    cuda = pretended.load(path)
    tensor = cuda.to_device(values(rank, 100))
    dist.all_reduce(tensor)
    dist.barrier()
    if rank == 1:
        with pytest.raises(dist.DistError):
            dist.all_reduce(tensor)
            cuda.synchronize(cuda.current_stream())
            dist.all_reduce(tensor)
        return
    with pretended.stream(cuda) as busy:
        cuda.hold(busy)
        work = dist.all_reduce(tensor, async_op=True)
        work.wait()
        aborting = threading.Thread(target=backend().abort)
        aborting.start()
        deadline = time.monotonic() + 10
        while work.exception() is None:  # holds the lock of the interpreter
            assert time.monotonic() < deadline
        assert aborting.is_alive()
        cuda.release(busy)  # also needs that lock
        aborting.join(10)
        assert not aborting.is_alive()


def test_the_state_is_told_while_an_abort_waits(module: str) -> None:
    run(2, asked_while_aborting, module)
