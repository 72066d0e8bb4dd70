"""Operations for asyncio: each is issued by the call and returns a future, in a stream that the communicator has.

The order of the calls is the order of the operations, whatever is awaited first. Buffers are kept alive until an
operation is complete; they must not be changed meanwhile. A future that is cancelled does not cancel its operation.
"""

from __future__ import annotations

import asyncio
from typing import Any

from whorl import _group
from whorl._arrays import Arrays
from whorl._stream import Stream
from whorl._types import Op, OpLike

Future = asyncio.Future


class Async(Arrays):
    """Operations of a communicator that return futures of the running event loop."""

    _own_stream: Stream | None = None

    def _stream(self) -> Stream:
        asyncio.get_running_loop()  # raises before anything is issued
        _group.refuse("a function that returns a future")
        if self._own_stream is None:
            self._own_stream = Stream()
        return self._own_stream

    def allreduce_async(self, array: Any, op: OpLike = Op.SUM, out: Any = None) -> Future[Any]:
        """Does what allreduce() does."""
        stream = self._stream()
        return stream._future(self.allreduce(array, op, out, stream=stream))

    def reduce_async(self, array: Any, op: OpLike = Op.SUM, root: int = 0, out: Any = None) -> Future[Any]:
        """Does what reduce() does."""
        stream = self._stream()
        return stream._future(self.reduce(array, op, root, out, stream=stream))

    def bcast_async(self, array: Any, root: int = 0) -> Future[Any]:
        """Does what bcast() does."""
        stream = self._stream()
        return stream._future(self.bcast(array, root, stream=stream))

    def allgather_async(self, array: Any, out: Any = None) -> Future[Any]:
        """Does what allgather() does."""
        stream = self._stream()
        return stream._future(self.allgather(array, out, stream=stream))

    def reduce_scatter_async(self, array: Any, op: OpLike = Op.SUM, out: Any = None) -> Future[Any]:
        """Does what reduce_scatter() does."""
        stream = self._stream()
        return stream._future(self.reduce_scatter(array, op, out, stream=stream))

    def alltoall_async(self, array: Any, out: Any = None) -> Future[Any]:
        """Does what alltoall() does."""
        stream = self._stream()
        return stream._future(self.alltoall(array, out, stream=stream))

    def gather_async(self, array: Any, root: int = 0, out: Any = None) -> Future[Any]:
        """Does what gather() does."""
        stream = self._stream()
        return stream._future(self.gather(array, root, out, stream=stream))

    def scatter_async(self, array: Any = None, root: int = 0, out: Any = None) -> Future[Any]:
        """Does what scatter() does."""
        stream = self._stream()
        return stream._future(self.scatter(array, root, out, stream=stream))

    def send_async(self, array: Any, dest: int) -> Future[None]:
        """Does what send() does."""
        stream = self._stream()
        self.send(array, dest, stream=stream)
        return stream.synchronized()

    def recv_async(self, out: Any, source: int) -> Future[Any]:
        """Does what recv() does."""
        stream = self._stream()
        return stream._future(self.recv(out, source, stream=stream))

    def barrier_async(self) -> Future[None]:
        """Does what barrier() does."""
        stream = self._stream()
        self.barrier(stream=stream)
        return stream.synchronized()
