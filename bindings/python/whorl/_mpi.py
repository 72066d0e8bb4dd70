"""Operations in the manner of mpi4py's upper-case methods: buffers in, nothing out.

A buffer is what _arrays.py calls an array, or `[array, count, type]` as in mpi4py. The count of an array with a block
for each rank is that of one block. There are no tags: messages of a pair of ranks are matched by their order.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any

import numpy as np

from whorl import _group
from whorl._arrays import Arrays
from whorl._buffers import Blocks, Buffer, blocks_of, with_type
from whorl._calls import AnyStream
from whorl._types import Op, OpLike


class Mark(enum.Enum):
    """Values that stand in place of a buffer or a rank."""

    IN_PLACE = "in place"
    ANY_SOURCE = "any source"


IN_PLACE = Mark.IN_PLACE
ANY_SOURCE = Mark.ANY_SOURCE
ANY_TAG = -1  # as in mpi4py; there are no tags


def _in(value: Any, call: str) -> Buffer | None:
    return None if value is IN_PLACE else with_type(value, call, "sendbuf", False)


def _out(value: Any, call: str, blocks: int = 1) -> Buffer:
    if value is IN_PLACE:
        raise ValueError(f"{call}: recvbuf cannot be IN_PLACE; in place is sendbuf=IN_PLACE, with the data in recvbuf")
    return with_type(value, call, "recvbuf", True, blocks)


def _never_in_place(call: str, sendbuf: Any, remedy: str) -> None:
    if sendbuf is IN_PLACE:
        raise ValueError(f"{call}: sendbuf cannot be IN_PLACE: {remedy}")


def _no_tag(call: str, *tags: int) -> None:
    if any(tag not in (0, ANY_TAG) for tag in tags):
        raise ValueError(f"{call}: there are no tags: messages of a pair of ranks are matched by their order; a "
                         f"communicator of split() for each kind of message keeps these apart")


class Mpi(Arrays):
    """Operations of a communicator in mpi4py's manner."""

    def Get_rank(self) -> int:
        """Returns the number of this rank."""
        return self.rank

    def Get_size(self) -> int:
        """Returns the number of ranks."""
        return self.size

    def Allreduce(self, sendbuf: Any, recvbuf: Any, op: OpLike = Op.SUM, *, stream: AnyStream = None) -> None:
        """Puts the sum (or another operator) of all ranks' sendbuf into everyone's recvbuf."""
        self._allreduce("Allreduce", _in(sendbuf, "Allreduce"), _out(recvbuf, "Allreduce"), op, stream)

    def Reduce(self, sendbuf: Any, recvbuf: Any = None, op: OpLike = Op.SUM, root: int = 0, *,
               stream: AnyStream = None) -> None:
        """Does what Allreduce() does, with the result on the root only; recvbuf is ignored elsewhere."""
        recv = _out(recvbuf, "Reduce") if self.rank == root else None
        self._reduce("Reduce", _in(sendbuf, "Reduce"), recv, op, root, stream)

    def Bcast(self, buf: Any, root: int = 0, *, stream: AnyStream = None) -> None:
        """Copies the root's buffer into everyone's."""
        self._bcast("Bcast", with_type(buf, "Bcast", "buf", self.rank != root), root, stream)

    def Allgather(self, sendbuf: Any, recvbuf: Any, *, stream: AnyStream = None) -> None:
        """Puts every rank's sendbuf side by side into everyone's recvbuf."""
        self._allgather("Allgather", _in(sendbuf, "Allgather"), _out(recvbuf, "Allgather", self.size), stream)

    def Allgatherv(self, sendbuf: Any, recvbuf: Any, *, stream: AnyStream = None) -> None:
        """Does what Allgather() does; recvbuf is [buffer, counts] or [buffer, counts, displs]."""
        blocks = blocks_of(recvbuf, "Allgatherv", "recvbuf", self.size, True)
        self._allgatherv("Allgatherv", _in(sendbuf, "Allgatherv"), blocks, stream)

    def Reduce_scatter_block(self, sendbuf: Any, recvbuf: Any, op: OpLike = Op.SUM, *,
                             stream: AnyStream = None) -> None:
        """Reduces sendbuf, and leaves the block of this rank in recvbuf."""
        call = "Reduce_scatter_block"
        _never_in_place(call, sendbuf, "pass the whole array as sendbuf, and the block of this rank in it as recvbuf")
        send = with_type(sendbuf, call, "sendbuf", False, self.size)
        self._reduce_scatter(call, send, _out(recvbuf, call), op, stream)

    def Reduce_scatter(self, sendbuf: Any, recvbuf: Any, recvcounts: Sequence[int] | None = None,
                       op: OpLike = Op.SUM, *, stream: AnyStream = None) -> None:
        """Does what Reduce_scatter_block() does, with blocks of recvcounts elements; None: of one size."""
        if recvcounts is None:
            self.Reduce_scatter_block(sendbuf, recvbuf, op, stream=stream)
            return
        call = "Reduce_scatter"
        _never_in_place(call, sendbuf, "pass the whole array as sendbuf, and the block of this rank in it as recvbuf")
        buffer = with_type(sendbuf, call, "sendbuf", False)
        self._reduce_scatterv(call, Blocks.checked(buffer, recvcounts, None, call, "sendbuf", "recvcounts", self.size),
                              _out(recvbuf, call), op, stream)

    def Alltoall(self, sendbuf: Any, recvbuf: Any, *, stream: AnyStream = None) -> None:
        """Gives block j of sendbuf to rank j, and puts what rank j gave into block j of recvbuf."""
        _never_in_place("Alltoall", sendbuf, "pass two buffers")
        send = with_type(sendbuf, "Alltoall", "sendbuf", False, self.size)
        self._alltoall("Alltoall", send, _out(recvbuf, "Alltoall", self.size), stream)

    def Alltoallv(self, sendbuf: Any, recvbuf: Any, *, stream: AnyStream = None) -> None:
        """Does what Alltoall() does; both are [buffer, counts] or [buffer, counts, displs]."""
        _never_in_place("Alltoallv", sendbuf, "pass two buffers")
        self._alltoallv("Alltoallv", blocks_of(sendbuf, "Alltoallv", "sendbuf", self.size, False),
                        blocks_of(recvbuf, "Alltoallv", "recvbuf", self.size, True), stream)

    def Gather(self, sendbuf: Any, recvbuf: Any = None, root: int = 0, *, stream: AnyStream = None) -> None:
        """Puts every rank's sendbuf side by side into the root's recvbuf, which is ignored elsewhere."""
        recv = _out(recvbuf, "Gather", self.size) if self.rank == root else None
        self._gather("Gather", _in(sendbuf, "Gather"), recv, root, stream)

    def Gatherv(self, sendbuf: Any, recvbuf: Any = None, root: int = 0, *, stream: AnyStream = None) -> None:
        """Does what Gather() does; the root's recvbuf is [buffer, counts] or [buffer, counts, displs]."""
        recv = blocks_of(recvbuf, "Gatherv", "recvbuf", self.size, True) if self.rank == root else None
        self._gatherv("Gatherv", _in(sendbuf, "Gatherv"), recv, root, stream)

    def Scatter(self, sendbuf: Any, recvbuf: Any, root: int = 0, *, stream: AnyStream = None) -> None:
        """Gives block j of the root's sendbuf to rank j; sendbuf is ignored elsewhere."""
        send = with_type(sendbuf, "Scatter", "sendbuf", False, self.size) if self.rank == root else None
        recv = None if recvbuf is IN_PLACE else with_type(recvbuf, "Scatter", "recvbuf", True)
        self._scatter("Scatter", send, recv, root, stream)

    def Scatterv(self, sendbuf: Any, recvbuf: Any, root: int = 0, *, stream: AnyStream = None) -> None:
        """Does what Scatter() does; the root's sendbuf is [buffer, counts] or [buffer, counts, displs]."""
        send = blocks_of(sendbuf, "Scatterv", "sendbuf", self.size, False) if self.rank == root else None
        recv = None if recvbuf is IN_PLACE else with_type(recvbuf, "Scatterv", "recvbuf", True)
        self._scatterv("Scatterv", send, recv, root, stream)

    def Send(self, buf: Any, dest: int, tag: int = 0, *, stream: AnyStream = None) -> None:
        """Sends a buffer. Sends and receives that must proceed at the same time belong in a group."""
        _no_tag("Send", tag)
        self._send("Send", with_type(buf, "Send", "buf", False), dest, stream)

    def Recv(self, buf: Any, source: int | Mark = ANY_SOURCE, tag: int = ANY_TAG, *, stream: AnyStream = None) -> None:
        """Receives into a buffer; recv_any() tells the rank that has sent."""
        _no_tag("Recv", tag)
        buffer = with_type(buf, "Recv", "buf", True)
        self._recv("Recv", buffer, None if isinstance(source, Mark) else source, stream)

    def Sendrecv(self, sendbuf: Any, dest: int, sendtag: int = 0, recvbuf: Any = None,
                 source: int | Mark = ANY_SOURCE, recvtag: int = ANY_TAG, *, stream: AnyStream = None) -> None:
        """Sends one buffer and receives another at the same time."""
        _no_tag("Sendrecv", sendtag, recvtag)
        send, recv = with_type(sendbuf, "Sendrecv", "sendbuf", False), _out(recvbuf, "Sendrecv")
        with _group.group():
            self._send("Sendrecv", send, dest, stream)
            self._recv("Sendrecv", recv, None if isinstance(source, Mark) else source, stream)

    def Barrier(self, *, stream: AnyStream = None) -> None:
        """Returns when every rank has called it."""
        self._barrier("Barrier", stream)


# Element types by MPI's names, for [buffer, count, type].
BYTE = UINT8_T = np.dtype(np.uint8)
INT8_T = SIGNED_CHAR = np.dtype(np.int8)
SHORT = INT16_T = np.dtype(np.int16)
UNSIGNED_SHORT = UINT16_T = np.dtype(np.uint16)
INT = INT32_T = np.dtype(np.int32)
UNSIGNED = UINT32_T = np.dtype(np.uint32)
LONG = INT64_T = np.dtype(np.int64)
UNSIGNED_LONG = UINT64_T = np.dtype(np.uint64)
FLOAT = np.dtype(np.float32)
DOUBLE = np.dtype(np.float64)
C_BOOL = np.dtype(np.bool_)
C_FLOAT_COMPLEX = np.dtype(np.complex64)
C_DOUBLE_COMPLEX = np.dtype(np.complex128)
