"""Exceptions: one class for each result code, with the sentence of whorlGetLastError()."""

from __future__ import annotations

from typing import Any

from whorl._library import NULL, ffi, lib


class Error(RuntimeError):
    """An error of the library. `code` is its whorlResult_t."""

    code = -1


class CudaError(Error):
    """A call of the CUDA driver failed."""

    code = int(lib.whorlUnhandledCudaError)


class SystemCallError(Error):
    """A system call failed: memory, permissions, sockets."""

    code = int(lib.whorlSystemError)


class InternalError(Error):
    """A defect of whorl."""

    code = int(lib.whorlInternalError)


class ArgumentError(Error, ValueError):
    """An argument is wrong; nothing happened, and the communicator is as good as before."""

    code = int(lib.whorlInvalidArgument)


class UsageError(Error):
    """Calls do not fit together: ranks disagree, a wrong order, a communicator that is dead."""

    code = int(lib.whorlInvalidUsage)


class RemoteError(Error):
    """Another rank died, is absent, cannot be reached, or failed; the sentence names the rank."""

    code = int(lib.whorlRemoteError)


CLASSES = {
    kind.code: kind for kind in (CudaError, SystemCallError, InternalError, ArgumentError, UsageError, RemoteError)
}
SUCCESS = int(lib.whorlSuccess)
IN_PROGRESS = int(lib.whorlInProgress)


def text(pointer: Any) -> str:
    """Returns a text of the library as a string."""
    return bytes(ffi.string(pointer)).decode(errors="replace")


def error_of(result: int, comm: Any = NULL) -> Error:
    """Returns the exception for a result: with the last sentence of `comm`, or of this thread."""
    sentence = text(lib.whorlGetLastError(comm)) or text(lib.whorlGetErrorString(result))
    return CLASSES.get(result, Error)(sentence)


def check(result: int) -> None:
    """Raises the exception for the result of a call of this thread, unless it is success."""
    if result != SUCCESS:
        raise error_of(result)
