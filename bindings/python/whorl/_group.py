"""Groups of calls, of the calling thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING
from weakref import ReferenceType, ref

from whorl._errors import UsageError, check
from whorl._library import NULL, lib
from whorl._signals import require_outside, waiting

if TYPE_CHECKING:
    from whorl._calls import Calls
    from whorl._stream import Stream


class _Open(threading.local):
    """What the open groups of a thread keep."""

    def __init__(self) -> None:
        self.groups: list[ReferenceType[object]] = []  # what holds each open, the outermost first
        self.failed = False  # whether the body of a nested group has raised
        # Communicators of the calls, with what hold() gave for a stream, or with buffers without one.
        self.kept: list[tuple[Calls, Stream | None, object]] = []


_open = _Open()


def in_group() -> bool:
    """Tells whether this thread has an open group."""
    groups = _open.groups
    if groups and None in [reference() for reference in groups]:
        _end_skipped()
    return bool(groups)


def _end_skipped() -> None:
    """Ends the groups whose end was skipped: what held them open is gone. A __del__() does not do that: an exception
    that the handler of a signal raises in one is lost."""
    first = [reference() for reference in _open.groups].index(None)
    if first == 0:
        _drop()
    else:
        _open.failed = True
        del _open.groups[first:]


def refuse(call: str) -> None:
    """Raises where this thread has an open group, at whose end `call` may be made."""
    if in_group():
        raise UsageError(f"{call} cannot be used within a group, whose operations begin at its end: call it after the "
                         f"group")


def keep(comm: Calls, stream: Stream | None, buffers: object) -> None:
    """Keeps the buffers of a call of the open group until they are not needed any more."""
    _open.kept.append((comm, stream, buffers if stream is None else stream._kept.hold(buffers)))


def _issue() -> None:
    """Issues the calls of the open group. Meanwhile this thread is inside a call on each of their communicators."""
    claimed: list[Calls] = []  # no contextlib here, whose ends a signal can skip, too
    try:
        for comm in {comm for comm, _, _ in _open.kept}:
            comm._claim("group")
            claimed.append(comm)
        check(waiting(lib.whorlGroupEnd))
    finally:
        for comm in claimed:
            comm._use.release()


def _drop() -> None:
    """Drops the calls of the open group, and forgets the group."""
    lib.whorlGroupSimulateEnd(NULL)
    _forget()


def _forget() -> None:
    """Forgets a group that has ended. Whatever line a signal comes at, the rest may be done later."""
    while _open.kept:
        _, stream, held = _open.kept[-1]
        if stream is not None:
            stream._kept.issued(held)
        _open.kept.pop()
    _open.failed = False
    _open.groups.clear()


def _leave(
    kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
) -> None:
    """Ends the innermost group."""
    in_group()  # ends those within whose end was skipped
    if len(_open.groups) > 1:
        _open.failed = _open.failed or kind is not None
        _open.groups.pop()
        return
    failed, ended = _open.failed, False
    try:
        if kind is None and not failed:
            _issue()
            ended = True
    finally:
        if not ended:  # also where the handler of a signal has raised before the issue
            lib.whorlGroupSimulateEnd(NULL)
        _forget()
    if failed and kind is None:
        raise UsageError("the body of a group within this one has raised: none of the calls was issued")


class _Exit:
    """Descriptor of __exit__(): gives a `with` a call of _leave() that only the `with` holds.

    The handler of a signal may raise as _leave() begins, so that nothing ends the group. The call is gone then, with
    the `with`, while the program may still have the group, or the traceback of that exception.
    """

    def __get__(self, instance: group | None, owner: type[group]) -> Callable[..., None]:
        if instance is None:  # for contextlib.ExitStack, which passes the group itself
            return lambda _group, *how: _leave(*how)
        end = partial(_leave)
        instance._ends[threading.get_ident()] = ref(end)
        return end


class group:  # noqa: N801  # spelt as a function, which it is for users
    """Collects the calls of this thread on any communicators, and issues them together at the end.

    Needed for sends and receives that must proceed at the same time, and where one thread drives several ranks. Results
    of the calls are there after the `with`. Groups nest; the outermost one issues the calls. If its body or the body of
    a group within it raises, none of the calls is issued. Where the program has caught what the inner body raised, the
    outermost group raises UsageError at its end.
    """

    __exit__ = _Exit()

    def __init__(self) -> None:
        self._ends: dict[int, ReferenceType[object]] = {}  # the call that a `with` holds, until __enter__(), by thread

    def __enter__(self) -> group:
        require_outside()
        outermost = not in_group()
        reference = self._ends.pop(threading.get_ident(), None)
        if reference is None or reference() is None:  # without a `with`
            reference = ref(self)
        try:
            _open.groups.append(reference)
            if outermost:  # nested groups are counted here only
                check(lib.whorlGroupStart())
        except BaseException:
            if outermost:  # a signal may come behind the start; without one, ending the group does nothing
                _drop()
            elif reference in _open.groups:
                _open.groups.remove(reference)
            raise
        return self
