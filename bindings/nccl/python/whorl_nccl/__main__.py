"""Prints the path of libnccl.so.2, for LD_PRELOAD."""

from . import library

print(library())
