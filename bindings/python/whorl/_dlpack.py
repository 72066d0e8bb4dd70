"""Reads what `__dlpack__()` gives: the address and shape of a tensor of another library, without a copy.

numpy.from_dlpack() knows neither bfloat16 nor devices, so the structures of DLPack are read here. The capsule is not
consumed: its own destructor frees the tensor when the buffer is dropped.
"""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

CPU, CUDA, CUDA_HOST, CUDA_MANAGED = 1, 2, 3, 13
READ_ONLY = 1

# Names of element types by DLDataTypeCode and bits.
NAMES = {
    (0, 8): "int8", (0, 16): "int16", (0, 32): "int32", (0, 64): "int64",
    (1, 8): "uint8", (1, 16): "uint16", (1, 32): "uint32", (1, 64): "uint64",
    (2, 16): "float16", (2, 32): "float32", (2, 64): "float64", (4, 16): "bfloat16",
    (5, 64): "complex64", (5, 128): "complex128", (6, 8): "bool",
    (10, 8): "float8_e4m3fn", (12, 8): "float8_e5m2",
}


class _Device(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_int32), ("number", ctypes.c_int32)]


class _Type(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p), ("device", _Device), ("ndim", ctypes.c_int32), ("dtype", _Type),
        ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class _Versioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("manager", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p), ("flags", ctypes.c_uint64), ("tensor", _Tensor),
    ]


_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.restype, _pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
_is_valid = ctypes.pythonapi.PyCapsule_IsValid
_is_valid.restype, _is_valid.argtypes = ctypes.c_int, [ctypes.py_object, ctypes.c_char_p]


class Tensor(NamedTuple):
    """Tensor of another library."""

    address: int
    items: int
    dtype: str  # name of the element type; empty: none that is known
    device: int  # DLDeviceType
    read_only: bool
    contiguous: bool
    capsule: object  # keeps the tensor alive


def _capsule_of(value: Any) -> object:
    try:
        return value.__dlpack__(max_version=(1, 0))  # says whether the tensor may be written
    except TypeError:
        return value.__dlpack__()  # before version 1.0 of DLPack


def tensor_of(value: Any) -> Tensor:
    """Reads the capsule of an object that has `__dlpack__`; raises what that raises."""
    negated = getattr(value, "is_neg", None)  # of torch, which exports such memory as it is
    if negated is not None and negated():
        raise BufferError("it has torch's negative bit: pass tensor.resolve_neg()")
    capsule = _capsule_of(value)
    flags = 0
    if _is_valid(capsule, b"dltensor_versioned"):
        versioned = _Versioned.from_address(_pointer_of(capsule, b"dltensor_versioned"))
        if versioned.major != 1:
            raise BufferError(f"the tensor has version {versioned.major} of DLPack, and 1 is known here")
        tensor, flags = versioned.tensor, versioned.flags
    else:
        tensor = _Tensor.from_address(_pointer_of(capsule, b"dltensor"))
    items, contiguous = 1, True
    for axis in reversed(range(tensor.ndim)):
        size = tensor.shape[axis]
        if tensor.strides and size != 1 and tensor.strides[axis] != items:
            contiguous = False
        items *= size
    name = NAMES.get((tensor.dtype.code, tensor.dtype.bits), "") if tensor.dtype.lanes == 1 else ""
    return Tensor((tensor.data or 0) + tensor.byte_offset, items, name, tensor.device.kind,
                  bool(flags & READ_ONLY), contiguous or items == 0, capsule)
