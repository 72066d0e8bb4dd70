"""Operations that return arrays, against numpy, for every element type and in all forms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import whorl
from ranks import run

DTYPES = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64",
          "complex64", "complex128"]


def value(rank: int, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    return np.asarray(np.arange(np.prod(shape, dtype=int)).reshape(shape) % 5 + rank).astype(dtype)


def all_operations(comm: whorl.Communicator, dtypes: list[Any]) -> None:
    rank, size, equal = comm.rank, comm.size, np.testing.assert_array_equal
    for dtype in dtypes:
        for shape in ((), (7,), (size, 2, 3), (size, 0)):
            mine = value(rank, shape, dtype)
            everyones = np.stack([value(other, shape, dtype) for other in range(size)])
            total = np.asarray(everyones.sum(0)).astype(mine.dtype)
            result = comm.allreduce(mine)
            assert result.shape == shape and result.dtype == mine.dtype
            equal(result, total)
            out = np.empty_like(mine)
            assert comm.allreduce(mine, out=out) is out
            equal(out, total)
            in_place = mine.copy()
            equal(comm.allreduce(in_place, out=in_place), total)
            reduced = comm.reduce(mine, root=1)
            assert (reduced is None) == (rank != 1)
            if rank == 1:
                equal(reduced, total)
            equal(comm.allgather(mine), everyones)
            gathered = comm.gather(mine, root=size - 1)
            assert (gathered is None) == (rank != size - 1)
            if rank == size - 1:
                equal(gathered, everyones)
            copy = mine.copy()
            assert comm.bcast(copy, root=1) is copy
            equal(copy, everyones[1])
            if len(shape) > 1:
                equal(comm.reduce_scatter(mine), total[rank:rank + 1])
                equal(comm.alltoall(mine), everyones[:, rank])
                part = np.empty(shape[1:], mine.dtype)
                equal(comm.scatter(mine if rank == 1 else None, root=1, out=part), everyones[1][rank])
    if rank == 0:
        assert comm.scatter(np.arange(size), root=0) == 0
    else:
        assert comm.scatter(root=0, out=np.zeros((), int)) == rank


def test_every_element_type() -> None:
    run(3, all_operations, DTYPES)


def small_types(comm: whorl.Communicator) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2"):
        dtype = np.dtype(getattr(ml_dtypes, name))
        for shape in ((), (5,)):
            ones = np.ones(shape, dtype)
            result = comm.allreduce(ones)
            assert result.dtype == dtype and result.shape == shape
            np.testing.assert_array_equal(result.astype(float), np.full(shape, comm.size))
            comm.Allreduce(whorl.IN_PLACE, ones, "max")


def test_types_of_ml_dtypes() -> None:
    pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed (pip install ml_dtypes)")
    run(2, small_types)


def operators(comm: whorl.Communicator) -> None:
    rank, size, equal = comm.rank, comm.size, np.testing.assert_array_equal
    mine = np.array([rank + 1, 5, 2 * rank], np.int64)
    everyones = np.array([[other + 1, 5, 2 * other] for other in range(size)], np.int64)
    for op, expected in (
        ("sum", everyones.sum(0)), ("prod", everyones.prod(0)), ("max", everyones.max(0)), ("min", everyones.min(0)),
        ("avg", everyones.sum(0) // size), ("band", np.bitwise_and.reduce(everyones)),
        ("BOR", np.bitwise_or.reduce(everyones)), (whorl.BXOR, np.bitwise_xor.reduce(everyones)),
    ):
        equal(comm.allreduce(mine, op), expected, err_msg=str(op))
    equal(comm.allreduce(np.array([1j * rank]), "avg"), [1j * (size - 1) / 2])
    truth = np.array([rank == 0, True, False])
    equal(comm.allreduce(truth, "max"), [True, True, False])
    equal(comm.allreduce(truth, "min"), [False, True, False])
    halves = comm.scaled_sum(0.5, np.float32)
    equal(comm.allreduce(np.full(3, 2.0, np.float32), halves), np.full(3, size, np.float32))
    halves.free()


def test_operators() -> None:
    run(3, operators)


def messages(comm: whorl.Communicator) -> None:
    rank, size = comm.rank, comm.size
    to, of = (rank + 1) % size, (rank - 1) % size
    got = np.zeros(3, int)
    comm.Sendrecv(np.full(3, rank), to, recvbuf=got, source=of)
    assert got.tolist() == [of] * 3
    comm.Sendrecv(np.full(3, rank), to, recvbuf=got, source=whorl.ANY_SOURCE)
    assert got.tolist() == [of] * 3
    comm.Barrier()  # so that nobody's next message comes before
    if rank == 0:
        sources = {comm.recv_any(got): got[0] for _ in range(size - 1)}
        assert sources == {other: 10 * other for other in range(1, size)}
    else:
        comm.send(np.full(3, 10 * rank), 0)
    comm.Barrier()
    if rank == 0:
        comm.Recv(got)  # from anybody: rank 1
        assert got[0] == 5
    elif rank == 1:
        comm.Send(np.full(3, 5), 0, tag=0)
    comm.Barrier()  # rank 2 must not leave while rank 0 waits for whichever rank sends


def test_messages() -> None:
    run(3, messages)


def divided(comm: whorl.Communicator) -> None:
    part = comm.split(comm.rank % 2, key=-comm.rank)
    assert part is not None
    assert part.size == 2 and part.rank == (0 if comm.rank >= 2 else 1)
    assert part.allreduce(comm.rank) == (2 if comm.rank % 2 == 0 else 4)
    part.Free()
    assert comm.split(None if comm.rank == 0 else 1, name="the others", timeout=7) is None or comm.rank != 0
    again = comm.Dup()
    assert again is not None and (again.rank, again.size) == (comm.rank, comm.size)
    again.free()
    again.free()  # a second time does nothing
    rest = comm.shrink([3], abort=False) if comm.rank != 3 else None
    if rest is not None:
        assert rest.size == 3 and rest.allreduce(1) == 3
        rest.free()
    comm.set_timeout(5)
    comm.barrier()


def test_split_and_shrink() -> None:
    run(4, divided)


def grown(comm: whorl.Communicator) -> None:
    few = comm.split(None if comm.rank == 2 else 0)
    identity = few.grow_id() if few is not None and few.rank == 1 else bytes(128)
    carried = comm.bcast(np.array(bytearray(identity)), root=1).tobytes()
    if few is None:
        more = whorl.Communicator.join(carried, 3, 2)
    else:
        more = few.grow(3, carried if few.rank == 1 else None, name="more")
        assert few.allreduce(1) == 2
    assert (more.rank, more.size) == (comm.rank, 3)
    np.testing.assert_array_equal(more.allgather(comm.rank), [0, 1, 2])
    more.free()


def test_grow() -> None:
    run(3, grown)


def in_memory_of_the_heap(comm: whorl.Communicator) -> None:
    array = whorl.mem_alloc((3, 50_000), np.float32)
    array[...] = comm.rank
    total = comm.allreduce(array, out=whorl.mem_alloc((3, 50_000), "float32"))
    assert total.shape == (3, 50_000) and (total == 1).all()
    np.testing.assert_array_equal(np.from_dlpack(total), total)
    assert whorl.mem_alloc(0).size == 0 and whorl.mem_alloc(np.int64(4)).shape == (4,)


def test_memory_of_the_heap() -> None:
    run(2, in_memory_of_the_heap)
    with pytest.raises(TypeError, match="cannot hold Python objects"):
        whorl.mem_alloc(3, object)
    with pytest.raises(ValueError, match="no size may be negative"):
        whorl.mem_alloc((3, -1))
