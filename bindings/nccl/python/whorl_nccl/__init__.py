"""libnccl.so.2 with which programs written for NCCL run on whorl."""

from __future__ import annotations

from pathlib import Path

__all__ = ["library"]


def library() -> str:
    """Returns the path of libnccl.so.2."""
    return str(Path(__file__).resolve().parent / "libnccl.so.2")
