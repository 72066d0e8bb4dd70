"""`whorl_torch.shared_memory()`: tensors that the other ranks of the host can map."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import whorl_torch
from ranks import outcomes, run
from whorl_torch import _C, in_shared_memory, shared_memory

LEAST = 64 << 10


def used() -> int:
    gc.collect()
    return _C.shared_memory_use()[0]


def alone(body: str, **environment: str) -> str:
    """What a process of its own prints: the allocator is one for a process."""
    program = ("import os, torch, whorl_torch\nfrom whorl_torch import _C, shared_memory, "
               "in_shared_memory\n" + body)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60,
                          env={**os.environ, **environment}, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_what_is_shared() -> None:
    outside = torch.zeros(LEAST)
    with shared_memory():
        inside, small = torch.zeros(LEAST), torch.zeros(LEAST // 4 - 1)
        with shared_memory():
            nested = torch.zeros(LEAST)
        after = torch.zeros(LEAST)
    later = torch.zeros(LEAST)
    assert [in_shared_memory(one) for one in (outside, inside, small, nested, after, later)] == [
        False, True, False, True, True, False]
    assert in_shared_memory(inside[7:].view(-1)), "views lie where their tensor lies"


def test_values_and_growth() -> None:
    with shared_memory():
        values = torch.arange(LEAST, dtype=torch.float64)
        values.resize_(4 * LEAST)
        assert in_shared_memory(values)
        assert values[:LEAST].equal(torch.arange(LEAST, dtype=torch.float64))
    values.untyped_storage().resize_(0)
    values.untyped_storage().resize_(LEAST * 8)
    assert not in_shared_memory(values), "grown where it is not active"


def test_memory_is_used_again_and_kept_within_bounds() -> None:
    before = used()
    with shared_memory():
        first = torch.zeros(LEAST)
        address = first.data_ptr()
        del first
        assert torch.empty(LEAST).data_ptr() == address
        many = [torch.empty(5 << 20) for _ in range(8)]
    assert used() - before == 8 * (20 << 20)
    del many
    in_tensors, kept = _C.shared_memory_use()
    assert in_tensors == before and kept <= max(64 << 20, in_tensors)


def test_threads() -> None:
    before = used()
    errors: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            kept: list[torch.Tensor] = []
            for step in range(150):
                tensor = torch.full(((seed + step) % 5 * LEAST + LEAST,), float(seed))
                kept = [*kept[-3:], tensor]
                assert all(one.eq(seed).all() for one in kept)
        except BaseException as error:
            errors.append(error)

    with shared_memory():
        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not errors, errors
    assert used() == before


def test_heap_without_room() -> None:
    assert alone("""
with shared_memory():
    tensors = [torch.full((1 << 20,), float(i)) for i in range(4)]  # 4 MiB each
    print([in_shared_memory(one) for one in tensors], all(one.eq(i).all() for i, one in enumerate(tensors)))
""", WHORL_HEAP_BYTES=str(9 << 20)) == "[True, True, False, False] True"


def test_variable() -> None:
    body = "print(in_shared_memory(torch.zeros(1 << 20)))"
    assert alone(body, WHORL_TORCH_SHARED_MEMORY="1") == "True"
    assert alone(body, WHORL_TORCH_SHARED_MEMORY="0") == "False"
    with pytest.raises(AssertionError, match="WHORL_TORCH_SHARED_MEMORY is 'yes'; it must be 0 or 1"):
        alone(body, WHORL_TORCH_SHARED_MEMORY="yes")


def test_fork() -> None:
    """A child allocates as usual; what it frees stays the parent's."""
    assert alone("""
with shared_memory():
    mine = torch.full((1 << 20,), 3.0)
    child = os.fork()
    if child == 0:
        other = torch.full((1 << 20,), 4.0)
        right = not in_shared_memory(other) and bool(other.eq(4).all()) and bool(mine.eq(3).all())
        del mine
        os._exit(0 if right else 1)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    again = torch.full((1 << 20,), 5.0)
    print(status, bool(mine.eq(3).all()), bool(again.eq(5).all()), in_shared_memory(again))
""") == "0 True True True"


def test_forked_before_anything_is_there() -> None:
    assert alone("""
child = os.fork()
if child == 0:
    os._exit(0 if in_shared_memory(torch.zeros(1 << 20)) else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), in_shared_memory(torch.zeros(1 << 20)))
""", WHORL_TORCH_SHARED_MEMORY="1") == "0 True"


def test_pickled_to_a_worker() -> None:
    """torch's own shared memory and data loaders work on such tensors."""
    assert alone("""
from torch.utils.data import DataLoader, TensorDataset
with shared_memory():
    data = TensorDataset(torch.arange(1 << 16, dtype=torch.float32))
    total = sum(batch.sum().item() for (batch,) in DataLoader(data, batch_size=1 << 14, num_workers=2))
    moved = torch.ones(1 << 16)
    moved.share_memory_()
    print(total == data.tensors[0].double().sum().item(), moved.is_shared(), moved.sum().item())
""") == "True True 65536.0"


def operations(rank: int, size: int) -> None:
    # One rank need not do as the others do.
    with shared_memory() if rank % 2 == 0 else torch.no_grad():
        mine = torch.empty(1 << 20)
        blocks = torch.empty(size << 16)
    assert in_shared_memory(mine) == in_shared_memory(blocks) == (rank % 2 == 0)
    for step in range(4):
        mine.fill_(rank + step)
        dist.all_reduce(mine, async_op=True).wait()
        assert mine.eq(sum(range(size)) + size * step).all()
        mine.fill_(step if rank == 1 else -1)
        dist.broadcast(mine, 1)
        assert mine.eq(step).all()
        dist.all_gather_into_tensor(blocks, torch.full((1 << 16,), float(rank + step)))
        assert all(blocks[other << 16:(other + 1) << 16].eq(other + step).all() for other in range(size))
        part = mine[: (1 << 20) // size]
        dist.reduce_scatter_tensor(part, mine.fill_(rank)[: part.numel() * size].clone())
        assert part.eq(sum(range(size))).all()


def test_operations() -> None:
    run(3, operations)


def ddp(rank: int, size: int) -> list[bool]:
    weights = []
    for space in (shared_memory, torch.enable_grad):
        torch.manual_seed(0)
        with space():
            model = DistributedDataParallel(
                nn.Sequential(nn.Linear(300, 400), nn.ReLU(), nn.Linear(400, 200)), bucket_cap_mb=1)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
            generator = torch.Generator().manual_seed(rank)
            for _ in range(5):
                optimizer.zero_grad(set_to_none=True)
                model(torch.randn(8, 300, generator=generator)).square().mean().backward()
                optimizer.step()
        weights.append([parameter.detach() for parameter in model.parameters()])
    assert in_shared_memory(weights[0][0]) and not in_shared_memory(weights[1][0])
    return [torch.equal(a, b) for a, b in zip(*weights)]


def test_ddp_trains_to_the_same_bits() -> None:
    assert all(all(equal) for equal in run(2, ddp))


def freed_after_the_group(rank: int, size: int) -> None:
    with shared_memory():
        tensor = torch.full((1 << 20,), float(rank))
        dist.all_reduce(tensor)
        dist.destroy_process_group()
        assert tensor.eq(sum(range(size))).all()
        del tensor
        assert torch.full((1 << 20,), 2.0).eq(2).all()
    assert whorl_torch.library_version()


def test_freed_after_the_group() -> None:
    run(2, freed_after_the_group)


def left_at_exit(rank: int, size: int) -> None:
    _C.begin_shared_memory()
    global kept  # a tensor that lives until the interpreter is gone, and an operation before it
    kept = torch.ones(1 << 20)
    dist.all_reduce(kept, async_op=True)


def test_left_at_exit() -> None:
    assert [what for what, _ in outcomes(2, left_at_exit)] == ["returned", "returned"]
