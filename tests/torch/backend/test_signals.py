"""Signals while the main thread waits for other ranks: handlers run, and what they raise ends the wait."""

from __future__ import annotations

import os
import signal
import threading
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

from ranks import run

LONG = 600.0  # timeout of the groups; without an answer to the signal a test exceeds its limit


def waits(how: str) -> None:
    tensor = torch.ones(3)
    if how == "all_reduce":
        dist.all_reduce(tensor)
    elif how == "work":
        dist.all_reduce(tensor, async_op=True).wait()
    elif how == "work with a timeout":
        dist.all_reduce(tensor, async_op=True).wait(timedelta(seconds=LONG))
    elif how == "future":
        dist.all_reduce(tensor, async_op=True).get_future().wait()
    elif how == "send":
        dist.send(torch.ones(10_000_000), 1)
    elif how == "recv":
        dist.recv(tensor, 1)
    elif how == "recv from any":
        dist.recv(tensor)
    elif how == "second recv":  # the channel is there
        dist.recv(tensor, 1)
        dist.recv(tensor, 1)
    elif how == "monitored barrier":
        dist.group.WORLD.monitored_barrier()
    elif how == "init":
        store = dist.distributed_c10d._get_default_store()
        dist.destroy_process_group()
        dist.init_process_group("whorl", store=dist.PrefixStore("again", store), rank=0, world_size=2,
                                timeout=timedelta(seconds=LONG))


HOWS = ["all_reduce", "work", "work with a timeout", "future", "send", "recv", "recv from any",
        "second recv", "monitored barrier", "init"]


def told(rank: int, action) -> None:  # type: ignore[no-untyped-def]
    """Rank 0 acts; the others stay until it has."""
    store = dist.distributed_c10d._get_default_store()
    if rank == 0:
        action()
        store.set("told", "")
    else:
        store.wait(["told"], timedelta(seconds=60))


def interrupted(rank: int, size: int, how: str) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if how == "second recv" and rank == 1:
        dist.send(torch.ones(3), 0)

    def wait() -> None:
        timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            waits(how)
        timer.join()
        if dist.is_initialized():  # what a thread of the group carries out goes on
            dist.group.WORLD._get_backend(torch.device("cpu")).abort()

    told(rank, wait)


@pytest.mark.parametrize("how", HOWS)
def test_control_c_ends_a_wait(how: str) -> None:
    run(2, interrupted, how, seconds=LONG)


def others_are_told(rank: int, size: int) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    dist.barrier()
    if rank == 0:
        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            dist.all_reduce(torch.ones(3))
    elif rank == 1:
        with pytest.raises((RuntimeError, dist.DistError), match="rank 0.*interrupted"):
            dist.all_reduce(torch.ones(3))
    else:
        told(rank, lambda: None)
    if rank == 0:
        dist.distributed_c10d._get_default_store().set("told", "")


def test_the_other_ranks_hear_of_it() -> None:
    run(3, others_are_told, seconds=LONG)


def handled(rank: int, size: int) -> None:
    calls = []
    if rank == 0:
        store = dist.distributed_c10d._get_default_store()

        def handler(*_: object) -> None:
            with pytest.raises(RuntimeError, match="handler of a signal"):
                dist.all_reduce(torch.ones(5))  # refused, and not carried out later either
            calls.append(1)
            store.set("handled", "")

        signal.signal(signal.SIGUSR1, handler)
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGUSR1)).start()
    else:
        dist.distributed_c10d._get_default_store().wait(["handled"], timedelta(seconds=60))
    tensor = torch.ones(3)
    dist.all_reduce(tensor)  # rank 1 comes when the handler has run
    assert tensor.eq(2).all()
    assert len(calls) == (1 if rank == 0 else 0)
    dist.barrier()


def test_a_handler_that_raises_nothing_disturbs_nothing() -> None:
    run(2, handled, seconds=LONG)


def ends_or_waits_in_a_handler(rank: int, size: int, how: str) -> None:
    def handler(*_: object) -> None:
        if how == "barrier":
            dist.barrier()
        else:
            dist.group.WORLD._get_backend(torch.device("cpu")).abort()

    def wait() -> None:
        signal.signal(signal.SIGUSR1, handler)
        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGUSR1)).start()
        with pytest.raises(RuntimeError, match="handler of a signal"):
            dist.all_reduce(torch.ones(3))
        dist.group.WORLD._get_backend(torch.device("cpu")).abort()

    told(rank, wait)


@pytest.mark.parametrize("how", ["barrier", "abort"])
def test_a_handler_can_neither_wait_nor_end_the_group(how: str) -> None:
    run(2, ends_or_waits_in_a_handler, how, seconds=LONG)
