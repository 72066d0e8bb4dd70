"""Going on with the ranks that remain: torch.distributed.shrink_group()."""

from __future__ import annotations

import os
import signal
import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

from ranks import DIED, let_others_leave, outcomes, run
from whorl_torch import Options

shrink_group = getattr(dist.distributed_c10d, "shrink_group", None)
pytestmark = pytest.mark.skipif(shrink_group is None, reason="this torch has no shrink_group()")


def expect_to_work(rank: int, size: int) -> None:
    assert (dist.get_rank(), dist.get_world_size()) == (rank, size)
    tensor = torch.full((1000,), float(rank))
    dist.all_reduce(tensor)
    assert tensor.eq(size * (size - 1) / 2).all()
    subgroup = dist.new_group([0, size - 1])
    if rank in (0, size - 1):
        dist.all_reduce(tensor, group=subgroup)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))
    model(torch.full((2, 8), float(rank + 1))).sum().backward()
    mean = 2 * sum(range(1, size + 1)) / size
    assert torch.allclose(model.module.weight.grad, torch.full((8, 8), mean))


def after_a_death(rank: int, size: int, waits: bool) -> None:
    tensor = torch.ones(1000)
    dist.all_reduce(tensor)
    let_others_leave(rank, size)
    if rank == 1:
        time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGKILL)
    if waits:  # a call is under way when the group shrinks, and nobody has seen an error
        work = dist.all_reduce(tensor, async_op=True)
        time.sleep(0.2)
    else:
        with pytest.raises(dist.DistNetworkError, match="rank 1 of process group 0"):
            while True:
                dist.all_reduce(tensor)
    begin = time.monotonic()
    shrink_group([1], shrink_flags=dist.distributed_c10d.SHRINK_ABORT)
    assert time.monotonic() - begin < 10
    if waits:
        with pytest.raises(dist.DistNetworkError):
            work.wait()
    expect_to_work(rank - (rank > 1), size - 1)


@pytest.mark.parametrize("waits", (False, True))
def test_after_a_death(waits: bool) -> None:
    results = outcomes(4, after_a_death, waits)
    assert results[1] == (DIED, -signal.SIGKILL)
    assert [results[rank][0] for rank in (0, 2, 3)] == ["returned"] * 3, results


def without_a_death(rank: int, size: int) -> None:
    if rank == size - 1:
        return
    shrink_group([size - 1])
    expect_to_work(rank, size - 1)


def test_without_a_death() -> None:
    results = outcomes(3, without_a_death)
    assert [what for what, _ in results] == ["returned"] * 3, results


def made_again(rank: int, size: int, port: int) -> None:
    """A store in which a group has shrunk serves all ranks again, those that have not shrunk too."""
    dist.destroy_process_group()
    for eager in (True, False):
        for _ in range(2):
            store = dist.TCPStore("127.0.0.1", port, is_master=False)
            dist.init_process_group("cpu:whorl", store=store, rank=rank, world_size=size,
                                    pg_options=Options(eager=eager), timeout=timedelta(seconds=30))
            dist.barrier()
            if rank != size - 1:
                shrink_group([size - 1])
                dist.barrier()
            dist.destroy_process_group()


def test_made_again_in_the_same_store() -> None:
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    run(3, made_again, store.port)


def apart(rank: int, size: int) -> None:
    """Rank 0 goes on alone, and the others without it, in the store of the group that they were."""
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    if rank == 0:
        assert backend.shrink(list(range(1, size)), 0, None).size() == 1
    dist.barrier()
    if rank != 0:
        rest = backend.shrink([0], 0, None)
        assert (rest.rank(), rest.size()) == (rank - 1, size - 1)
        right, left, theirs = rank % (size - 1), (rank - 2) % (size - 1), torch.empty(3)
        sending = rest.send([torch.full((3,), float(rank))], right, 0)
        rest.recv([theirs], left, 0).wait()
        sending.wait()
        assert theirs.eq(left + 1).all()
        rest.monitored_barrier(timedelta(seconds=10))
    dist.barrier()


@pytest.mark.parametrize("eager", (False, True))
def test_apart(eager: bool) -> None:
    run(4, apart, eager=eager)
