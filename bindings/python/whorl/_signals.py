"""Handlers of signals during calls that wait, so that Ctrl-C ends them.

The interpreter handles signals on the main thread only, which may be inside the library. The library asks a function
while a thread waits for other ranks (whorlSetInterruptCheck()): about every millisecond, or every 20 ms where the
call waits behind queued operations. The function below is set
while the main thread is inside a call. There the interpreter runs the handlers of signals that have come. An exception
of a handler, as KeyboardInterrupt, ends the call and its communicator. At other times the function is not set, so that
no thread of the library has to wait for the interpreter, but what another package of the process has set.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections.abc import Callable
from typing import Any

from whorl._errors import UsageError
from whorl._library import NULL, ffi, lib

_main = threading.main_thread().ident
_inside = False  # whether the main thread is in a call, possibly in a handler of a signal that came there
_raised: BaseException | None = None
_was_set = False
_others = NULL  # the function that another package has set
_found = ffi.new("int (**)(void)")


def _keep(_kind: Any, value: BaseException, _traceback: Any) -> None:
    global _raised
    _raised = value


@ffi.callback("int(void)", error=1, onerror=_keep)  # type: ignore[untyped-decorator]
def _look() -> int:
    return 0  # the interpreter runs handlers when a function begins


def _check() -> Any:
    """Returns the function that is set."""
    lib.whorlGetInterruptCheck(_found)
    return _found[0]


def waiting(function: Callable[..., int], *arguments: Any) -> int:
    """Calls a function of the library that may wait, and returns its result."""
    global _inside, _others, _raised, _was_set
    if _inside or threading.get_ident() != _main:
        return function(*arguments)
    raised = _raised = None
    if _check() != _look:  # which it is after a signal at the end of a call, or in a child of fork()
        _others = _found[0]
    try:
        _inside = _was_set = True
        lib.whorlSetInterruptCheck(_look)
        result = function(*arguments)
    finally:
        _inside = False  # first: a signal may end these lines, too
        if _check() == _look:  # another package may have set its own meanwhile
            lib.whorlSetInterruptCheck(_others)
        raised, _raised = _raised, None
    if raised is not None:
        raise raised
    return result


def require_outside() -> None:
    """Raises in the handler of a signal that has come during a call of this thread, which must end first."""
    if _inside and threading.get_ident() == _main:
        raise UsageError("this handler of a signal runs within a call that waits for other ranks, and can use neither "
                         "communicators nor streams; an exception of the handler ends the call")


def _leave() -> None:
    """Lets a thread of the library that is about to enter the interpreter do so before the interpreter ends."""
    lib.whorlSetInterruptCheck(NULL)
    if _was_set:
        time.sleep(0.01)


atexit.register(_leave)


def _in_child() -> None:
    global _main, _inside
    _main, _inside = threading.get_ident(), False


os.register_at_fork(after_in_child=_in_child)
