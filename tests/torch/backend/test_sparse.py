"""All-reduce of sparse tensors: against dense ones, against gloo, and training an embedding."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ranks import run
from values import same

Op = dist.ReduceOp


def sparse(rank: int, shape: tuple[int, ...], sparse_dims: int, entries: int, dtype: torch.dtype) -> torch.Tensor:
    """Not coalesced: some indices come twice."""
    generator = torch.Generator().manual_seed(7 * rank + entries)
    indices = torch.stack([torch.randint(0, size, (entries,), generator=generator)
                           for size in shape[:sparse_dims]])
    values = torch.randint(0, 4, (entries, *shape[sparse_dims:]), generator=generator).to(dtype)
    return torch.sparse_coo_tensor(indices, values, shape)


SHAPES = [((11,), 1), ((5, 7), 2), ((5, 7), 1), ((3, 4, 2), 2), ((4, 3, 2, 2), 1)]
TYPES = [torch.float32, torch.float64, torch.bfloat16, torch.int64]


def sums(rank: int, size: int) -> None:
    gloo = dist.new_group(backend="gloo")
    for dtype in TYPES:
        for shape, dims in SHAPES:
            # Different numbers of entries; none on the last rank.
            inputs = [sparse(r, shape, dims, (3 * r + 4) * (r < size - 1), dtype) for r in range(size)]
            tensor = inputs[rank].clone()
            dist.all_reduce(tensor)
            assert tensor.is_sparse and tensor.is_coalesced() and tensor.shape == shape
            same(tensor.to_dense(), sum(one.to_dense() for one in inputs), (dtype, shape, dims))
            if dtype in (torch.float32, torch.float64):
                theirs = inputs[rank].clone()
                dist.all_reduce(theirs, group=gloo)
                theirs = theirs.coalesce()
                same(tensor.indices(), theirs.indices(), ("indices", dtype, shape))
                same(tensor.values(), theirs.values(), ("values", dtype, shape))
    tensor = sparse(rank, (5, 3), 1, 4, torch.float32)
    expected = sum(sparse(r, (5, 3), 1, 4, torch.float32).to_dense() for r in range(size)) / size
    (value,) = dist.all_reduce(tensor, Op.AVG, async_op=True).get_future().wait()
    assert value.is_sparse
    torch.testing.assert_close(value.to_dense(), expected)
    torch.testing.assert_close(tensor.to_dense(), expected)
    none = sparse(rank, (5, 3), 1, 0, torch.float32)
    dist.all_reduce(none)
    assert none._nnz() == 0


@pytest.mark.parametrize("size", [2, 3])
def test_sums(size: int) -> None:
    run(size, sums)


def refused(rank: int, size: int) -> None:
    with pytest.raises(ValueError, match="rank 0 has the shape .5, 3. with 1 sparse dimensions, rank 1 has"):
        dist.all_reduce(sparse(rank, (5, 3), 1 + rank, 4, torch.float32))
    with pytest.raises(ValueError, match="SUM"):
        dist.all_reduce(sparse(rank, (5, 3), 1, 4, torch.float32), Op.MAX)
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    with pytest.raises(ValueError, match="layout"):
        backend.allreduce([torch.eye(3).to_sparse_csr()])
    tensor = torch.ones(3)
    dist.all_reduce(tensor)
    assert tensor.eq(size).all()


def test_refused() -> None:
    run(2, refused)


class Words(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.words = nn.Embedding(50, 8, sparse=True)
        self.bag = nn.EmbeddingBag(20, 8, sparse=True)
        self.last = nn.Linear(8, 2)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return self.last(self.words(words).mean(1) + self.bag(words % 20))


def embedding(rank: int, size: int) -> None:
    groups = {"whorl": dist.group.WORLD, "gloo": dist.new_group(backend="gloo")}
    weights = {}
    for name, group in groups.items():
        model = DistributedDataParallel(Words(), process_group=group)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
        losses = []
        for step in range(15):
            generator = torch.Generator().manual_seed(100 * rank + step % 3)
            words = torch.randint(0, 50, (6, 3 + rank), generator=generator)
            loss = nn.functional.cross_entropy(model(words), words[:, 0] % 2)
            optimizer.zero_grad()
            loss.backward()
            assert model.module.words.weight.grad.is_sparse
            optimizer.step()
            losses.append(loss.item())
        assert sum(losses[-3:]) < 0.9 * sum(losses[:3]), losses
        weights[name] = [p.detach().clone() for p in model.parameters()]
        mine = weights[name][0].clone()
        dist.broadcast(mine, 0)
        same(mine, weights[name][0], "all ranks have the same weights")
    for ours, theirs in zip(*weights.values()):
        same(ours, theirs, "two terms: bit by bit")


def test_embedding_trains() -> None:
    run(2, embedding)
