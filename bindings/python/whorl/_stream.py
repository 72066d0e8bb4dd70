"""Host streams: operations that are carried out one after the other, while the program goes on."""

from __future__ import annotations

import asyncio
import ctypes
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar

from whorl import _group
from whorl._errors import IN_PROGRESS, SUCCESS, Error, check
from whorl._library import NULL, ffi, lib
from whorl._signals import require_outside, waiting

T = TypeVar("T")
SLICE_MS = 100  # the time after which a wait looks for signals
POLL_SECONDS = 1e-3  # the interval in which an event loop asks for an event that cannot wake it
BATCH = 32  # operations whose buffers are kept together

# Callback of whorlStreamAddCallback() that closes a pipe, so that the event loop wakes: close(2) itself, called with
# the descriptor in place of `data` and a second argument that it does not look at. So no thread of the library enters
# the interpreter, which may be busy, or have ended.
_close: Any = ffi.cast(
    "void(*)(void*, whorlResult_t)", ctypes.cast(ctypes.CDLL(None).close, ctypes.c_void_p).value)


def new_event(stream: Any) -> Any:
    """Returns an event that stands for what is queued in the stream."""
    cell = ffi.new("whorlEvent_t*")
    check(lib.whorlEventCreate(cell))
    check(lib.whorlEventRecord(cell[0], stream))
    return ffi.gc(cell[0], lib.whorlEventDestroy)


def wait_for(event: Any) -> int:
    """Waits for an event, and returns its result. Looks for signals, also where another thread carries out the
    operations."""
    result = IN_PROGRESS
    while result == IN_PROGRESS:
        result = waiting(lib.whorlEventWait, event, SLICE_MS)
    return result


class _Kept:
    """Stream of the library, and the buffers of its operations until these are complete.

    A buffer is held from before its call on, where a signal may come at any line, and counts as issued behind the call.
    Only issued ones are dropped, so that a query of the stream includes their operations. The lock is only tried:
    whoever holds it may be a frame below, which a handler of a signal or the collection of garbage has interrupted.
    """

    def __init__(self, handle: Any) -> None:
        self.handle, self.process = handle, os.getpid()
        self.held: dict[object, object] = {}
        self.batches: deque[tuple[Any, list[object]]] = deque()
        self.latest: deque[object] = deque()
        self.lock = threading.Lock()  # held by who drops buffers

    def hold(self, buffers: object) -> object:
        """Keeps the buffers of an operation that is about to be issued; returns what issued() takes."""
        key = object()
        self.held[key] = buffers
        return key

    def issued(self, key: object) -> None:
        """Keeps the buffers of an operation that has been issued, or has failed, until the stream has passed it."""
        if key not in self.held:  # done already, by a call whose end a signal has skipped
            return
        self.latest.append(self.held[key])
        del self.held[key]
        if len(self.latest) < BATCH or not self.lock.acquire(False):
            return
        try:
            count, batch = len(self.latest), list[object]()
            self.batches.append((new_event(self.handle), batch))
            for _ in range(count):
                batch.append(self.latest[0])
                self.latest.popleft()
            while self.batches and lib.whorlEventQuery(self.batches[0][0]) != IN_PROGRESS:
                self.batches.popleft()
        finally:
            self.lock.release()

    def sweep(self) -> None:
        """Drops all buffers if all operations are complete."""
        if self.lock.acquire(False):
            try:
                self._dropped_all()
            finally:
                self.lock.release()

    def destroyed(self) -> bool:
        """Destroys the stream, which nobody uses any more, if all operations are complete; tells whether that is
        done."""
        if not self.lock.acquire(False):
            return False
        try:
            if self.handle != NULL:
                if not self._dropped_all():
                    return False
                handle, self.handle = self.handle, NULL
                lib.whorlStreamDestroy(handle)
            return True
        finally:
            self.lock.release()

    def _dropped_all(self) -> bool:
        count = len(self.latest)  # another thread may issue more behind the query
        if lib.whorlStreamQuery(self.handle) == IN_PROGRESS:
            return False
        self.batches.clear()
        for _ in range(count):
            self.latest.popleft()
        return True


# Streams that were dropped with operations under way: their buffers are needed still.
_dropped: list[_Kept] = []


def _destroy_dropped() -> None:
    for kept in list(_dropped):
        if kept.process == os.getpid() and kept.destroyed():
            try:
                _dropped.remove(kept)
            except ValueError:
                pass  # another thread has removed it


def _drop(kept: _Kept) -> None:
    if kept.process == os.getpid():  # a child of fork() leaves the streams of its parent alone
        _dropped.append(kept)
        _destroy_dropped()


class _Reader:
    """Descriptor that is closed with its owner, also where an event loop ends and forgets it."""

    def __init__(self, number: int) -> None:
        self.number = number

    def close(self) -> None:
        number, self.number = self.number, -1
        if number >= 0:
            os.close(number)

    def __del__(self) -> None:
        self.close()


# Ends of pipes that belong to callbacks which have not been called, and their inodes. A child has copies of them, and
# a pipe of which a copy is open wakes nobody.
_ends: dict[int, int] = {}


def _close_in_child() -> None:
    for descriptor, inode in _ends.items():
        try:
            if os.fstat(descriptor).st_ino == inode:
                os.close(descriptor)
        except OSError:
            pass
    _ends.clear()


os.register_at_fork(after_in_child=_close_in_child)


class Stream:
    """Queue of operations, which are carried out in the order of issue while the program goes on.

    Calls with `stream=` return at once. Their results are there, and their buffers may be changed, after
    synchronize() or synchronized(). The buffers are kept alive until then, also if the program drops them.
    """

    def __init__(self) -> None:
        _destroy_dropped()
        cell = ffi.new("whorlStream_t*")
        check(lib.whorlStreamCreate(cell))
        self._handle = cell[0]
        self._kept = _Kept(self._handle)
        self._finalizer = weakref.finalize(self, _drop, self._kept)
        self._finalizer.atexit = False  # the library ends in good order by itself

    def _alive(self) -> Any:
        if not self._finalizer.alive:
            raise ValueError("the stream has been freed")
        require_outside()
        return self._handle

    def _end(self, result: int) -> None:
        """Lets go of buffers that are no longer needed; raises unless `result` is a success."""
        try:
            check(result)
        finally:  # after the sentence has been read, because sweeping may fail itself
            self._kept.sweep()

    def query(self) -> bool:
        """Tells whether all operations are complete; raises the first error of the stream."""
        result = lib.whorlStreamQuery(self._alive())
        if result == IN_PROGRESS:
            return False
        self._end(result)
        return True

    def synchronize(self) -> None:
        """Waits until all that is queued now is complete; raises the first error of the stream up to there."""
        _group.refuse("synchronize()")
        result = wait_for(new_event(self._alive()))
        self._end(result)

    def synchronized(self) -> asyncio.Future[None]:
        """Returns a future of the running event loop for what synchronize() waits for, without blocking the loop.

        A cancelled future does not cancel operations.
        """
        return self._future(None)

    def _future(self, value: T) -> asyncio.Future[T]:
        """Returns a future that has `value` when all that is queued now is complete."""
        loop = asyncio.get_running_loop()
        _group.refuse("synchronized()")
        future: asyncio.Future[T] = loop.create_future()
        event = new_event(self._alive())

        def finish() -> None:
            result = lib.whorlEventQuery(event)
            error: Error | None = None
            try:
                self._end(result)
            except Error as failure:
                error = failure
            if future.done():
                return
            if error is None:
                future.set_result(value)
            else:
                future.set_exception(error)

        def poll() -> None:
            if lib.whorlEventQuery(event) == IN_PROGRESS:
                loop.call_later(POLL_SECONDS, poll)
            else:
                finish()

        # What is waited for has been issued, so there is an answer also where the process has no descriptor left.
        if not self._wakes(loop, finish):
            poll()
        return future

    def _wakes(self, loop: asyncio.AbstractEventLoop, finish: Callable[[], None]) -> bool:
        """Lets the loop call `finish` when all that is queued now is complete. Returns False, and does nothing, where a
        system call fails."""
        try:
            number, writer = os.pipe()
        except OSError:
            return False
        reader = _Reader(number)
        inode = os.fstat(writer).st_ino

        def wake() -> None:
            loop.remove_reader(reader.number)
            reader.close()
            if _ends.get(writer) == inode:
                del _ends[writer]
            finish()

        try:
            loop.add_reader(reader.number, wake)
        except OSError:
            reader.close()
            os.close(writer)
            return False
        _ends[writer] = inode
        if lib.whorlStreamAddCallback(self._handle, _close, ffi.cast("void*", writer)) == SUCCESS:
            return True
        loop.remove_reader(reader.number)
        del _ends[writer]
        reader.close()
        os.close(writer)
        return False

    def free(self) -> None:
        """Waits as synchronize() does, and frees the stream."""
        if not self._finalizer.alive:
            return
        _group.refuse("the end of a stream")
        try:
            self.synchronize()
        finally:
            self._finalizer()

    def __enter__(self) -> Stream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._kept.process != os.getpid():
            return  # a child of fork() leaves the stream to its parent
        if kind is None:
            self.free()
        elif not _group.in_group():  # which keeps the streams of its calls
            self._finalizer()


def pointer_of(stream: Stream | int | None, call: str) -> Any:
    """Returns the pointer to pass for the argument `stream` of a call."""
    if stream is None:
        return NULL
    if isinstance(stream, Stream):
        return stream._alive()
    if isinstance(stream, int) and not isinstance(stream, bool):
        return ffi.cast("void*", stream)
    raise TypeError(f"{call}: stream is a {type(stream).__name__}; it must be a whorl.Stream, or the number of a "
                    f"cudaStream_t")
