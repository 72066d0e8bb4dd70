"""Memory that the other ranks of the host can map."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from whorl._errors import check
from whorl._library import ffi, lib


def mem_alloc(shape: int | Sequence[int], dtype: Any = np.float64) -> np.ndarray[Any, Any]:
    """Returns a new array, not zeroed, in memory of whorlMemAlloc(): operations on it need no staging copy.

    The memory is freed with the last array over it. A child of fork() shares the pages with its parent.
    """
    sizes = tuple(shape) if isinstance(shape, Iterable) else (shape,)
    for number in sizes:
        if not isinstance(number, (int, np.integer)):
            raise TypeError(f"mem_alloc: shape is {shape!r}; it must be a whole number, or some of them")
    kind = np.dtype(dtype)
    if kind.hasobject:
        raise TypeError(f"mem_alloc: dtype is {kind}; memory that others map cannot hold Python objects")
    if any(size < 0 for size in sizes):
        raise ValueError(f"mem_alloc: shape is {sizes}; no size may be negative")
    items = math.prod(int(size) for size in sizes)
    size = items * kind.itemsize
    if size > sys.maxsize:
        raise ValueError(f"mem_alloc: shape is {sizes}; {size} bytes of {kind} exceed the address space")
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
