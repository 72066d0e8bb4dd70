"""Tests of a process group on one shared GPU, for any backend: nccl_torch.py runs them on PyTorch's
ProcessGroupNCCL, backend_torch.py on whorl's own."""

from __future__ import annotations

import copy
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn

DEVICE = torch.device("cuda", 0)


_stores: list[dist.TCPStore] = []


def new_store() -> int:
    """Makes a store for the next ranks, in the parent, and returns its port."""
    _stores.append(dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False))
    return _stores[-1].port


def begin(backend: str, rank: int, size: int, port: int) -> None:
    torch.cuda.set_device(DEVICE)
    torch.zeros(1, device=DEVICE)
    store = dist.TCPStore("127.0.0.1", port, is_master=False)
    dist.init_process_group(backend, store=store, rank=rank, world_size=size,
                            timeout=timedelta(seconds=60))


def values(rank: int, count: int, dtype: torch.dtype) -> torch.Tensor:
    """Returns small whole numbers, whose sums are exact in every type."""
    return ((torch.arange(count, device=DEVICE) * 5 + rank * 3) % 7).to(dtype)


def same(got: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(got, expected.to(got.dtype), rtol=0, atol=0)


def collectives(rank: int, size: int) -> None:
    everyone = range(size)
    for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.uint8):
        for count in (1, 1000, 1_000_003):
            tensor = values(rank, count, dtype)
            dist.all_reduce(tensor)
            same(tensor, sum(values(j, count, dtype) for j in everyone))
            tensor = values(rank, count, dtype)
            dist.all_reduce(tensor, dist.ReduceOp.MAX)
            same(tensor, torch.stack([values(j, count, dtype) for j in everyone]).amax(0))
            gathered = torch.empty(size * count, dtype=dtype, device=DEVICE)
            dist.all_gather_into_tensor(gathered, values(rank, count, dtype))
            same(gathered, torch.cat([values(j, count, dtype) for j in everyone]))
            part = torch.empty(count, dtype=dtype, device=DEVICE)
            dist.reduce_scatter_tensor(part, values(rank, size * count, dtype))
            whole = sum(values(j, size * count, dtype) for j in everyone)
            same(part, whole[rank * count:(rank + 1) * count])
            tensor = values(rank, count, dtype)
            dist.broadcast(tensor, size - 1)
            same(tensor, values(size - 1, count, dtype))
            tensor = values(rank, count, dtype)
            dist.reduce(tensor, 0)
            if rank == 0:
                same(tensor, sum(values(j, count, dtype) for j in everyone))
    tensor = values(rank, 999, torch.float32) * size
    dist.all_reduce(tensor, dist.ReduceOp.AVG)
    same(tensor, sum(values(j, 999, torch.float32) for j in everyone))
    listed = [torch.empty(50, device=DEVICE) for _ in everyone]
    dist.all_gather(listed, values(rank, 50, torch.float32))
    for j in everyone:
        same(listed[j], values(j, 50, torch.float32))
    sent = [(rank + j) % 3 for j in everyone]
    received = [(j + rank) % 3 for j in everyone]
    output = torch.empty(sum(received), device=DEVICE)
    source = torch.cat([torch.full((n,), 10.0 * rank + j, device=DEVICE) for j, n in enumerate(sent)])
    dist.all_to_all_single(output, source, received, sent)
    same(output, torch.cat([torch.full((n,), 10.0 * j + rank, device=DEVICE)
                            for j, n in enumerate(received)]))
    dist.barrier()


def transfers(rank: int, size: int) -> None:
    following, previous = (rank + 1) % size, (rank - 1) % size
    for count in (1, 4097, 3_000_000):
        sent = values(rank, count, torch.float32)
        received = torch.zeros(count, device=DEVICE)
        for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, sent, following),
                                            dist.P2POp(dist.irecv, received, previous)]):
            work.wait()
        same(received, values(previous, count, torch.float32))
    if rank == 0:
        dist.send(values(3, 100, torch.float32), 1)
    elif rank == 1:
        received = torch.zeros(100, device=DEVICE)
        dist.recv(received, 0)
        same(received, values(3, 100, torch.float32))


def network() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 128), nn.GELU(),
                         nn.Linear(128, 10)).to(DEVICE)


def batch(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(100 + step)
    return (torch.randn(48, 64, generator=generator).to(DEVICE),
            torch.randint(10, (48,), generator=generator).to(DEVICE))


STEPS = 4


def train(model: nn.Module, optimizer: torch.optim.Optimizer, rank: int, size: int) -> None:
    for step in range(STEPS):
        inputs, labels = (tensor.chunk(size)[rank] for tensor in batch(step))
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()


def reference() -> nn.Module:
    """Trains the same steps in one process, with the whole batch."""
    model = network()
    train(model, torch.optim.SGD(model.parameters(), lr=0.1), 0, 1)
    return model


def compare(parameters: list[torch.Tensor]) -> None:
    for got, expected in zip(parameters, reference().parameters()):
        torch.testing.assert_close(got, expected.detach(), rtol=1e-4, atol=1e-5)


def data_parallel(rank: int, size: int) -> None:
    model = nn.parallel.DistributedDataParallel(network(), device_ids=[0], bucket_cap_mb=0.05)
    train(model, torch.optim.SGD(model.parameters(), lr=0.1), rank, size)
    compare([parameter.detach() for parameter in model.parameters()])
    first = copy.deepcopy(next(model.parameters()).detach())
    dist.broadcast(first, 0)
    same(next(model.parameters()).detach(), first)  # bit for bit the same on all ranks


def fully_sharded(rank: int, size: int) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cuda", (size,))
    model = network()
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    train(model, torch.optim.SGD(model.parameters(), lr=0.1), rank, size)
    compare([parameter.full_tensor().detach() for parameter in model.parameters()])


CASES = {"collectives": collectives, "transfers": transfers, "ddp": data_parallel,
         "fsdp2": fully_sharded}
