"""Arguments of calls as pointers, counts and element types; refuses what cannot be sent, before anything is.

A buffer is a numpy array, an object with `__dlpack__` (of torch, jax, cupy …), or one with the buffer protocol
(bytearray, memoryview, array.array …).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import index
from typing import Any

import numpy as np

from whorl import _dlpack
from whorl._errors import text
from whorl._library import NULL, ffi, lib
from whorl._types import BY_NAME, Kind, kind_of, supported


class Buffer:
    """Memory that an operation reads or writes. Keeps the object alive that the memory belongs to."""

    __slots__ = ("pointer", "items", "kind", "dtype", "owner", "on_device")

    def __init__(self, pointer: Any, items: int, kind: Kind, dtype: np.dtype[Any], owner: object,
                 on_device: bool = False) -> None:
        self.pointer, self.items, self.kind, self.dtype, self.owner = pointer, items, kind, dtype, owner
        self.on_device = on_device

    @property
    def count(self) -> int:
        """The number of elements as the library counts them."""
        return self.items * self.kind[1]

    def at(self, items: int) -> Any:
        """Returns the pointer to an element."""
        return self.pointer + items * self.dtype.itemsize if items else self.pointer


def _from_array(value: np.ndarray[Any, Any], call: str, name: str, write: bool) -> Buffer:
    dtype = value.dtype
    kind = kind_of(dtype)
    if kind is None:
        why = "has bytes in the order of other machines" if not dtype.isnative else f"has elements of {dtype}"
        raise TypeError(f"{call}: {name} {why}; there are {supported()}")
    flags = value.flags
    if not flags.c_contiguous:
        remedy = ("receive into a contiguous array, and copy from there" if write
                  else "pass numpy.ascontiguousarray() of the array")
        raise ValueError(f"{call}: {name} is not contiguous in C order (shape {value.shape}, strides "
                         f"{value.strides}): {remedy}")
    if write and not flags.writeable:
        raise ValueError(f"{call}: {name} is read-only, and the call writes to the array: pass a copy of the array")
    plain = value if dtype.kind in "biufc" else value.reshape(-1).view(np.uint8)
    return Buffer(ffi.from_buffer(plain), value.size, kind, dtype, value)


def dtype_named(name: str) -> np.dtype[Any]:
    """Returns the dtype of a name, also of those that ml_dtypes adds."""
    if name not in BY_NAME:
        return np.dtype(name)
    try:
        import ml_dtypes
    except ImportError:
        raise TypeError(f"elements of {name} need the package ml_dtypes: pip install ml_dtypes") from None
    dtype: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
    return dtype


def _require_devices(call: str, name: str) -> None:
    """Raises unless the library takes memory of devices."""
    able = ffi.new("int*")
    lib.whorlDeviceSupport(able)
    if not able[0]:
        raise ValueError(f"{call}: {name} is in the memory of a device, and libwhorl cannot reach devices here: "
                         f"{text(lib.whorlGetLastError(NULL))}")


def _from_dlpack(value: Any, call: str, name: str, write: bool) -> Buffer:
    try:
        tensor = _dlpack.tensor_of(value)
        if not tensor.dtype:
            raise TypeError(f"its elements have none of the types {supported()}")
        dtype = dtype_named(tensor.dtype)
    except Exception as error:
        raise TypeError(f"{call}: {name}, a {type(value).__name__}, cannot be passed on by DLPack: {error}") from error
    if tensor.device == _dlpack.CUDA:
        _require_devices(call, name)
    elif tensor.device not in (_dlpack.CPU, _dlpack.CUDA_HOST, _dlpack.CUDA_MANAGED):
        raise TypeError(f"{call}: {name} is in the memory of a device that whorl does not know (DLPack's type "
                        f"{tensor.device}): copy the tensor to the host")
    if not tensor.contiguous:
        raise ValueError(f"{call}: {name} is not contiguous: pass value.contiguous(), or a copy")
    if write and tensor.read_only:
        raise ValueError(f"{call}: {name} is read-only, and the call writes to the tensor: pass a copy")
    kind = kind_of(dtype)
    assert kind is not None  # of every name in _dlpack.NAMES
    return Buffer(ffi.cast("char*", tensor.address), tensor.items, kind, dtype, (value, tensor.capsule),
                  tensor.device == _dlpack.CUDA)


def buffer_of(value: Any, call: str, name: str, write: bool) -> Buffer:
    """Returns the memory of argument `name` of `call`; raises TypeError or ValueError where there is none to use."""
    if isinstance(value, np.ndarray):
        return _from_array(value, call, name, write)
    if hasattr(value, "__dlpack__") and not isinstance(value, np.generic):
        return _from_dlpack(value, call, name, write)
    try:
        if write and isinstance(value, np.generic):
            raise TypeError("a number cannot be written to")
        array = np.asarray(memoryview(value))
    except (TypeError, ValueError, BufferError) as error:
        raise TypeError(f"{call}: {name} is a {type(value).__name__}; it must be a numpy array, or an object with "
                        f"DLPack or the buffer protocol") from error
    return _from_array(array, call, name, write)


def input_of(value: Any, call: str, name: str) -> tuple[Buffer, tuple[int, ...]]:
    """Returns the memory and shape of an array to be sent; numbers and lists become arrays."""
    if isinstance(value, (int, float, complex, list, tuple, np.generic)):
        try:
            value = np.asarray(value)
        except ValueError as error:
            raise ValueError(f"{call}: {name} cannot become an array: {error}") from error
    buffer = buffer_of(value, call, name, False)
    shape = getattr(value, "shape", None)
    return buffer, (buffer.items,) if shape is None else tuple(int(size) for size in shape)


def output_of(out: Any, shape: tuple[int, ...], like: Buffer, call: str) -> tuple[Any, Buffer]:
    """Returns `out` and its memory, after a check; if `out` is None, those of a new array of `shape`."""
    if out is None and like.on_device:
        raise ValueError(f"{call}: array is in the memory of a device: pass out, a tensor of the same device")
    if out is None:
        out = np.empty(shape, like.dtype)
        return out, _from_array(out, call, "out", True)
    buffer = buffer_of(out, call, "out", True)
    items = math.prod(shape)
    if buffer.dtype != like.dtype or buffer.items != items:
        kind = TypeError if buffer.dtype != like.dtype else ValueError
        raise kind(f"{call}: out has {buffer.items} elements of {buffer.dtype}; it must have {items} of {like.dtype}")
    return out, buffer


def with_type(value: Any, call: str, name: str, write: bool, blocks: int = 1) -> Buffer:
    """Returns the memory of an argument in mpi4py's manner: a buffer, or `[buffer, count, type]` without one or both
    of the latter. The count is that of each of `blocks` blocks, as in MPI."""
    if isinstance(value, np.ndarray):
        return _from_array(value, call, name, write)
    if not isinstance(value, (list, tuple)):
        return buffer_of(value, call, name, write)
    parts = list(value)
    if not parts or len(parts) > 3 or isinstance(parts[0], (int, float, complex)):
        raise TypeError(f"{call}: {name} is a {type(value).__name__} that is not [buffer, count, type], with count or "
                        f"type or neither; numbers go into a numpy array")
    buffer = buffer_of(parts[0], call, name, write)
    for part in parts[1:]:
        if part is not None and not isinstance(part, (int, np.integer)):
            _retype(buffer, part, call, name)
    for part in parts[1:]:
        if isinstance(part, (int, np.integer)):
            if not 0 <= int(part) * blocks <= buffer.items:
                each = f" for each of {blocks} ranks" if blocks != 1 else ""
                raise ValueError(f"{call}: {name} has {buffer.items} elements, and its count is {part}{each}")
            buffer.items = int(part) * blocks
    return buffer


def _retype(buffer: Buffer, dtype: Any, call: str, name: str) -> None:
    """Has bytes mean elements of `dtype`; others must be of `dtype` already."""
    try:
        wanted = np.dtype(dtype)
    except TypeError as error:
        raise TypeError(f"{call}: the type of {name} is {dtype!r}; it must be a numpy.dtype, or one of whorl's, as "
                        f"whorl.DOUBLE") from error
    kind = kind_of(wanted)
    if kind is None:
        raise TypeError(f"{call}: the type of {name} is {wanted}; there are {supported()}")
    if wanted == buffer.dtype:
        return
    if buffer.dtype != np.dtype(np.uint8) or buffer.items % wanted.itemsize:
        raise TypeError(f"{call}: {name} has {buffer.items} elements of {buffer.dtype}, and the type says {wanted}")
    buffer.items, buffer.kind, buffer.dtype = buffer.items // wanted.itemsize, kind, wanted


class Blocks:
    """Blocks of one buffer, one for each rank: counts and displacements in elements of numpy."""

    def __init__(self, buffer: Buffer, counts: Sequence[int], displs: Sequence[int] | None) -> None:
        self.buffer, self.counts, self.displs = buffer, list(counts), None if displs is None else list(displs)

    @classmethod
    def checked(cls, buffer: Buffer, counts: Any, displs: Any, call: str, name: str, of_counts: str,
                size: int) -> Blocks:
        """Returns the blocks after a check that they lie within the buffer."""
        blocks = cls(buffer, _numbers(counts, of_counts, call, size),
                     None if displs is None else _numbers(displs, f"the displs of {name}", call, size))
        end = max(blocks.start(rank) + blocks.counts[rank] for rank in range(size))
        if end > buffer.items:
            raise ValueError(f"{call}: {name} has {buffer.items} elements, and its blocks end at {end}")
        return blocks

    def _array(self, numbers: Sequence[int]) -> Any:
        parts = self.buffer.kind.parts
        return ffi.new("size_t[]", [number * parts for number in numbers])

    @property
    def c_counts(self) -> Any:
        return self._array(self.counts)

    @property
    def c_displs(self) -> Any:
        return NULL if self.displs is None else self._array(self.displs)

    def start(self, rank: int) -> int:
        """Returns the place of the block of a rank."""
        return sum(self.counts[:rank]) if self.displs is None else self.displs[rank]


def _numbers(values: Any, what: str, call: str, size: int) -> list[int]:
    try:
        numbers = [index(value) for value in values]
    except TypeError as error:
        raise TypeError(f"{call}: {what} must be whole numbers, one for each rank, not {values!r}") from error
    if len(numbers) != size or min(numbers) < 0:
        raise ValueError(f"{call}: {what} must be {size} numbers from 0 on, one for each rank, not {numbers}")
    return numbers


def blocks_of(value: Any, call: str, name: str, size: int, write: bool) -> Blocks:
    """Returns the blocks of an argument in mpi4py's manner: `[buffer, counts]`, `[buffer, counts, displs]` or
    `[buffer, (counts, displs)]`, and a type at the end if wanted."""
    parts = list(value) if isinstance(value, (list, tuple)) else []
    if len(parts) < 2 or len(parts) > 4:
        raise TypeError(f"{call}: {name} must be [buffer, counts] or [buffer, counts, displs], and a type at the end "
                        f"if wanted")
    buffer = buffer_of(parts[0], call, name, write)
    rest = parts[1:]
    if isinstance(rest[-1], (str, type, np.dtype)):
        _retype(buffer, rest.pop(), call, name)
    if not rest or len(rest) > 2:
        raise TypeError(f"{call}: {name} has no counts: pass [buffer, counts]")
    if len(rest) == 1 and isinstance(rest[0], tuple) and len(rest[0]) == 2 and not isinstance(
            rest[0][0], (int, np.integer)):
        rest = list(rest[0])
    return Blocks.checked(buffer, rest[0], rest[1] if len(rest) == 2 else None, call, name, f"the counts of {name}",
                          size)
