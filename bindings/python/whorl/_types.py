"""Element types and operators: those of numpy and of Python, and those of the library."""

from __future__ import annotations

import enum
from operator import index
from typing import Any, NamedTuple, Union

import numpy as np

from whorl._library import lib


class Kind(NamedTuple):
    """Element type of the library that stands for one of numpy."""

    code: int  # whorlDataType_t
    parts: int = 1  # elements of the library in one of numpy: 2 for complex numbers


_KINDS: dict[np.dtype[Any], Kind] = {
    np.dtype(name): Kind(int(code), parts)
    for name, code, parts in (
        ("int8", lib.whorlInt8, 1), ("uint8", lib.whorlUint8, 1), ("int16", lib.whorlInt16, 1),
        ("uint16", lib.whorlUint16, 1), ("int32", lib.whorlInt32, 1), ("uint32", lib.whorlUint32, 1),
        ("int64", lib.whorlInt64, 1), ("uint64", lib.whorlUint64, 1), ("float16", lib.whorlFloat16, 1),
        ("float32", lib.whorlFloat32, 1), ("float64", lib.whorlFloat64, 1), ("bool", lib.whorlBool, 1),
        ("complex64", lib.whorlFloat32, 2), ("complex128", lib.whorlFloat64, 2),
    )
}
# Types of the package ml_dtypes, which is not needed: an array of such a type brings it along.
BY_NAME = {
    "bfloat16": Kind(int(lib.whorlBfloat16)), "float8_e4m3fn": Kind(int(lib.whorlFloat8e4m3)),
    "float8_e5m2": Kind(int(lib.whorlFloat8e5m2)),
}


def kind_of(dtype: np.dtype[Any]) -> Kind | None:
    """Returns the element type of the library for one of numpy, or None if there is none."""
    kind = _KINDS.get(dtype)
    if kind is None:
        kind = BY_NAME.get(dtype.name)
        if kind is not None:
            _KINDS[dtype] = kind
    return kind


def supported() -> str:
    """Returns the names of the element types, for a message."""
    return ", ".join([str(dtype) for dtype in _KINDS if dtype.name not in BY_NAME] + list(BY_NAME))


def require_whole(number: Any, call: str, name: str) -> None:
    """Raises unless argument `name` of `call` is a whole number that an int of C has."""
    try:
        value = index(number)
    except TypeError:
        raise TypeError(f"{call}: {name} is {number!r}; it must be a whole number") from None
    if not -(2**31) <= value < 2**31:
        raise ValueError(f"{call}: {name} is {number}; it must fit in 32 bits")


class Op(enum.IntEnum):
    """Operators of reductions."""

    SUM = int(lib.whorlSum)
    PROD = int(lib.whorlProd)
    MAX = int(lib.whorlMax)
    MIN = int(lib.whorlMin)
    AVG = int(lib.whorlAvg)
    BAND = int(lib.whorlBand)
    BOR = int(lib.whorlBor)
    BXOR = int(lib.whorlBxor)


OpLike = Union[Op, str, "ScaledSum"]
_OPS = {op.name.lower(): op for op in Op}


class ScaledSum:
    """Operator that multiplies the input of this rank by a number, and sums (Communicator.scaled_sum())."""

    def __init__(self, code: int, dtype: np.dtype[Any], comm: Any) -> None:
        self.code, self.dtype, self._comm = code, dtype, comm

    def free(self) -> None:
        """Ends the operator. Operations that were issued are not affected."""
        self._comm._free_op(self)


def op_code(op: OpLike, call: str, dtype: np.dtype[Any], comm: Any) -> int:
    """Returns the number of an operator for elements of `dtype`."""
    if type(op) is Op and dtype.kind != "c":
        return op._value_
    if isinstance(op, ScaledSum):
        if op._comm is not comm or op.dtype != dtype:
            raise ValueError(f"{call}: op is a scaled sum of {op.dtype} of one communicator, and valid for these only")
        return op.code
    known = _OPS.get(op.lower()) if isinstance(op, str) else op if isinstance(op, Op) else None
    if known is None:
        raise ValueError(f"{call}: op is {op!r}; it must be one of {', '.join(_OPS)}, or a whorl.Op")
    if dtype.kind == "c" and known not in (Op.SUM, Op.AVG):
        raise ValueError(f"{call}: op is {known.name.lower()}, and complex numbers have sum and avg only")
    return int(known)
