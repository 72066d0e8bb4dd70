"""Groups of calls, of the calling thread."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from types import TracebackType
from typing import TYPE_CHECKING

from whorl._errors import UsageError, check
from whorl._library import NULL, lib
from whorl._signals import require_outside, waiting

if TYPE_CHECKING:
    from whorl._calls import Calls
    from whorl._stream import Stream


class _Open(threading.local):
    """What the open group of a thread keeps."""

    def __init__(self) -> None:
        self.depth = 0
        self.owner: object = None  # token of the object that has opened the outermost group
        self.failed = False  # whether the body of a nested group has raised
        # Communicators of the calls, with what hold() gave for a stream, or with buffers without one.
        self.kept: list[tuple[Calls, Stream | None, object]] = []


_open = _Open()


def in_group() -> bool:
    """Tells whether this thread has an open group."""
    return _open.depth != 0


def refuse(call: str) -> None:
    """Raises where this thread has an open group, at whose end `call` may be made."""
    if _open.depth:
        raise UsageError(f"{call} cannot be used within a group, whose operations begin at its end: call it after the "
                         f"group")


def keep(comm: Calls, stream: Stream | None, buffers: object) -> None:
    """Keeps the buffers of a call of the open group until they are not needed any more."""
    _open.kept.append((comm, stream, buffers if stream is None else stream._kept.hold(buffers)))


def _issue() -> None:
    """Issues the calls of the open group. Meanwhile this thread is inside a call on each of their communicators."""
    with ExitStack() as claims:
        for comm in {comm for comm, _, _ in _open.kept}:
            claims.enter_context(comm._one_thread("group"))
        check(waiting(lib.whorlGroupEnd))


class group:  # noqa: N801  # spelt as a function, which it is for users
    """Collects the calls of this thread on any communicators, and issues them together at the end.

    Needed for sends and receives that must proceed at the same time, and where one thread drives several ranks. Results
    of the calls are there after the `with`. Groups nest; the outermost one issues the calls. If its body or the body of
    a group within it raises, none of the calls is issued. Where the program has caught what the inner body raised, the
    outermost group raises UsageError at its end.
    """

    _token: object = None  # set where this object has opened the outermost group

    def __enter__(self) -> group:
        require_outside()
        before = _open.depth
        try:
            if before == 0:
                self._token = _open.owner = object()
            _open.depth = before + 1
            if before == 0:  # nested groups are counted here only
                check(lib.whorlGroupStart())
        except BaseException:
            if before == 0:  # a signal may come behind the start; without one, ending the group does nothing
                lib.whorlGroupSimulateEnd(NULL)
            _open.depth = before
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if _open.depth > 1:
            _open.failed = _open.failed or kind is not None
            _open.depth -= 1
            return
        failed, ended = _open.failed, False
        try:
            if kind is None and not failed:
                _issue()
                ended = True
        finally:
            _open.depth = 0
            if not ended:  # drops the calls, also where the handler of a signal has raised before their issue
                lib.whorlGroupSimulateEnd(NULL)
            self._close()
        if failed and kind is None:
            raise UsageError("the body of a group within this one has raised: none of the calls was issued")

    def _close(self) -> None:
        """Forgets a group that has ended."""
        self._token = _open.owner = None
        kept, _open.kept, _open.failed = _open.kept, [], False
        for _, stream, held in kept:
            if stream is not None:
                stream._kept.issued(held)

    def __del__(self) -> None:
        """Drops the calls of a group whose end was skipped: the handler of a signal has raised as __exit__() began. The
        group is open as long as that exception, with its traceback, is there."""
        if self._token is not None and self._token is _open.owner:  # which is false in another thread
            _open.depth = 0
            lib.whorlGroupSimulateEnd(NULL)
            self._close()
