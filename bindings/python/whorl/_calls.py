"""The operations of a communicator on buffers that have been checked one by one; checks what they must have in common.

Both ways to spell an operation come here: with arrays that are returned (_arrays.py), and in mpi4py's manner (_mpi.py).
In every function `call` is the name that the user wrote, and a `send` that is None stands for "in place".
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Union

from whorl import _group
from whorl._buffers import Blocks, Buffer
from whorl._errors import UsageError, check
from whorl._library import NULL, ffi, lib
from whorl._signals import require_outside, waiting
from whorl._stream import Stream, pointer_of
from whorl._types import OpLike, op_code, require_whole

AnyStream = Union[Stream, int, None]


def _same_type(call: str, send: Buffer, recv: Buffer) -> None:
    if send.dtype != recv.dtype:
        raise TypeError(f"{call}: sendbuf has elements of {send.dtype}, and recvbuf of {recv.dtype}")


def _sizes(call: str, larger: str, got: int, factor: int, other: str, items: int) -> None:
    """Raises unless one buffer has `factor` times the elements of the other."""
    if got != factor * items:
        times = f"{factor} x {items} = {factor * items}" if factor != 1 else str(items)
        raise ValueError(f"{call}: {larger} has {got} elements; with {items} in {other} it must have {times}")


def _share(call: str, name: str, buffer: Buffer, size: int) -> int:
    """Returns the elements of each rank in a buffer of blocks of one size."""
    if buffer.items % size:
        raise ValueError(f"{call}: {name} has {buffer.items} elements, which {size} ranks cannot share equally")
    return buffer.items // size


class Calls:
    """A communicator as far as operations need it."""

    _handle: Any
    # Held by the thread that is in a call. One that has it may take it again: an exception of the handler of a signal
    # right behind acquire() leaves it held.
    _use: threading.RLock
    rank: int
    size: int

    def _alive(self) -> Any:
        if not self._handle:
            raise UsageError("the communicator has been freed or aborted")
        require_outside()
        _group.in_group()  # ends one whose end was skipped
        return self._handle

    def _claim(self, call: str) -> None:
        """Enters a call, which releases `_use` at its end; raises where another thread is inside one."""
        if not self._use.acquire(False):
            raise UsageError(f"{call}: another thread is inside a call on this communicator; make a communicator for "
                             f"each thread with split()")

    @contextmanager
    def _one_thread(self, call: str) -> Iterator[None]:
        """Is inside a call."""
        self._claim(call)
        try:
            yield
        finally:
            self._use.release()

    def _run(self, call: str, function: Callable[..., int], arguments: tuple[Any, ...], buffers: object,
             stream: AnyStream) -> None:
        """Calls a function of the library, whose last arguments are the communicator and the stream."""
        pointer = NULL if stream is None else pointer_of(stream, call)
        self._claim(call)
        try:
            if _group.in_group():
                _group.keep(self, stream if isinstance(stream, Stream) else None, buffers)
                check(function(*arguments, self._alive(), pointer))
            elif stream is None:
                result = waiting(function, *arguments, self._alive(), NULL)
                if result:
                    check(result)
            elif isinstance(stream, Stream):
                held = stream._kept.hold(buffers)
                try:
                    check(function(*arguments, self._alive(), pointer))
                finally:
                    stream._kept.issued(held)
            else:
                check(function(*arguments, self._alive(), pointer))
        finally:
            self._use.release()

    def _is_root(self, call: str, root: int) -> bool:
        require_whole(root, call, "root")
        if not 0 <= root < self.size:
            raise ValueError(f"{call}: root is {root}; it must be from 0 to {self.size - 1}")
        return root == self.rank

    def _op(self, call: str, op: OpLike, buffer: Buffer) -> int:
        return op_code(op, call, buffer.dtype, self)

    # --- blocks of one size ---

    def _allreduce(self, call: str, send: Buffer | None, recv: Buffer, op: OpLike, stream: AnyStream) -> None:
        send = recv if send is None else send
        if send is not recv:
            _same_type(call, send, recv)
            _sizes(call, "recvbuf", recv.items, 1, "sendbuf", send.items)
        self._run(call, lib.whorlAllReduce, (send.pointer, recv.pointer, send.count, send.kind.code,
                                             self._op(call, op, send)), (send, recv), stream)

    def _reduce(self, call: str, send: Buffer | None, recv: Buffer | None, op: OpLike, root: int,
                stream: AnyStream) -> None:
        here = self._is_root(call, root)
        if here:
            if recv is None:
                raise ValueError(f"{call}: recvbuf is None on the root")
            send = recv if send is None else send
            _same_type(call, send, recv)
            _sizes(call, "recvbuf", recv.items, 1, "sendbuf", send.items)
        if send is None:
            raise ValueError(f"{call}: sendbuf is IN_PLACE, which only the root can be; other ranks pass their input")
        target = recv.pointer if here and recv is not None else NULL
        self._run(call, lib.whorlReduce, (send.pointer, target, send.count, send.kind.code,
                                          self._op(call, op, send), root), (send, recv), stream)

    def _bcast(self, call: str, buffer: Buffer, root: int, stream: AnyStream) -> None:
        self._is_root(call, root)
        self._run(call, lib.whorlBcast, (buffer.pointer, buffer.count, buffer.kind.code, root), buffer, stream)

    def _allgather(self, call: str, send: Buffer | None, recv: Buffer, stream: AnyStream) -> None:
        share = _share(call, "recvbuf", recv, self.size)
        if send is not None:
            _same_type(call, send, recv)
            _sizes(call, "recvbuf", recv.items, self.size, "sendbuf", send.items)
        source = recv.at(self.rank * share) if send is None else send.pointer
        self._run(call, lib.whorlAllGather, (source, recv.pointer, share * recv.kind.parts, recv.kind.code),
                  (send, recv), stream)

    def _reduce_scatter(self, call: str, send: Buffer, recv: Buffer, op: OpLike, stream: AnyStream) -> None:
        _same_type(call, send, recv)
        _sizes(call, "sendbuf", send.items, self.size, "recvbuf", recv.items)
        self._run(call, lib.whorlReduceScatter, (send.pointer, recv.pointer, recv.count, send.kind.code,
                                                 self._op(call, op, send)), (send, recv), stream)

    def _alltoall(self, call: str, send: Buffer, recv: Buffer, stream: AnyStream) -> None:
        _same_type(call, send, recv)
        _sizes(call, "recvbuf", recv.items, 1, "sendbuf", send.items)
        share = _share(call, "sendbuf", send, self.size)
        self._run(call, lib.whorlAlltoAll, (send.pointer, recv.pointer, share * send.kind.parts, send.kind.code),
                  (send, recv), stream)

    def _gather(self, call: str, send: Buffer | None, recv: Buffer | None, root: int, stream: AnyStream) -> None:
        target: Any = NULL
        if self._is_root(call, root):
            if recv is None:
                raise ValueError(f"{call}: recvbuf is None on the root")
            target, share = recv.pointer, _share(call, "recvbuf", recv, self.size)
            if send is not None:
                _same_type(call, send, recv)
                _sizes(call, "recvbuf", recv.items, self.size, "sendbuf", send.items)
            else:
                send = Buffer(recv.at(root * share), share, recv.kind, recv.dtype, recv.owner)
        if send is None:
            raise ValueError(f"{call}: sendbuf is IN_PLACE, which only the root can be; other ranks pass their input")
        self._run(call, lib.whorlGather, (send.pointer, target, send.count, send.kind.code, root), (send, recv), stream)

    def _scatter(self, call: str, send: Buffer | None, recv: Buffer | None, root: int, stream: AnyStream) -> None:
        source: Any = NULL
        if self._is_root(call, root):
            if send is None:
                raise ValueError(f"{call}: sendbuf is None on the root")
            source, share = send.pointer, _share(call, "sendbuf", send, self.size)
            if recv is not None:
                _same_type(call, send, recv)
                _sizes(call, "sendbuf", send.items, self.size, "recvbuf", recv.items)
            else:
                recv = Buffer(send.at(root * share), share, send.kind, send.dtype, send.owner)
        if recv is None:
            raise ValueError(f"{call}: recvbuf is IN_PLACE or None, which only the root can be; other ranks receive")
        self._run(call, lib.whorlScatter, (source, recv.pointer, recv.count, recv.kind.code, root), (send, recv),
                  stream)

    def _barrier(self, call: str, stream: AnyStream) -> None:
        self._run(call, lib.whorlBarrier, (), None, stream)

    # --- blocks of different sizes ---

    def _allgatherv(self, call: str, send: Buffer | None, recv: Blocks, stream: AnyStream) -> None:
        buffer, mine = recv.buffer, recv.counts[self.rank]
        if send is None:
            send = Buffer(buffer.at(recv.start(self.rank)), mine, buffer.kind, buffer.dtype, buffer.owner)
        _same_type(call, send, buffer)
        _sizes(call, "sendbuf", send.items, 1, f"block {self.rank} of recvbuf", mine)
        self._run(call, lib.whorlAllGatherv, (send.pointer, send.count, buffer.pointer, recv.c_counts, recv.c_displs,
                                              send.kind.code), (send, recv), stream)

    def _reduce_scatterv(self, call: str, send: Blocks, recv: Buffer, op: OpLike, stream: AnyStream) -> None:
        buffer = send.buffer
        _same_type(call, buffer, recv)
        _sizes(call, "sendbuf", buffer.items, 1, "recvcounts", sum(send.counts))
        _sizes(call, "recvbuf", recv.items, 1, f"block {self.rank} of recvcounts", send.counts[self.rank])
        self._run(call, lib.whorlReduceScatterv, (buffer.pointer, recv.pointer, send.c_counts, recv.kind.code,
                                                  self._op(call, op, recv)), (send, recv), stream)

    def _alltoallv(self, call: str, send: Blocks, recv: Blocks, stream: AnyStream) -> None:
        _same_type(call, send.buffer, recv.buffer)
        self._run(call, lib.whorlAlltoAllv, (send.buffer.pointer, send.c_counts, send.c_displs, recv.buffer.pointer,
                                             recv.c_counts, recv.c_displs, send.buffer.kind.code), (send, recv), stream)

    def _gatherv(self, call: str, send: Buffer | None, recv: Blocks | None, root: int, stream: AnyStream) -> None:
        target: tuple[Any, Any, Any] = (NULL, NULL, NULL)
        if self._is_root(call, root):
            if recv is None:
                raise ValueError(f"{call}: recvbuf is None on the root")
            buffer, mine = recv.buffer, recv.counts[root]
            if send is None:
                send = Buffer(buffer.at(recv.start(root)), mine, buffer.kind, buffer.dtype, buffer.owner)
            _same_type(call, send, buffer)
            _sizes(call, "sendbuf", send.items, 1, f"block {root} of recvbuf", mine)
            target = (buffer.pointer, recv.c_counts, recv.c_displs)
        if send is None:
            raise ValueError(f"{call}: sendbuf is IN_PLACE, which only the root can be; other ranks pass their input")
        self._run(call, lib.whorlGatherv, (send.pointer, send.count, *target, send.kind.code, root), (send, recv),
                  stream)

    def _scatterv(self, call: str, send: Blocks | None, recv: Buffer | None, root: int, stream: AnyStream) -> None:
        source: tuple[Any, Any, Any] = (NULL, NULL, NULL)
        if self._is_root(call, root):
            if send is None:
                raise ValueError(f"{call}: sendbuf is None on the root")
            buffer, mine = send.buffer, send.counts[root]
            if recv is None:
                recv = Buffer(buffer.at(send.start(root)), mine, buffer.kind, buffer.dtype, buffer.owner)
            _same_type(call, buffer, recv)
            _sizes(call, "recvbuf", recv.items, 1, f"block {root} of sendbuf", mine)
            source = (buffer.pointer, send.c_counts, send.c_displs)
        if recv is None:
            raise ValueError(f"{call}: recvbuf is IN_PLACE or None, which only the root can be; other ranks receive")
        self._run(call, lib.whorlScatterv, (*source, recv.pointer, recv.count, recv.kind.code, root), (send, recv),
                  stream)

    # --- point to point ---

    def _send(self, call: str, buffer: Buffer, peer: int, stream: AnyStream) -> None:
        require_whole(peer, call, "dest")
        self._run(call, lib.whorlSend, (buffer.pointer, buffer.count, buffer.kind.code, peer), buffer, stream)

    def _recv(self, call: str, buffer: Buffer, peer: int | None, stream: AnyStream) -> Any:
        """Receives from a rank, or with None from any; returns a cell that has the rank when that is complete."""
        if peer is not None:
            require_whole(peer, call, "source")
            self._run(call, lib.whorlRecv, (buffer.pointer, buffer.count, buffer.kind.code, peer), buffer, stream)
            return [peer]
        cell = ffi.new("int*")
        self._run(call, lib.whorlRecvAny, (buffer.pointer, buffer.count, buffer.kind.code, cell), (buffer, cell),
                  stream)
        return cell
