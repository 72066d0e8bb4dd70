"""Programs that were written for gloo: the same results on whorl."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from torch.distributed._shard import sharded_tensor
from torch.distributed._shard.sharding_spec import ChunkShardingSpec

from ranks import run

BACKENDS = ("gloo", "whorl")


def shared_tensors(rank: int, size: int, backend: str) -> list[list[float]]:
    """A list that names memory more than once: every entry contributes what was there before."""
    group = dist.new_group(backend=backend)
    same = torch.full((3,), float(rank + 1))
    dist.all_reduce_coalesced([same, same], group=group)
    parts = torch.arange(6.0) + rank
    dist.all_reduce_coalesced([parts[:4], parts[2:]], group=group)
    strided = torch.arange(6.0).view(2, 3).t() * (rank + 1)
    dist.all_reduce_coalesced([strided, strided], op=dist.ReduceOp.MAX, group=group)
    apart = torch.ones(6)  # parts of one tensor that have nothing in common
    dist.all_reduce_coalesced([apart[:3], apart[3:]], group=group)
    return [tensor.tolist() for tensor in (same, parts, strided, apart)]


def test_all_reduce_coalesced_of_shared_memory() -> None:
    found = {backend: run(2, shared_tensors, backend) for backend in BACKENDS}
    assert found["whorl"] == found["gloo"]
    assert found["whorl"][0][0] == [3.0] * 3


def overlapping(rank: int, size: int, backend: str) -> list[list[float]]:
    """One part of a tensor, the same on all ranks, so it is in its place on one of them only."""
    group = dist.new_group(backend=backend)
    found = []
    for place in (0, 1, size - 1, 0.5):
        begin = int(4 * place)
        reduced = torch.arange(4.0 * size) + rank
        dist.reduce_scatter_tensor(reduced[begin:begin + 4], reduced, group=group)
        found.append(reduced[begin:begin + 4].tolist())
        gathered = torch.arange(4.0 * size) + 100 * rank
        dist.all_gather_into_tensor(gathered, gathered[begin:begin + 4], group=group)
        found.append(gathered.tolist())
    return found


def test_part_of_the_other_buffer() -> None:
    found = {backend: run(3, overlapping, backend) for backend in BACKENDS}
    assert found["whorl"] == found["gloo"]
    assert found["whorl"][2][0] == [3.0 * (8 + i) + 3 for i in range(4)]


def sharded(rank: int, size: int, backend: str) -> list:
    placements = [f"rank:{j}/cpu" for j in range(size)]
    group = dist.new_group(backend=backend)
    tensor = sharded_tensor.full(ChunkShardingSpec(0, placements), (5, 4), fill_value=1.5,
                                 process_group=group)
    tensor.local_tensor().mul_(rank + 1)
    whole = torch.zeros(5, 4) if rank == 0 else None
    tensor.gather(0, whole)
    config = dist.BackendConfig(dist.Backend(backend)).get_device_backend_map()
    assert config["cpu"] == backend
    return [] if whole is None else whole.tolist()


@pytest.mark.skipif(torch.backends.cuda.is_built(), reason="sharded tensors take the device of CUDA")
def test_sharded_tensor() -> None:
    found = {backend: run(2, sharded, backend) for backend in BACKENDS}
    assert found["whorl"] == found["gloo"]


def test_the_name_stands_for_devices_that_are_there() -> None:
    devices = dist.BackendConfig(dist.Backend("whorl")).get_device_backend_map()
    has_cuda = torch.backends.cuda.is_built() and torch.cuda.device_count() > 0
    assert set(devices) == ({"cpu", "cuda"} if has_cuda else {"cpu"})
    both = dist.BackendConfig(dist.Backend("cpu:whorl,cuda:whorl")).get_device_backend_map()
    assert set(both) == {"cpu", "cuda"}
