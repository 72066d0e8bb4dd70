"""A few seconds of everything, for the quick suite."""

from __future__ import annotations

import torch
import torch.distributed as dist

import test_collectives
import test_point_to_point
import test_work
from ranks import run


def tour(rank: int, size: int) -> None:
    assert dist.get_backend() == "whorl"
    test_collectives.layouts(rank, size)
    test_collectives.uneven(rank, size)
    test_collectives.coalesced(rank, size)
    test_collectives.objects(rank, size)
    test_point_to_point.both_send_first(rank, size)
    test_point_to_point.any_source(rank, size)
    test_work.results(rank, size)
    test_work.chained(rank, size)
    tensor = torch.ones(3, dtype=torch.bfloat16)
    dist.all_reduce(tensor, dist.ReduceOp.AVG)
    assert tensor.eq(1).all()


def test_tour() -> None:
    run(2, tour)
