"""Operations that take arrays and return arrays.

An array is a numpy array, a tensor with `__dlpack__`, or an object with the buffer protocol; what is only sent may be a
number or a list, too. Results are new numpy arrays, unless `out` is given: then the result is put there and `out` is
returned. Pass the array itself as `out` to work in place, where the operation can. With `stream`, and within a group,
the call returns at once, and the result is there later.
"""

from __future__ import annotations

from typing import Any

from whorl import _group
from whorl._buffers import buffer_of, input_of, output_of
from whorl._calls import AnyStream, Calls
from whorl._types import Op, OpLike


class Arrays(Calls):
    """Operations of a communicator that return arrays."""

    def _rows(self, call: str, shape: tuple[int, ...]) -> int:
        """Returns the rows of each rank in an array that is divided along its first axis."""
        if not shape or shape[0] % self.size:
            raise ValueError(f"{call}: array has shape {shape}; its first axis must be a multiple of {self.size}, the "
                             f"number of ranks")
        return shape[0] // self.size

    def allreduce(self, array: Any, op: OpLike = Op.SUM, out: Any = None, *, stream: AnyStream = None) -> Any:
        """Returns the sum (or another operator) of the arrays of all ranks, on every rank."""
        send, shape = input_of(array, "allreduce", "array")
        out, recv = output_of(out, shape, send, "allreduce")
        self._allreduce("allreduce", send, recv, op, stream)
        return out

    def reduce(self, array: Any, op: OpLike = Op.SUM, root: int = 0, out: Any = None, *,
               stream: AnyStream = None) -> Any:
        """Returns what allreduce() returns, on the root only; None elsewhere."""
        send, shape = input_of(array, "reduce", "array")
        recv = None
        if self._is_root("reduce", root):
            out, recv = output_of(out, shape, send, "reduce")
        self._reduce("reduce", send, recv, op, root, stream)
        return None if recv is None else out

    def bcast(self, array: Any, root: int = 0, *, stream: AnyStream = None) -> Any:
        """Copies the array of the root into the array of every rank, and returns it."""
        self._bcast("bcast", buffer_of(array, "bcast", "array", self.rank != root), root, stream)
        return array

    def allgather(self, array: Any, out: Any = None, *, stream: AnyStream = None) -> Any:
        """Returns the arrays of all ranks, one for each index of a new first axis."""
        send, shape = input_of(array, "allgather", "array")
        out, recv = output_of(out, (self.size, *shape), send, "allgather")
        self._allgather("allgather", send, recv, stream)
        return out

    def reduce_scatter(self, array: Any, op: OpLike = Op.SUM, out: Any = None, *, stream: AnyStream = None) -> Any:
        """Returns this rank's part of what allreduce() returns, which is divided along the first axis."""
        send, shape = input_of(array, "reduce_scatter", "array")
        out, recv = output_of(out, (self._rows("reduce_scatter", shape), *shape[1:]), send, "reduce_scatter")
        self._reduce_scatter("reduce_scatter", send, recv, op, stream)
        return out

    def alltoall(self, array: Any, out: Any = None, *, stream: AnyStream = None) -> Any:
        """Divides the array along the first axis, gives part j to rank j, and returns the parts that came."""
        send, shape = input_of(array, "alltoall", "array")
        self._rows("alltoall", shape)
        out, recv = output_of(out, shape, send, "alltoall")
        self._alltoall("alltoall", send, recv, stream)
        return out

    def gather(self, array: Any, root: int = 0, out: Any = None, *, stream: AnyStream = None) -> Any:
        """Returns what allgather() returns, on the root only; None elsewhere."""
        send, shape = input_of(array, "gather", "array")
        recv = None
        if self._is_root("gather", root):
            out, recv = output_of(out, (self.size, *shape), send, "gather")
        self._gather("gather", send, recv, root, stream)
        return None if recv is None else out

    def scatter(self, array: Any = None, root: int = 0, out: Any = None, *, stream: AnyStream = None) -> Any:
        """Gives index j of the first axis of the root's array, which has one for each rank, to rank j.

        Ranks but the root pass `out`, since they do not know the shape; the array of the root may be omitted there.
        """
        send = None
        if self._is_root("scatter", root):
            send, shape = input_of(array, "scatter", "array")
            if not shape or shape[0] != self.size:
                raise ValueError(f"scatter: array has shape {shape}; its first axis must be {self.size}, the number "
                                 f"of ranks")
            out, recv = output_of(out, shape[1:], send, "scatter")
        elif out is None:
            raise ValueError("scatter: out is None; only the root can do without, which knows the shape")
        else:
            recv = buffer_of(out, "scatter", "out", True)
        self._scatter("scatter", send, recv, root, stream)
        return out

    def send(self, array: Any, dest: int, *, stream: AnyStream = None) -> None:
        """Sends an array. Sends and receives that must proceed at the same time belong in a group."""
        send, _ = input_of(array, "send", "array")
        self._send("send", send, dest, stream)

    def recv(self, out: Any, source: int, *, stream: AnyStream = None) -> Any:
        """Receives into an array, and returns it."""
        self._recv("recv", buffer_of(out, "recv", "out", True), source, stream)
        return out

    def recv_any(self, out: Any) -> int:
        """Receives from any other rank into an array, and returns the number of that rank."""
        if _group.in_group():
            raise ValueError("recv_any: the rank is not known before the group ends; call recv_any() outside of it")
        return int(self._recv("recv_any", buffer_of(out, "recv_any", "out", True), None, None)[0])

    def barrier(self, *, stream: AnyStream = None) -> None:
        """Returns when every rank has called it."""
        self._barrier("barrier", stream)
