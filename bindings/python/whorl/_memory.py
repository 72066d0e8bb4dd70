"""Memory that the other ranks of the host can map."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from whorl._errors import check
from whorl._library import ffi, lib


def mem_alloc(shape: int | Sequence[int], dtype: Any = np.float64) -> np.ndarray[Any, Any]:
    """Returns a new array, not zeroed, in memory of whorlMemAlloc(): operations on it need no staging copy.

    The memory is freed with the last array over it. A child of fork() shares the pages with its parent.
    """
    sizes = (shape,) if isinstance(shape, (int, np.integer)) else tuple(shape)
    kind = np.dtype(dtype)
    if kind.hasobject:
        raise TypeError(f"mem_alloc: dtype is {kind}; memory that others map cannot hold Python objects")
    if any(size < 0 for size in sizes):
        raise ValueError(f"mem_alloc: shape is {sizes}; no size may be negative")
    items = math.prod(int(size) for size in sizes)
    size = items * kind.itemsize
    if size == 0:
        return np.empty(sizes, kind)
    cell = ffi.new("void**")
    check(lib.whorlMemAlloc(cell, size))
    owner = os.getpid()

    def free(pointer: Any) -> None:
        if os.getpid() == owner:
            lib.whorlMemFree(pointer)

    memory = ffi.buffer(ffi.gc(cell[0], free, size), size)
    array: np.ndarray[Any, Any] = np.frombuffer(memory, np.uint8).view(kind).reshape(sizes)
    return array
