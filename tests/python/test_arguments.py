"""What cannot be sent is refused by name, before anything is sent: the communicator is as good as before."""

from __future__ import annotations

import array
import ctypes
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import whorl

ones, wide = np.ones(4), np.ones((4, 4))
read_only = np.ones(4)
read_only.flags.writeable = False


@pytest.fixture(name="comm", scope="module")
def communicator() -> Iterator[whorl.Communicator]:
    with whorl.init() as comm:
        yield comm


def refuses(kind: type[Exception], text: str) -> Any:
    return pytest.raises(kind, match=text)


# Calls with what they raise and say; None: nothing.
WRONG: list[tuple[Callable[[whorl.Communicator], Any], type[Exception] | None, str]] = [
    (lambda c: c.Allreduce(wide[:, 1], ones.copy()), ValueError, "Allreduce: sendbuf is not contiguous"),
    (lambda c: c.Allreduce(ones, wide[:, 1]), ValueError, "Allreduce: recvbuf is not contiguous"),
    (lambda c: c.Allreduce(ones, read_only), ValueError, "Allreduce: recvbuf is read-only"),
    (lambda c: c.Allreduce(ones, np.ones(3)), ValueError, "recvbuf has 3 elements; with 4 in sendbuf it must have 4"),
    (lambda c: c.Allreduce(ones, np.ones(4, int)), TypeError, "sendbuf has elements of float64, and recvbuf of int64"),
    (lambda c: c.Allreduce(ones, whorl.IN_PLACE), ValueError, "recvbuf cannot be IN_PLACE"),
    (lambda c: c.Allreduce(ones, ones), None, ""),  # in place
    (lambda c: c.Allreduce(ones[:3], ones[1:]), whorl.ArgumentError, "overlap"),
    (lambda c: c.Allreduce(None, ones), TypeError, "Allreduce: sendbuf is a NoneType"),
    (lambda c: c.Allreduce([1, 2], ones), TypeError, "numbers go into a numpy array"),
    (lambda c: c.Allreduce([ones, 5], ones), ValueError, "sendbuf has 4 elements, and its count is 5"),
    (lambda c: c.Allreduce([ones, "int"], ones), TypeError, "sendbuf has 4 elements of float64, and the type says"),
    (lambda c: c.Allreduce([ones, "no type"], ones), TypeError, "the type of sendbuf is 'no type'"),
    (lambda c: c.Allreduce(ones.astype(">f8"), ones), TypeError, "sendbuf has bytes in the order of other machines"),
    (lambda c: c.Allreduce(np.array(["a"]), ones), TypeError, "sendbuf has elements of <U1; there are int8"),
    (lambda c: c.Allreduce(np.array([None]), ones), TypeError, "sendbuf has elements of object"),
    (lambda c: c.Allreduce(np.ones(2, np.longdouble), ones), TypeError, "sendbuf has elements of float128|longdouble"),
    (lambda c: c.Allreduce(b"1234", b"1234"), ValueError, "recvbuf is read-only"),
    (lambda c: c.allreduce(ones, "most"), ValueError, "allreduce: op is 'most'; it must be one of sum, prod"),
    (lambda c: c.allreduce(ones, 3), ValueError, "op is 3"),
    (lambda c: c.allreduce(ones, "bor"), whorl.ArgumentError, "whorlAllReduce on rank 0 of 1: op is bor"),
    (lambda c: c.allreduce(np.ones(2, complex), "max"), ValueError, "complex numbers have sum and avg only"),
    (lambda c: c.allreduce(ones, c.scaled_sum(2, "float32")), ValueError, "op is a scaled sum of float32"),
    (lambda c: c.allreduce(ones, out=np.ones(3)), ValueError, "out has 3 elements of float64; it must have 4"),
    (lambda c: c.allreduce(ones, out=[0] * 4), TypeError, "out is a list"),
    (lambda c: c.allreduce([[1], [2, 3]]), ValueError, "array cannot become an array"),
    (lambda c: c.allreduce("text"), TypeError, "array is a str"),
    (lambda c: c.allreduce({}), TypeError, "array is a dict; it must be a numpy array"),
    (lambda c: c.bcast(ones, root=0.0), TypeError, "bcast: root is 0.0; it must be a whole number"),
    (lambda c: c.bcast(ones, root=np.int64(0)), None, ""),
    (lambda c: c.Gather(ones, ones.copy(), "0"), TypeError, "Gather: root is '0'; it must be a whole number"),
    (lambda c: c.send(ones, None), TypeError, "send: dest is None; it must be a whole number"),
    (lambda c: c.send(ones, 2**40), ValueError, "send: dest is 1099511627776; it must fit in 32 bits"),
    (lambda c: c.split(0, -(2**40)), ValueError, "split: key is -1099511627776"),
    (lambda c: c.Recv(ones, 1.5), TypeError, "Recv: source is 1.5; it must be a whole number"),
    (lambda c: c.split("red"), TypeError, "split: color is 'red'; it must be a whole number"),
    (lambda c: c.shrink("1"), TypeError, "shrink: exclude is '1'; it must be a whole number"),
    (lambda c: c.set_timeout("1"), TypeError, "a timeout is a str; it must be a number of seconds"),
    (lambda c: whorl.Communicator.from_address(None, 1, 0), TypeError, "from_address: address is a NoneType"),
    (lambda c: c.bcast(ones, root=1), ValueError, "bcast: root is 1; it must be from 0 to 0"),
    (lambda c: c.Bcast(ones, -1), ValueError, "Bcast: root is -1"),
    (lambda c: c.Gather(ones), TypeError, "Gather: recvbuf is a NoneType"),
    (lambda c: c.Scatter(None, ones), TypeError, "Scatter: sendbuf is a NoneType"),
    (lambda c: c.Bcast(np.float64(1)), None, ""),  # the root only reads
    (lambda c: c.recv(np.float64(1), 0), TypeError, "out is a float64"),
    (lambda c: c.Alltoall(whorl.IN_PLACE, ones), ValueError, "Alltoall: sendbuf cannot be IN_PLACE: pass two buffers"),
    (lambda c: c.reduce_scatter(np.float64(1)), ValueError, "reduce_scatter: array has shape"),
    (lambda c: c.scatter(np.ones((2, 2))), ValueError, "scatter: array has shape"),
    (lambda c: c.send(ones, 9), whorl.ArgumentError, "whorlSend on rank 0 of 1: peer is 9"),
    (lambda c: c.Send(ones, 0, tag=3), ValueError, "Send: there are no tags"),
    (lambda c: c.Allgatherv(ones, ones.copy()), TypeError, r"recvbuf must be \[buffer, counts\]"),
    (lambda c: c.Allgatherv(ones, [ones.copy(), [5]]), ValueError, "recvbuf has 4 elements, and its blocks end at 5"),
    (lambda c: c.Allgatherv(ones, [ones.copy(), [2, 2]]), ValueError, "the counts of recvbuf must be 1 numbers"),
    (lambda c: c.Allgatherv(ones, [ones.copy(), [-4]]), ValueError, "the counts of recvbuf must be 1 numbers from 0"),
    (lambda c: c.Allgatherv(ones, [ones.copy(), [4], [1]]), ValueError, "its blocks end at 5"),
    (lambda c: c.Allgatherv(ones, [ones.copy(), "ab", "f8"]), TypeError, "counts of recvbuf must be whole numbers"),
    (lambda c: c.Allgatherv(ones, [ones.copy(), [4.5]]), TypeError, "counts of recvbuf must be whole numbers"),
    (lambda c: c.Reduce_scatter(ones, ones.copy(), [3]), ValueError, "sendbuf has 4 elements; with 3 in recvcounts"),
    (lambda c: c.allreduce(ones, stream="s"), TypeError, "allreduce: stream is a str; it must be a whorl.Stream"),
    (lambda c: c.set_timeout(0), ValueError, "a timeout is 0 s"),
    (lambda c: c.split(-5), whorl.ArgumentError, "color"),
    (lambda c: c.split(0, tempo=3), TypeError, "there is no option 'tempo' of a communicator; there are timeout"),
    (lambda c: c.split(0, name=3), TypeError, "option name is 3; it must be a str"),
    (lambda c: c.split(0, memory_budget=-1), ValueError, "option memory_budget is -1, which is out of range"),
    (lambda c: c.shrink([]), ValueError, "exclude is empty"),
    (lambda c: c.shrink([7]), whorl.ArgumentError, "7"),
    (lambda c: c.grow(0, c.grow_id()), whorl.ArgumentError, "nRanks is the new number of ranks, larger than 1"),
    (lambda c: c.grow(2, b"id"), TypeError, "unique_id must be the 128 bytes of whorl.unique_id"),
    (lambda c: c.grow(2), whorl.UsageError, "exactly one rank has to"),
    (lambda c: c.grow(2, c.grow_id(), timeout=0.2), whorl.RemoteError, "rank 1"),
    (lambda c: c.join(bytes(128), 2, 1), whorl.ArgumentError, "id"),
    (lambda c: c.scaled_sum(0.5, "int32"), ValueError, "scaled_sum: scalar is 0.5, which is no number of int32"),
    (lambda c: c.scaled_sum(-1, "uint8"), ValueError, "scalar is -1, which is no number of uint8"),
    (lambda c: c.scaled_sum(256.0, "uint8"), ValueError, "scalar is 256.0, which is no number of uint8"),
    (lambda c: c.scaled_sum([2, 3], "float32"), TypeError, r"scalar is \[2, 3\]; it must be one real number"),
    (lambda c: c.scaled_sum(2j, "float32"), TypeError, "it must be one real number"),
    (lambda c: c.scaled_sum(2, "complex64"), TypeError, "there is no scaled sum of complex64"),
    (lambda c: whorl.mem_alloc(1.5), TypeError, "mem_alloc: shape is 1.5; it must be a whole number"),
    (lambda c: whorl.mem_alloc(2**62), ValueError, "bytes of float64 exceed the address space"),
]


@pytest.mark.parametrize("number", range(len(WRONG)))
def test_refused(comm: whorl.Communicator, number: int) -> None:
    call, kind, text = WRONG[number]
    if kind is not None:
        with pytest.raises(kind, match=text):
            call(comm)
    else:
        call(comm)
    assert comm.allreduce(1) == 1


def test_creation() -> None:
    with refuses(TypeError, "unique_id must be the 128 bytes of whorl.unique_id"):
        whorl.Communicator("id", 1, 0)  # type: ignore[arg-type]
    with refuses(TypeError, "not bytes of 3"):
        whorl.Communicator(b"123", 1, 0)
    with refuses(whorl.ArgumentError, "unique|id"):
        whorl.Communicator(bytes(128), 1, 0)
    with refuses(whorl.ArgumentError, "rank is 4"):
        whorl.Communicator(whorl.unique_id(), 2, 4)
    with refuses(whorl.Error, "nowhere"):
        whorl.Communicator.from_address("nowhere", 2, 0)
    with refuses(ValueError, "size is 0"):
        whorl.init_all(0)
    with refuses(whorl.UsageError, "cannot be made within a group"), whorl.group():
        whorl.init()


class Mpi4py:
    """Communicator of mpi4py as far as from_mpi4py() sees it, of a rank that gets `answer` where it is not the root."""

    def __init__(self, rank: int, answer: Any = None) -> None:
        self.rank, self.answer = rank, answer

    def Get_rank(self) -> int:
        return self.rank

    def bcast(self, value: Any, root: int) -> Any:
        if self.rank == root:
            self.answer = value
        return self.answer


def test_a_failure_of_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> bytes:
        raise whorl.SystemCallError("there is no memory")

    monkeypatch.setattr("whorl._communicator.unique_id", fail)
    root = Mpi4py(0)
    with refuses(whorl.SystemCallError, "there is no memory"):
        whorl.Communicator.from_mpi4py(root)
    with refuses(whorl.RemoteError, "rank 0 could not make the id of the communicator: there is no memory"):
        whorl.Communicator.from_mpi4py(Mpi4py(1, root.answer))


def test_after_the_end() -> None:
    comm = whorl.init()
    comm.free()
    for call in (lambda: comm.allreduce(1), lambda: comm.error, comm.describe, comm.split, comm.revoke):
        with refuses(whorl.UsageError, "has been freed or aborted"):
            call()
    comm.abort()
    comm.free()
    stream = whorl.Stream()
    stream.free()
    stream.free()
    with refuses(ValueError, "the stream has been freed"):
        stream.synchronize()


def test_groups(comm: whorl.Communicator) -> None:
    with whorl.group():
        with whorl.group():
            total = comm.allreduce(np.full(3, 2.0))
        with refuses(ValueError, "the rank is not known before the group ends"):
            comm.recv_any(np.zeros(1))
    assert total.tolist() == [2, 2, 2]
    untouched = np.zeros(1)
    with refuses(KeyError, "mine"), whorl.group():
        comm.Allreduce(np.ones(1), untouched)
        raise KeyError("mine")
    assert untouched[0] == 0  # nothing was issued
    with refuses(whorl.UsageError, "a group within this one has raised: none of the calls was issued"), whorl.group():
        comm.Allreduce(np.ones(1), untouched)
        with refuses(KeyError, "inner"), whorl.group():
            raise KeyError("inner")
    assert untouched[0] == 0
    for derive in (comm.split, comm.Dup, lambda: comm.Split(0), lambda: comm.shrink(exclude=[1])):
        with refuses(whorl.UsageError, "communicators cannot be made within a group"), whorl.group():
            derive()
    assert comm.allreduce(1) == 1


def test_buffer_protocol(comm: whorl.Communicator) -> None:
    got = bytearray(4)
    comm.Allreduce(b"\x01\x02\x03\x04", got)
    assert got == b"\x01\x02\x03\x04"
    floats = array.array("f", [1.5, 2.5])
    assert comm.allreduce(floats).dtype == np.float32
    comm.Allreduce(memoryview(floats), memoryview(floats))
    comm.Allreduce([bytes(8), "i4"], [bytearray(8), 2, whorl.INT])
    numbers = (ctypes.c_int * 3)(1, 2, 3)
    assert comm.allgather(numbers).tolist() == [[1, 2, 3]]
    with refuses(ValueError, "not contiguous"):
        comm.allreduce(memoryview(array.array("f", [1, 2, 3]))[::2])
    with refuses(BufferError, "re-sized"), whorl.group():
        comm.Allreduce(got, bytearray(4))
        got.append(1)  # belongs to the call until the group ends
    got.append(1)


class Foreign:
    """Tensor of another library, over a numpy array; before version 1.0 of DLPack if `old`."""

    def __init__(self, array: np.ndarray, old: bool = False) -> None:
        self.array, self.old = array, old

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()

    def __dlpack__(self, **how: Any) -> Any:
        if self.old and how:
            raise TypeError("unexpected keyword")
        return self.array.__dlpack__(**how)


@pytest.mark.parametrize("old", [False, True])
def test_dlpack(comm: whorl.Communicator, old: bool) -> None:
    source, target = np.arange(4.0), np.zeros(4)
    comm.Allreduce(Foreign(source, old), Foreign(target, old))
    assert target.tolist() == [0, 1, 2, 3]
    assert comm.allreduce(Foreign(np.ones(3, np.int16), old)).dtype == np.int16
    with refuses(ValueError, "array is not contiguous: pass value.contiguous"):
        comm.allreduce(Foreign(np.ones((3, 3))[:, 1], old))
    if not old:
        with refuses(ValueError, "recvbuf is read-only"):
            comm.Allreduce(source, Foreign(read_only))
    with refuses(TypeError, "array, a Foreign, cannot be passed on by DLPack"):
        comm.allreduce(Foreign(np.array(["a"]), old))


def on_device(kind: int) -> Any:
    """Returns a tensor whose capsule says that it is in the memory of a device."""
    from whorl import _dlpack

    tensor, shape = _dlpack._Tensor(), (ctypes.c_int64 * 1)(4)
    tensor.data, tensor.ndim, tensor.shape = 4096, 1, shape
    tensor.device.kind = kind
    tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes = 2, 32, 1
    make = ctypes.pythonapi.PyCapsule_New
    make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]

    class Tensor:
        def __dlpack__(self) -> Any:
            return make(ctypes.addressof(tensor), b"dltensor", None)

    return Tensor()


def test_devices(comm: whorl.Communicator) -> None:
    with refuses(TypeError, r"a device that whorl does not know \(DLPack's type 8\): copy the tensor to the host"):
        comm.allreduce(on_device(8))
    from whorl._library import ffi, lib

    able = ffi.new("int*")
    lib.whorlDeviceSupport(able)
    if not able[0]:
        with refuses(ValueError, "array is in the memory of a device, and libwhorl cannot reach devices here: .{20}"):
            comm.allreduce(on_device(2))
