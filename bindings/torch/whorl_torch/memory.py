"""Tensors in memory that the other ranks of the host can reach."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from whorl_torch import _C

VARIABLE = "WHORL_TORCH_SHARED_MEMORY"


@contextmanager
def shared_memory() -> Iterator[None]:
    """While it is active, new CPU tensors of 64 KiB and more, of any thread, are allocated in memory
    that the other ranks of this host can map: operations on them need no staging copies.

    What counts is where a tensor is made: wrap a model and train it inside. Tensors may be used and
    freed anywhere. A process that is forked later shares the pages of such tensors with its parent
    instead of getting a copy.
    """
    _C.begin_shared_memory()
    try:
        yield
    finally:
        _C.end_shared_memory()


def in_shared_memory(tensor: torch.Tensor) -> bool:
    """Whether the tensor was allocated so."""
    return _C.in_shared_memory(tensor)


def begin_if_asked() -> None:
    """WHORL_TORCH_SHARED_MEMORY=1 has it active from the import on, without a change of a program."""
    asked = os.environ.get(VARIABLE, "0")
    if asked not in ("0", "1", ""):
        raise ValueError(f"{VARIABLE} is {asked!r}; it must be 0 or 1")
    if asked == "1":
        _C.begin_shared_memory()
