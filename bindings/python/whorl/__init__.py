"""Collectives of whorl on numpy arrays, and on whatever has DLPack or the buffer protocol.

    import numpy, whorl
    with whorl.init() as comm:              # mpirun -n 4 python program.py
        total = comm.allreduce(numpy.arange(3.0))
"""

from __future__ import annotations

from whorl._communicator import Communicator, init, init_all, unique_id
from whorl._errors import ArgumentError, CudaError, Error, InternalError, RemoteError, SystemCallError, UsageError
from whorl._group import group
from whorl._library import __version__
from whorl._memory import mem_alloc
from whorl._mpi import (
    ANY_SOURCE,
    ANY_TAG,
    BYTE,
    C_BOOL,
    C_DOUBLE_COMPLEX,
    C_FLOAT_COMPLEX,
    DOUBLE,
    FLOAT,
    IN_PLACE,
    INT,
    INT8_T,
    INT16_T,
    INT32_T,
    INT64_T,
    LONG,
    SHORT,
    SIGNED_CHAR,
    UINT8_T,
    UINT16_T,
    UINT32_T,
    UINT64_T,
    UNSIGNED,
    UNSIGNED_LONG,
    UNSIGNED_SHORT,
)
from whorl._stream import Stream
from whorl._types import Op, ScaledSum

SUM, PROD, MAX, MIN, AVG = Op.SUM, Op.PROD, Op.MAX, Op.MIN, Op.AVG
BAND, BOR, BXOR = Op.BAND, Op.BOR, Op.BXOR

__all__ = [
    "ANY_SOURCE", "ANY_TAG", "AVG", "BAND", "BOR", "BXOR", "BYTE", "C_BOOL", "C_DOUBLE_COMPLEX", "C_FLOAT_COMPLEX",
    "DOUBLE", "FLOAT", "IN_PLACE", "INT", "INT16_T", "INT32_T", "INT64_T", "INT8_T", "LONG", "MAX", "MIN", "PROD",
    "SHORT", "SIGNED_CHAR", "SUM", "UINT16_T", "UINT32_T", "UINT64_T", "UINT8_T", "UNSIGNED", "UNSIGNED_LONG",
    "UNSIGNED_SHORT", "ArgumentError", "Communicator", "CudaError", "Error", "InternalError", "Op", "RemoteError",
    "ScaledSum", "Stream", "SystemCallError", "UsageError", "__version__", "group", "init", "init_all", "mem_alloc",
    "unique_id",
]
