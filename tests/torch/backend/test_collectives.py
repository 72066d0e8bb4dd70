"""Every collective against a plain computation."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist

from ranks import run
from values import FLOAT8, MOVED, SHAPE, Op, make, pairs, reduced, same


def _inputs(size: int, dtype: torch.dtype) -> list[torch.Tensor]:
    return [make(rank, dtype) for rank in range(size)]


def reductions(rank: int, size: int) -> None:
    for dtype, op in pairs():
        what = (dtype, op)
        inputs = _inputs(size, dtype)
        expected = reduced(inputs, op)

        tensor = inputs[rank].clone()
        dist.all_reduce(tensor, op)
        same(tensor, expected, ("all_reduce", *what))

        root = size - 1
        tensor = inputs[rank].clone()
        dist.reduce(tensor, root, op)
        same(tensor, expected if rank == root else inputs[rank], ("reduce", *what))

        whole = [torch.stack([make(r, dtype, seed=block) for block in range(size)])
                 for r in range(size)]
        mine = reduced([one[rank] for one in whole], op)
        output = torch.empty(SHAPE, dtype=dtype)
        dist.reduce_scatter_tensor(output, whole[rank].clone().view(size * SHAPE[0], SHAPE[1]), op)
        same(output, mine, ("reduce_scatter_tensor", *what))
        output = torch.empty(SHAPE, dtype=dtype)
        dist.reduce_scatter(output, list(whole[rank].unbind(0)), op)
        same(output, mine, ("reduce_scatter", *what))


@pytest.mark.parametrize("size", [2, 3])
def test_reductions(size: int) -> None:
    run(size, reductions)


def moves(rank: int, size: int) -> None:
    for dtype in MOVED:
        inputs = _inputs(size, dtype)
        for root in range(size):
            tensor = inputs[rank].clone()
            dist.broadcast(tensor, root)
            same(tensor, inputs[root], ("broadcast", dtype))

            outputs = [torch.empty(SHAPE, dtype=dtype) for _ in range(size)]
            dist.gather(inputs[rank], outputs if rank == root else None, dst=root)
            if rank == root:
                for r in range(size):
                    same(outputs[r], inputs[r], ("gather", dtype))

            output = torch.empty(SHAPE, dtype=dtype)
            dist.scatter(output, inputs if rank == root else None, src=root)
            same(output, inputs[rank], ("scatter", dtype))

        outputs = [torch.empty(SHAPE, dtype=dtype) for _ in range(size)]
        dist.all_gather(outputs, inputs[rank])
        output = torch.empty((size * SHAPE[0], SHAPE[1]), dtype=dtype)
        dist.all_gather_into_tensor(output, inputs[rank])
        for r in range(size):
            same(outputs[r], inputs[r], ("all_gather", dtype))
            same(output[r * SHAPE[0]:(r + 1) * SHAPE[0]], inputs[r], ("all_gather_into", dtype))

        blocks = [[make(r, dtype, seed=block) for block in range(size)] for r in range(size)]
        outputs = [torch.empty(SHAPE, dtype=dtype) for _ in range(size)]
        dist.all_to_all(outputs, blocks[rank])
        output = torch.empty((size * SHAPE[0], SHAPE[1]), dtype=dtype)
        dist.all_to_all_single(output, torch.cat(blocks[rank]))
        for r in range(size):
            same(outputs[r], blocks[r][rank], ("all_to_all", dtype))
            same(output[r * SHAPE[0]:(r + 1) * SHAPE[0]], blocks[r][rank], ("single", dtype))

        peer = (rank + 1) % size
        request = dist.isend(inputs[rank], peer)
        tensor = torch.empty(SHAPE, dtype=dtype)
        assert dist.recv(tensor, (rank - 1) % size) == (rank - 1) % size
        request.wait()
        same(tensor, inputs[(rank - 1) % size], ("recv", dtype))


@pytest.mark.parametrize("size", [2, 3])
def test_moves(size: int) -> None:
    run(size, moves)


def exchanged_in_place(rank: int, size: int) -> None:
    for count in (1, 100_000):
        rows = [rank + column + 1 for column in range(size)]  # as many come as go
        for splits, length in ((None, size * count), (rows, sum(rows))):
            tensor = torch.arange(float(length)) + 1000 * rank
            expected = torch.empty(length)
            dist.all_to_all_single(expected, tensor.clone(), splits, splits)
            dist.all_to_all_single(tensor, tensor, splits, splits)
            same(tensor, expected, (count, splits))
        blocks = [torch.full((count,), float(10 * rank + peer)) for peer in range(size)]
        dist.all_to_all(blocks, blocks)
        for peer in range(size):
            same(blocks[peer], torch.full((count,), float(10 * peer + rank)), (count, "list"))


@pytest.mark.parametrize("size", [2, 3])
def test_all_to_all_in_place(size: int) -> None:
    run(size, exchanged_in_place)


def premultiplied(rank: int, size: int) -> None:
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.complex64):
        inputs = _inputs(size, dtype)
        tensor = inputs[rank].clone()
        dist.all_reduce(tensor, dist._make_nccl_premul_sum(0.5))
        same(tensor, (sum(inputs) * 0.5).to(dtype), dtype)
    tensor = torch.ones(size * 4)
    output = torch.empty(4)
    dist.reduce_scatter_tensor(output, tensor, dist._make_nccl_premul_sum(torch.tensor([0.25])))
    same(output, torch.full((4,), size * 0.25))
    for dtype, factor in ((torch.int64, 0.5), (torch.uint8, -1.0), (torch.int8, torch.tensor([200]))):
        with pytest.raises(ValueError, match="the factor of PREMUL_SUM is"):
            dist.all_reduce(torch.ones(4, dtype=dtype), dist._make_nccl_premul_sum(factor))
    whole = torch.full((4,), rank + 1)
    dist.all_reduce(whole, dist._make_nccl_premul_sum(3.0))
    same(whole, torch.full((4,), 3 * sum(range(1, size + 1))))


def test_premultiplied() -> None:
    run(2, premultiplied)


def layouts(rank: int, size: int) -> None:
    inputs = [make(r, torch.float32, (6, 8)) for r in range(size)]
    expected = sum(inputs)

    transposed = inputs[rank].t().contiguous().t()
    assert not transposed.is_contiguous()
    dist.all_reduce(transposed)
    same(transposed, expected, "transposed")

    frame = torch.zeros(12, 8)
    frame[::2] = inputs[rank]
    dist.all_reduce(frame[::2])
    same(frame[::2], expected, "strided")
    assert frame[1::2].abs().sum() == 0, "what lies between is untouched"

    images = make(rank, torch.float32, (2, 3, 4, 4)).to(memory_format=torch.channels_last)
    dist.all_reduce(images)
    same(images, sum(make(r, torch.float32, (2, 3, 4, 4)) for r in range(size)), "channels last")

    # dist.all_gather() itself refuses a conjugate view; the backend takes it.
    conjugated = make(rank, torch.complex64).conj()
    output = [torch.empty(SHAPE, dtype=torch.complex64) for _ in range(size)]
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    backend.allgather([output], [conjugated]).wait()
    same(output[0], make(0, torch.complex64).conj().resolve_conj(), "conjugate")

    columns = torch.zeros(6, size)
    dist.all_gather(list(columns.unbind(1)), torch.full((6,), float(rank)))
    same(columns[0], torch.arange(size, dtype=torch.float32), "columns")

    column = torch.zeros(4, 2)
    peer = (rank + 1) % size
    request = dist.isend(torch.full((4, 2), float(rank))[:, 0], peer)
    dist.recv(column[:, 1], (rank - 1) % size)
    request.wait()
    assert column[:, 1].eq((rank - 1) % size).all() and column[:, 0].eq(0).all()

    parameter = torch.nn.Parameter(torch.full((3,), float(rank)))
    dist.broadcast(parameter, 0)
    assert parameter.eq(0).all()

    scalar = torch.tensor(float(rank))
    dist.all_reduce(scalar)
    assert scalar.item() == sum(range(size))


def test_layouts() -> None:
    run(3, layouts)


def empty(rank: int, size: int) -> None:
    nothing = torch.empty(0)
    dist.all_reduce(nothing)
    dist.broadcast(nothing, 0)
    dist.all_gather([torch.empty(0) for _ in range(size)], nothing)
    dist.all_gather_into_tensor(torch.empty(0), nothing)
    dist.reduce_scatter_tensor(torch.empty(0), nothing)
    dist.all_to_all_single(torch.empty(0), nothing)
    dist.all_to_all([torch.empty(0) for _ in range(size)], [torch.empty(0) for _ in range(size)])
    request = dist.isend(nothing, (rank + 1) % size)
    dist.recv(torch.empty(0), (rank - 1) % size)
    request.wait()
    dist.barrier()


def test_empty() -> None:
    run(2, empty)


def uneven(rank: int, size: int) -> None:
    # Rank r sends (r + peer) % size rows to its peer: some blocks are empty.
    sends = [(rank + peer) % size for peer in range(size)]
    receives = [(peer + rank) % size for peer in range(size)]
    source = torch.arange(sum(sends) * 2, dtype=torch.int16).view(-1, 2) + 100 * rank
    output = torch.empty((sum(receives), 2), dtype=torch.int16)
    dist.all_to_all_single(output, source, receives, sends)
    rows = []
    for peer in range(size):
        theirs = [(peer + r) % size for r in range(size)]
        all_rows = torch.arange(sum(theirs) * 2, dtype=torch.int16).view(-1, 2) + 100 * peer
        start = sum(theirs[:rank])
        rows.append(all_rows[start:start + theirs[rank]])
    same(output, torch.cat(rows))

    inputs = [torch.full((peer + rank,), float(rank)) for peer in range(size)]
    outputs = [torch.empty(peer + rank) for peer in range(size)]
    dist.all_to_all(outputs, inputs)
    for peer in range(size):
        same(outputs[peer], torch.full((peer + rank,), float(peer)))

    # Everything to rank 0.
    sends = [3 if peer == 0 else 0 for peer in range(size)]
    receives = [3 if rank == 0 else 0] * size
    output = torch.empty(sum(receives))
    dist.all_to_all_single(output, torch.full((3,), float(rank)), receives, sends)
    if rank == 0:
        same(output, torch.arange(size).float().repeat_interleave(3))

    outputs = [torch.empty(peer + 1) for peer in range(size)]
    dist.all_gather(outputs, torch.full((rank + 1,), float(rank)))
    for peer in range(size):
        same(outputs[peer], torch.full((peer + 1,), float(peer)))

    output = torch.empty(rank + 1)
    dist.reduce_scatter(output, [torch.full((peer + 1,), float(peer)) for peer in range(size)])
    same(output, torch.full((rank + 1,), float(rank * size)))


@pytest.mark.parametrize("size", [2, 3, 4])
def test_uneven(size: int) -> None:
    run(size, uneven)


def large(rank: int, size: int) -> None:
    count = 3_000_001
    tensor = torch.arange(count, dtype=torch.float32) + rank
    dist.all_reduce(tensor, Op.AVG)
    same(tensor, torch.arange(count, dtype=torch.float32) + (size - 1) / 2)
    output = torch.empty(size * count)
    dist.all_gather_into_tensor(output, tensor + rank)
    for r in range(size):
        same(output[r * count:(r + 1) * count], tensor + r)


def test_large() -> None:
    run(3, large)


def coalesced(rank: int, size: int) -> None:
    tensors = [torch.full((n,), float(rank)) for n in (1, 5, 9)]
    dist.all_reduce_coalesced(tensors)
    for tensor in tensors:
        assert tensor.eq(sum(range(size))).all()

    inputs = [torch.full((n,), float(rank)) for n in (2, 3)]
    outputs = [torch.empty(n * size) for n in (2, 3)]
    with dist._coalescing_manager(async_ops=True) as manager:
        for output, tensor in zip(outputs, inputs):
            dist.all_gather_into_tensor(output, tensor)
    manager.wait()
    for n, output in zip((2, 3), outputs):
        same(output, torch.arange(size).float().repeat_interleave(n))

    results = [torch.empty(n) for n in (2, 3)]
    with dist._coalescing_manager():
        for result, output in zip(results, outputs):
            dist.reduce_scatter_tensor(result, output)
    for result in results:
        assert result.eq(rank * size).all()

    lists = [[torch.empty(n) for n in (2, 3)] for _ in range(size)]
    dist.all_gather_coalesced(lists, inputs)
    for r in range(size):
        assert lists[r][1].eq(r).all()

    # The old way: each call inside reaches the backend.
    a, b = torch.ones(4), torch.ones(6)
    with dist._coalescing_manager(device=torch.device("cpu"), async_ops=True) as manager:
        dist.broadcast(a.mul_(rank), 0)
        dist.broadcast(b.mul_(rank), size - 1)
    manager.wait()
    assert a.eq(0).all() and b.eq(size - 1).all()


def test_coalesced() -> None:
    run(3, coalesced)


def objects(rank: int, size: int) -> None:
    gathered: list = [None] * size
    dist.all_gather_object(gathered, {"rank": rank, "text": "x" * rank})
    assert gathered == [{"rank": r, "text": "x" * r} for r in range(size)]
    received = [rank, "of", 0] if rank == 0 else [None] * 3
    dist.broadcast_object_list(received, 0)
    assert received == [0, "of", 0]
    mine: list = [None]
    dist.scatter_object_list(mine, [f"for {r}" for r in range(size)] if rank == 0 else None, 0)
    assert mine == [f"for {rank}"]
    collected = [None] * size if rank == 1 else None
    dist.gather_object(rank, collected, 1)
    assert rank != 1 or collected == list(range(size))


def test_objects() -> None:
    run(3, objects)


def refused(rank: int, size: int) -> None:
    def sentence(error: type[Exception], text: str, call: object, *args: object) -> None:
        with pytest.raises(error, match=text):
            call(*args)  # type: ignore[operator]

    group = dist.group.WORLD._get_backend(torch.device("cpu"))
    sparse = torch.eye(3).to_sparse()
    sentence(ValueError, "Sparse", group.broadcast, sparse, 0)
    sentence(ValueError, "integers and bool", dist.all_reduce, torch.ones(2), Op.BAND)
    sentence(ValueError, "AVG of bool", dist.all_reduce, torch.ones(2).bool(), Op.AVG)
    sentence(ValueError, "MAX of complex|all_reduce does not support", dist.all_reduce,
             torch.ones(2, dtype=torch.complex64), Op.MAX)
    sentence(ValueError, "lies on meta", group.broadcast, torch.empty(2, device="meta"), 0)
    sentence(ValueError, "the output has 5 elements, not", group._allgather_base, torch.empty(5),
             torch.ones(3))
    sentence((ValueError, RuntimeError), "add up to 1", dist.all_to_all_single, torch.empty(4),
             torch.empty(4), [1] + [0] * (size - 1), [4] + [0] * (size - 1))
    sentence((TypeError, ValueError, RuntimeError), "type", dist.all_gather_into_tensor,
             torch.empty(3 * size), torch.ones(3).double())
    # Nothing of this has harmed the group.
    tensor = torch.ones(3)
    dist.all_reduce(tensor)
    assert tensor.eq(size).all()
    assert FLOAT8


def test_refused() -> None:
    run(2, refused)


def failing_exchange(rank: int, size: int) -> None:
    """One rank's call fails amid its messages, because its tensor has changed: the other rank meets the next call."""
    store = dist.distributed_c10d._get_default_store()
    inputs = [torch.full((3,), 10.0 * rank + j) for j in range(size)]
    outputs = [torch.zeros(3) for _ in range(size)]
    if rank == 0:
        before = dist.all_reduce(torch.ones(1), async_op=True)  # the next call begins behind this one
        own = inputs[0].clone()
        work = dist.all_to_all(outputs, [own, *inputs[1:]], async_op=True)
        own.resize_(5)
        store.set("resized", "")
        before.wait()
        with pytest.raises(RuntimeError, match="shape"):
            work.wait()
        assert all(output.eq(0).all() for output in outputs)
    else:
        store.wait(["resized"])
        dist.all_reduce(torch.ones(1))
    dist.all_to_all(outputs, inputs)
    assert [output[0].item() for output in outputs] == [10.0 * j + rank for j in range(size)]


def test_an_all_to_all_that_fails_sends_nothing() -> None:
    run(2, failing_exchange)
