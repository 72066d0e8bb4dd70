"""Communicators: how they are made, divided and ended."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any

import numpy as np

from whorl import _group
from whorl._async import Async
from whorl._errors import IN_PROGRESS, SUCCESS, Error, RemoteError, UsageError, check, error_of, text
from whorl._library import NULL, ffi, lib
from whorl._mpi import Mpi
from whorl._signals import require_outside, waiting
from whorl._types import ScaledSum, kind_of, require_whole

# Options of a communicator: the field of whorlConfig_t, and its type.
OPTIONS: dict[str, tuple[str, type[Any]]] = {
    "timeout": ("timeoutMs", float), "name": ("commName", str), "memory_budget": ("memoryBudget", int),
    "min_channels": ("minCTAs", int), "max_channels": ("maxCTAs", int),
    "channels_per_peer": ("nChannelsPerNetPeer", int), "net_name": ("netName", str),
}
UNDEFINED = -(2**31)  # WHORL_CONFIG_UNDEF_INT


def _config(options: dict[str, Any]) -> tuple[Any, list[Any]]:
    """Returns a whorlConfig_t with the options, and what it points to."""
    config, kept = ffi.new("whorlConfig_t*"), []
    for field, kind in ffi.typeof("whorlConfig_t").fields:
        if kind.type is ffi.typeof("int"):
            setattr(config, field, UNDEFINED)
    config.size, config.magic = ffi.sizeof("whorlConfig_t"), lib.WHORL_CONFIG_MAGIC
    config.version = lib.WHORL_VERSION_CODE
    for name, value in options.items():
        if name not in OPTIONS:
            raise TypeError(f"there is no option {name!r} of a communicator; there are {', '.join(OPTIONS)}")
        if value is None:
            continue
        field, kind = OPTIONS[name]
        wanted: tuple[type[Any], ...] = (int, float, np.number) if kind is float else (kind,)
        if not isinstance(value, wanted) or isinstance(value, bool):
            raise TypeError(f"option {name} is {value!r}; it must be a {kind.__name__}")
        if name == "timeout":
            value = _milliseconds(value)
        elif kind is str:
            value = ffi.new("char[]", value.encode())
            kept.append(value)
        try:
            setattr(config, field, value)
        except OverflowError as error:
            raise ValueError(f"option {name} is {value}, which is out of range") from error
    return config, kept


def _milliseconds(seconds: float) -> int:
    if not hasattr(seconds, "__float__"):
        raise TypeError(f"a timeout is a {type(seconds).__name__}; it must be a number of seconds")
    if not 0.001 <= seconds <= 2_000_000:
        raise ValueError(f"a timeout is {seconds} s; it must be from 0.001 to 2000000 s")
    return int(round(seconds * 1000))


def unique_id() -> bytes:
    """Makes the id of one new communicator: bytes that the caller carries to the other ranks.

    The id contains a secret: do not print or publish it. This process serves the meeting of the ranks in the
    background, and must not end before they have met.
    """
    cell = ffi.new("whorlUniqueId*")
    check(lib.whorlGetUniqueId(cell))
    return bytes(ffi.buffer(cell))


def _id_of(value: bytes) -> Any:
    size = int(lib.WHORL_UNIQUE_ID_BYTES)
    if not isinstance(value, (bytes, bytearray)) or len(value) != size:
        raise TypeError(f"unique_id must be the {size} bytes of whorl.unique_id(), not {type(value).__name__}"
                        + (f" of {len(value)}" if isinstance(value, (bytes, bytearray)) else ""))
    cell = ffi.new("whorlUniqueId*")
    ffi.memmove(cell, value, size)
    return cell[0]


def _scalar(scalar: Any, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Returns an array with a number as an element of `dtype`; raises where integers do not have the number."""
    number = np.asarray(scalar)
    if number.ndim != 0 or number.dtype.kind in "cSUMmO":
        raise TypeError(f"scaled_sum: scalar is {scalar!r}; it must be one real number")
    with np.errstate(invalid="ignore"):
        value = number.reshape(1).astype(dtype)
    if dtype.kind in "iu" and int(value[0]) != number.item():
        raise ValueError(f"scaled_sum: scalar is {scalar!r}, which is no number of {dtype}")
    return value


def _wait_for_creation(comm: Any) -> int:
    """Waits until a communicator that is being created is complete, and looks for signals meanwhile."""
    state, pause = ffi.new("whorlResult_t*"), 20e-6
    while True:
        check(lib.whorlCommGetAsyncError(comm, state))
        result = int(state[0])
        if result != IN_PROGRESS:
            return result
        time.sleep(pause)
        pause = min(2 * pause, 2e-3)


def _create(options: dict[str, Any], begin: Callable[[Any, Any], int]) -> Any:
    """Creates a communicator by `begin(cell, config)`, so that Ctrl-C ends the wait for other ranks."""
    if _group.in_group():
        raise UsageError("communicators cannot be made within a group; init_all() makes all ranks of one process")
    config, _kept = _config(options)
    config.blocking = 0
    cell = ffi.new("whorlComm_t*")
    result = begin(cell, config)
    if result not in (SUCCESS, IN_PROGRESS):
        check(result)
    comm = cell[0]
    try:
        result = _wait_for_creation(comm)
    except BaseException:
        lib.whorlCommAbort(comm)
        raise
    if result != SUCCESS:
        error = error_of(result, comm)
        lib.whorlCommAbort(comm)
        raise error
    return comm


def _destroy(handle: Any, process: int) -> None:
    if os.getpid() == process:  # a child of fork() leaves the communicators of its parent alone
        lib.whorlCommDestroy(handle)


class Communicator(Mpi, Async):
    """Membership of this process in a group of ranks, which exchange arrays.

    One thread at a time may use a communicator; different ones may be used at the same time. All ranks make the same
    calls in the same order. After an error that the property `error` returns, too, the communicator is dead: shrink()
    it, or abort() it.

    Options, of every function that makes a communicator: `timeout`, the seconds without progress after which an
    operation or the creation fails; `name`, for messages; `memory_budget` in bytes; `min_channels`, `max_channels`,
    `channels_per_peer`, `net_name` as in whorlConfig_t.
    """

    def __init__(self, unique_id: bytes, size: int, rank: int, **options: Any) -> None:
        """Joins a rank to the communicator of an id; returns when all have joined."""
        identity = _id_of(unique_id)
        require_whole(size, "Communicator", "size")
        require_whole(rank, "Communicator", "rank")
        self._begin(_create(options, lambda cell, config: int(
            lib.whorlCommInitRankConfig(cell, size, identity, rank, config))))

    def _begin(self, handle: Any) -> None:
        self._handle, self._process = handle, os.getpid()
        self._use = threading.RLock()
        number = ffi.new("int*")
        check(lib.whorlCommUserRank(handle, number))
        self.rank = int(number[0])
        check(lib.whorlCommCount(handle, number))
        self.size = int(number[0])
        # A communicator that is dropped is destroyed. At the exit of the program the library does that itself.
        self._finalizer = weakref.finalize(self, _destroy, handle, self._process)
        self._finalizer.atexit = False

    @classmethod
    def _of(cls, handle: Any) -> Communicator:
        comm = cls.__new__(cls)
        comm._begin(handle)
        return comm

    @classmethod
    def from_address(cls, address: str, size: int, rank: int, **options: Any) -> Communicator:
        """Joins ranks that agree on one "host:port", where rank 0 listens (docs/launchers.md: who may join)."""
        if not isinstance(address, str):
            raise TypeError(f"from_address: address is a {type(address).__name__}; it must be a string, \"host:port\"")
        where = address.encode()
        require_whole(size, "from_address", "size")
        require_whole(rank, "from_address", "rank")
        return cls._of(_create(options, lambda cell, config: int(
            lib.whorlCommInitAddress(cell, size, where, rank, config))))

    @classmethod
    def from_mpi4py(cls, comm: Any, **options: Any) -> Communicator:
        """Joins the ranks of a communicator of mpi4py, with the same numbers."""
        failure: Exception | None = None
        identity: bytes | str | None = None
        if comm.Get_rank() == 0:
            try:
                identity = unique_id()
            except Exception as error:
                failure, identity = error, str(error)  # the other ranks wait for something
        identity = comm.bcast(identity, root=0)
        if failure is not None:
            raise failure
        if isinstance(identity, str):
            raise RemoteError(f"rank 0 could not make the id of the communicator: {identity}")
        return cls(identity, comm.Get_size(), comm.Get_rank(), **options)

    @classmethod
    def join(cls, unique_id: bytes, size: int, rank: int, **options: Any) -> Communicator:
        """Joins a rank to the ranks of a communicator that call grow() with the same size.

        `unique_id` is what grow_id() has returned on one of them, and `rank` a number from the old size on.
        """
        identity = _id_of(unique_id)
        require_whole(size, "join", "size")
        require_whole(rank, "join", "rank")
        return cls._of(_create(options, lambda cell, config: int(
            lib.whorlCommGrow(NULL, size, ffi.addressof(identity), rank, cell, config))))

    # --- others from this one ---

    def _derive(self, call: str, begin: Callable[[Any, Any], int], options: dict[str, Any]) -> Communicator | None:
        if _group.in_group():  # whose end, when the cell is gone, would write the communicator
            raise UsageError(f"{call}: communicators cannot be made within a group")
        config, _kept = _config(options)
        cell = ffi.new("whorlComm_t*")
        with self._one_thread(call):
            check(begin(cell, config if options else NULL))
        return None if cell[0] == NULL else Communicator._of(cell[0])

    def split(self, color: int | None = 0, key: int = 0, **options: Any) -> Communicator | None:
        """Divides the communicator: ranks of equal color (from 0 on) form a new one, ordered by key, then by rank.

        A rank with None takes part in the call and gets None. Options that are not given are inherited.
        """
        number = int(lib.WHORL_SPLIT_NOCOLOR) if color is None else color
        require_whole(number, "split", "color")
        require_whole(key, "split", "key")
        return self._derive("split", lambda cell, config: waiting(
            lib.whorlCommSplit, self._alive(), number, key, cell, config), options)

    def shrink(self, exclude: Iterable[int] | None = None, *, abort: bool | None = None,
               **options: Any) -> Communicator:
        """Makes a communicator of the ranks that remain; only these call it, all with the same list.

        With None those are excluded that have died or left. `abort` ends the operations of the communicator, which
        may have failed; by default it does so where exclude is None. The communicator is still to be freed or aborted.
        """
        ranks = [] if exclude is None else list(exclude)
        for rank in ranks:
            require_whole(rank, "shrink", "exclude")
        ends = exclude is None if abort is None else abort
        flags = int(lib.WHORL_SHRINK_ABORT if ends else lib.WHORL_SHRINK_DEFAULT)
        if exclude is not None and not ranks:
            raise ValueError("shrink: exclude is empty; None excludes the ranks that have died or left")
        numbers = ffi.new("int[]", ranks)
        comm = self._derive("shrink", lambda cell, config: waiting(
            lib.whorlCommShrink, self._alive(), numbers if ranks else NULL, len(ranks), cell, config, flags), options)
        assert comm is not None  # unlike split(), whorlCommShrink() makes one where it succeeds
        return comm

    def grow_id(self) -> bytes:
        """Makes the id for grow() and join(), as unique_id() does. Called on one rank, whose process then serves the
        meeting."""
        cell = ffi.new("whorlUniqueId*")
        check(lib.whorlCommGetUniqueId(self._alive(), cell))
        return bytes(ffi.buffer(cell))

    def grow(self, size: int, unique_id: bytes | None = None, **options: Any) -> Communicator:
        """Makes a communicator of `size` ranks: those of this one, which keep their numbers, and others that join().

        All ranks of this communicator call it; exactly one passes the bytes of grow_id(). Waits for those that join.
        The communicator stays as it is, and is still to be freed.
        """
        identity = None if unique_id is None else _id_of(unique_id)
        require_whole(size, "grow", "size")
        with self._one_thread("grow"):
            return Communicator._of(_create(options, lambda cell, config: waiting(
                lib.whorlCommGrow, self._alive(), size, NULL if identity is None else ffi.addressof(identity), -1,
                cell, config)))

    # --- state ---

    @property
    def error(self) -> Error | None:
        """The error that has killed the communicator, or None. Any thread; does not wait."""
        state = ffi.new("whorlResult_t*")
        check(lib.whorlCommGetAsyncError(self._alive(), state))
        return None if state[0] in (SUCCESS, IN_PROGRESS) else error_of(int(state[0]), self._handle)

    def describe(self) -> str:
        """Returns a line about the communicator, for logs: where its ranks are, and hashes of the topology."""
        line = ffi.new("char[512]")
        check(lib.whorlCommDescribe(self._alive(), line, 512))
        return text(line)

    def set_timeout(self, seconds: float) -> None:
        """Sets the timeout of the operations that this rank issues from now on."""
        with self._one_thread("set_timeout"):
            check(lib.whorlCommSetTimeout(self._alive(), _milliseconds(seconds)))

    def scaled_sum(self, scalar: Any, dtype: Any) -> ScaledSum:
        """Makes an operator for arrays of `dtype`: multiplies this rank's input by a number, then sums.

        The number is rounded to `dtype`; for integers it must be a whole number of that type.
        """
        kind = np.dtype(dtype)
        code = kind_of(kind)
        if code is None or code.parts != 1:
            raise TypeError(f"scaled_sum: there is no scaled sum of {kind}")
        value, cell = _scalar(scalar, kind), ffi.new("whorlRedOp_t*")
        with self._one_thread("scaled_sum"):
            check(lib.whorlRedOpCreatePreMulSum(cell, ffi.from_buffer(value.view(np.uint8)), code.code,
                                                lib.whorlScalarHostImmediate, self._alive()))
        return ScaledSum(int(cell[0]), kind, self)

    def _free_op(self, op: ScaledSum) -> None:
        with self._one_thread("free"):
            check(lib.whorlRedOpDestroy(op.code, self._alive()))

    # --- the end ---

    def revoke(self) -> None:
        """Ends all operations of the communicator at once, on every rank, and keeps it for shrink(). Any thread."""
        check(lib.whorlCommRevoke(self._alive(), lib.WHORL_REVOKE_DEFAULT))

    def abort(self) -> None:
        """Ends all operations of the communicator at once, on every rank, and frees it. Any thread, also while another
        one is inside a call on it, which raises then."""
        require_outside()
        if self._finalizer.detach() is not None:
            handle, self._handle = self._handle, NULL
            result = lib.whorlCommAbort(handle)
            self._drop_stream()
            check(result)

    def free(self) -> None:
        """Waits until all operations of this rank are complete, and frees the communicator. One that has failed is
        freed without a wait."""
        if self._finalizer.alive:
            with self._one_thread("free"):
                self._free()

    def _free(self) -> None:
        failed = self.error is not None
        result = SUCCESS if failed else waiting(lib.whorlCommFinalize, self._handle)
        error = None if result == SUCCESS else error_of(result)
        if self._finalizer.detach() is not None:
            handle, self._handle = self._handle, NULL
            result = waiting(lib.whorlCommDestroy, handle)
            self._drop_stream()
            if error is None and not failed:
                check(result)
        if error is not None:
            raise error

    def _drop_stream(self) -> None:
        if self._own_stream is not None:
            self._own_stream._finalizer()
            self._own_stream = None

    def Split(self, color: int | None = 0, key: int = 0) -> Communicator | None:
        """Does what split() does."""
        return self.split(color, key)

    def Dup(self) -> Communicator | None:
        """Makes another communicator of the same ranks."""
        return self.split(0, self.rank)

    def Free(self) -> None:
        """Does what free() does."""
        self.free()

    def Abort(self) -> None:
        """Does what abort() does; unlike MPI's, ends no process."""
        self.abort()

    def __enter__(self) -> Communicator:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Frees the communicator. After an exception it is aborted instead, so that the other ranks do not wait. In a
        child of fork() does nothing: the communicator is its parent's."""
        if os.getpid() != self._process:
            return
        if kind is None:
            self.free()
        else:
            self.abort()

    def __repr__(self) -> str:
        if self._handle == NULL:
            return f"<whorl.Communicator: rank {self.rank} of {self.size}, ended>"
        return f"<whorl.Communicator: rank {self.rank} of {self.size}>"


def init(**options: Any) -> Communicator:
    """Makes a communicator of all processes that the launcher started: mpirun, srun, torchrun, or WHORL_RANK,
    WHORL_NRANKS and WHORL_ADDRESS; a process without a launcher is rank 0 of 1."""
    return Communicator._of(_create(options, lambda cell, config: int(lib.whorlCommInitEnv(cell, config))))


def init_all(size: int) -> list[Communicator]:
    """Makes the communicators of `size` ranks in this process, for a thread each, or for one thread with groups."""
    require_whole(size, "init_all", "size")
    if size < 1:
        raise ValueError(f"init_all: size is {size}; it must be at least 1")
    cells = ffi.new("whorlComm_t[]", size)
    check(lib.whorlCommInitAll(cells, size, NULL))
    return [Communicator._of(cells[rank]) for rank in range(size)]
