"""Groups of calls, of the calling thread."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import TYPE_CHECKING

from whorl._errors import check
from whorl._library import NULL, lib
from whorl._signals import waiting

if TYPE_CHECKING:
    from whorl._stream import Stream


class _Open(threading.local):
    """What the open group of a thread keeps."""

    def __init__(self) -> None:
        self.depth = 0
        self.kept: list[tuple[Stream | None, object]] = []  # buffers of calls, with the stream


_open = _Open()


def in_group() -> bool:
    """Tells whether this thread has an open group."""
    return _open.depth != 0


def keep(stream: Stream | None, buffers: object) -> None:
    """Keeps the buffers of a call of the open group until they are not needed any more."""
    _open.kept.append((stream, buffers))


class group:  # noqa: N801  # spelt as a function, which it is for users
    """Collects the calls of this thread on any communicators, and issues them together at the end.

    Needed for sends and receives that must proceed at the same time, and where one thread drives several ranks. Results
    of the calls are there after the `with`. If its body raises, none of the calls is issued. Groups nest.
    """

    def __enter__(self) -> group:
        check(lib.whorlGroupStart())
        _open.depth += 1
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        _open.depth -= 1
        if kind is not None:
            lib.whorlGroupSimulateEnd(NULL)
        try:
            if kind is None:
                check(waiting(lib.whorlGroupEnd))
        finally:
            if _open.depth == 0:
                kept, _open.kept = _open.kept, []
                for stream, buffers in kept:
                    if stream is not None:
                        stream._keep(buffers)
