"""Deaths, absence and signals: exceptions that name the rank, and an interpreter that listens to Ctrl-C."""

from __future__ import annotations

import ctypes
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import whorl
from ranks import outcomes, run, until
from whorl import _group, _signals
from whorl._library import ffi, lib


def killed(comm: whorl.Communicator) -> tuple[str, float]:
    comm.barrier()
    if comm.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    begin = time.monotonic()
    with pytest.raises(whorl.RemoteError) as error:
        while True:
            comm.allreduce(np.ones(1000))
    seconds = time.monotonic() - begin
    assert error.value.code == 6 and isinstance(comm.error, whorl.RemoteError)
    with pytest.raises(whorl.Error):
        comm.barrier()
    rest = comm.shrink()
    assert (rest.size, int(rest.allreduce(1))) == (2, 2)
    rest.free()
    return str(error.value), seconds


def test_a_killed_rank_is_named() -> None:
    results = outcomes(3, killed)
    assert results[1] == ("died", -signal.SIGKILL)
    for rank in (0, 2):
        what, value = results[rank]
        assert what == "returned", value
        text, seconds = value
        assert "rank 1" in text and seconds < 10


def absent(comm: whorl.Communicator, turn: Path) -> None:
    if comm.rank == 0:
        comm.set_timeout(0.5)
        with pytest.raises(whorl.RemoteError, match="rank 1.*raise the timeout .timeout= of the packages"):
            comm.allreduce(1)
        turn.touch()
    else:
        until(turn.exists)


def test_a_rank_that_does_not_call(tmp_path: Path) -> None:
    run(2, absent, tmp_path / "turn")


def test_a_rank_that_does_not_come() -> None:
    begin = time.monotonic()
    with pytest.raises(whorl.RemoteError, match="rank 1"):
        whorl.Communicator(whorl.unique_id(), 2, 0, timeout=1.0)
    assert time.monotonic() - begin < 10


def mismatch(comm: whorl.Communicator) -> None:
    with pytest.raises(whorl.UsageError, match="count"):
        comm.allreduce(np.ones(3 + comm.rank))


def test_ranks_that_disagree() -> None:
    run(2, mismatch)


def raising(comm: whorl.Communicator) -> None:
    part = comm.split()
    assert part is not None
    with pytest.raises(KeyError if comm.rank == 0 else whorl.Error), part:
        if comm.rank == 0:
            raise KeyError("mine")
        part.allreduce(1)  # ends when rank 0 aborts the communicator
    comm.barrier()


def test_an_exception_in_one_rank_reaches_the_others() -> None:
    run(2, raising)


class Interruption(Exception):
    """What the handler of a signal raises."""


@contextmanager
def raising_handler() -> Iterator[None]:
    """Has a handler of SIGUSR1 that raises."""

    def handler(number: int, frame: object) -> None:
        raise Interruption

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGUSR1, before)


@contextmanager
def signal_in(seconds: float) -> Iterator[None]:
    """Sends a signal to this process after a time; its handler raises."""
    timer = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGUSR1))
    with raising_handler():
        timer.start()
        begin = time.monotonic()
        try:
            with pytest.raises(Interruption):
                yield
            assert time.monotonic() - begin < seconds + 5
        finally:
            timer.join()


WAITS: list[Callable[[whorl.Communicator], Any]] = [
    lambda comm: comm.allreduce(1),
    lambda comm: comm.recv(np.zeros(1), 1),
    lambda comm: comm.split(),
    lambda comm: comm.Sendrecv(np.zeros(1), 1, recvbuf=np.zeros(1), source=1),  # a group
]


def interrupted(comm: whorl.Communicator, number: int, turn: Path) -> None:
    if comm.rank == 0:
        with signal_in(0.3):
            WAITS[number](comm)
        turn.touch()
        comm.abort()
    else:
        until(turn.exists)
        with pytest.raises(whorl.Error):
            comm.barrier()
        comm.abort()


@pytest.mark.parametrize("number", range(len(WAITS)))
def test_a_signal_ends_a_call(number: int, tmp_path: Path) -> None:
    run(2, interrupted, number, tmp_path / "turn")


def interrupted_behind_a_queue(comm: whorl.Communicator, number: int, turn: Path) -> None:
    """The operation before the call is in the hands of a thread of the library."""
    if comm.rank == 0:
        stream = whorl.Stream()
        comm.allreduce(np.ones(1), stream=stream)
        time.sleep(0.1)  # that thread begins it
        with signal_in(0.3):
            WAITS[number](comm)
        turn.touch()
        comm.abort()
    else:
        until(turn.exists)
        comm.abort()


@pytest.mark.parametrize("number", range(len(WAITS)))
def test_a_signal_ends_a_call_behind_a_queue(number: int, tmp_path: Path) -> None:
    run(2, interrupted_behind_a_queue, number, tmp_path / "turn")


def aborting(comm: whorl.Communicator, turn: Path) -> None:
    """A handler cannot use the communicator that its thread is waiting in; what it raises by that ends the wait."""
    if comm.rank == 0:
        signal.signal(signal.SIGALRM, lambda number, frame: comm.abort())
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        with pytest.raises(whorl.UsageError, match="this handler of a signal runs within a call"):
            comm.allreduce(1)
        turn.touch()
    else:
        until(turn.exists)
    comm.abort()


def test_a_handler_that_aborts(tmp_path: Path) -> None:
    run(2, aborting, tmp_path / "turn")


def interrupted_stream(comm: whorl.Communicator, turn: Path) -> None:
    stream = whorl.Stream()
    if comm.rank == 0:
        result = comm.allreduce(np.ones(1), stream=stream)
        with signal_in(0.3):
            stream.synchronize()
        assert result is not None
        turn.touch()
        comm.abort()
    else:
        until(turn.exists)
        comm.abort()


def test_a_signal_ends_a_wait_for_a_stream(tmp_path: Path) -> None:
    run(2, interrupted_stream, tmp_path / "turn")


def test_a_signal_before_the_end_of_a_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal before the call that issues the group leaves no group open."""

    def interrupted_before(function: Callable[..., int], *arguments: Any) -> int:
        signal.raise_signal(signal.SIGUSR1)
        return _signals.waiting(function, *arguments)

    (comm,) = whorl.init_all(1)
    out = np.zeros(1)
    with monkeypatch.context() as patched, raising_handler():
        patched.setattr(_group, "waiting", interrupted_before)
        with pytest.raises(Interruption), whorl.group():
            comm.allreduce(np.ones(1), out=out)
    assert out[0] == 0 and comm.allreduce(np.ones(1), out=out)[0] == 1 == out[0]
    with whorl.group():
        comm.allreduce(np.full(1, 9.0), out=out)
    assert out[0] == 9
    comm.free()


class Raises:
    """Object whose items are signals that come behind the last line of a block: nothing looks for signals there before
    __exit__() begins, as behind a call."""

    __getitem__ = ctypes.CDLL(None)["raise"]


def test_a_signal_that_skips_the_end_of_a_group() -> None:
    """The group is not open any more, although the exception is there, and with it the frames that it went through, and
    perhaps the group itself."""
    (comm,) = whorl.init_all(1)
    out, raises = np.zeros(1), Raises()
    kept: list[object] = []
    for nested, keeps in product((False, True), (False, True)):
        with raising_handler():
            try:
                with whorl.group() as outer:
                    comm.allreduce(np.full(1, 5.0), out=out)
                    if keeps:
                        kept.append(outer)
                    del outer
                    if nested:
                        with whorl.group() as inner:
                            if keeps:
                                kept.append(inner)
                            del inner
                            raises[signal.SIGUSR1]
                    raises[signal.SIGUSR1]
            except Interruption as error:
                kept.append(error)
                assert not _group.in_group()
        assert comm.allreduce(np.full(1, 7.0))[0] == 7 and out[0] == 0
    with raising_handler(), pytest.raises(whorl.UsageError, match="a group within this one"), whorl.group():
        comm.allreduce(np.full(1, 5.0), out=out)
        with pytest.raises(Interruption) as caught, whorl.group():
            raises[signal.SIGUSR1]
    assert caught and out[0] == 0
    with ExitStack() as stack:
        stack.enter_context(whorl.group())
        comm.allreduce(np.full(1, 9.0), out=out)
    assert out[0] == 9
    comm.free()


def test_one_group_object_may_be_entered_again() -> None:
    (comm,) = whorl.init_all(1)
    out, group = np.zeros(1), whorl.group()
    for value in (1.0, 2.0):
        with group:
            with group:
                comm.allreduce(np.full(1, value), out=out)
            assert _group.in_group() and out[0] == value - 1
        assert out[0] == value
    for value in (3.0, 4.0):  # without a statement
        group.__enter__()
        comm.allreduce(np.full(1, value), out=out)
        assert out[0] == value - 1
        group.__exit__(None, None, None)
        assert out[0] == value
    comm.free()


def test_one_group_object_may_be_used_by_two_threads() -> None:
    group, entered, left = whorl.group(), threading.Event(), threading.Event()

    def other() -> None:
        with group:
            entered.set()
            assert left.wait(60)

    end = group.__exit__  # as a `with` does first
    thread = threading.Thread(target=other)
    thread.start()
    assert entered.wait(60)
    group.__enter__()
    left.set()
    thread.join()
    assert _group.in_group()
    end(None, None, None)
    assert not _group.in_group()


def test_a_signal_at_any_line_of_a_group() -> None:
    """Wherever a signal comes, its exception ends the loop, and the next group is as good as the first one."""
    (comm,) = whorl.init_all(1)
    stream, numbers, ended = whorl.Stream(), random.Random(1), 0
    for number in range(3000):
        results, lines = [], []
        with raising_handler():
            before = signal.signal(signal.SIGALRM, signal.getsignal(signal.SIGUSR1))
            try:
                signal.setitimer(signal.ITIMER_REAL, numbers.uniform(1e-6, 150e-6))
                for _ in range(100):
                    with whorl.group():
                        comm.allreduce(np.ones(1))
                        with whorl.group():
                            lines.append(comm.allreduce(np.ones(1), stream=stream))
            except Interruption as error:
                results.append(error)
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
                signal.signal(signal.SIGALRM, before)
            ended += len(results)
            assert not _group.in_group() and not _group._open.kept and not _group._open.failed, number
        stream.synchronize()
    assert ended == 3000
    comm.free()


def test_a_signal_at_the_beginning_of_a_call() -> None:
    """A signal behind the line that claims the communicator for this thread leaves it usable for this thread."""

    class Claim:
        """Lock of a communicator, taken as a signal comes."""

        def __init__(self, lock: Any) -> None:
            self.acquire = lambda wait: lock.acquire(wait) and signal.raise_signal(signal.SIGUSR1)

    (comm,) = whorl.init_all(1)
    lock = comm._use
    with raising_handler(), pytest.raises(Interruption):
        comm._use = Claim(lock)  # type: ignore[assignment]
        comm.allreduce(1)
    comm._use = lock
    assert comm.allreduce(1) == 1
    comm.free()


def test_a_child_of_fork_leaves_the_block_of_its_parent() -> None:
    """What a child raises in a block of its parent is not replaced by an error of the communicator or stream."""
    status = []
    for end in (SystemExit(3), None):
        child = -1
        try:
            with whorl.init_all(1)[0] as comm, whorl.Stream():
                child = os.fork()
                if child == 0 and end is not None:
                    raise end
                assert child == 0 or comm.allreduce(1) == 1
            if child == 0:
                os._exit(4)
        except BaseException as error:
            if child == 0:
                os._exit(int(error.code) if isinstance(error, SystemExit) and error.code else 1)
            raise
        status.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    assert status == [3, 4]


def test_a_signal_ends_the_creation() -> None:
    with signal_in(0.3):
        whorl.Communicator(whorl.unique_id(), 2, 0)
    (comm,) = whorl.init_all(1)
    with signal_in(0.3):
        comm.grow(2, comm.grow_id())
    assert comm.allreduce(1) == 1


def handled(comm: whorl.Communicator, turn: Path) -> int:
    """A handler that does not raise runs during a wait, and the wait goes on."""
    if comm.rank == 1:
        until(turn.exists)
        return int(comm.allreduce(1))
    moments: list[float] = []

    def handler(number: int, frame: object) -> None:
        moments.append(time.monotonic())
        if len(moments) == 3:
            turn.touch()

    signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.1, 0.1)
    total = int(comm.allreduce(1))
    signal.setitimer(signal.ITIMER_REAL, 0)
    assert len(moments) >= 3
    return total


def test_a_handler_that_does_not_raise(tmp_path: Path) -> None:
    assert run(2, handled, tmp_path / "turn") == [2, 2]


def test_the_check_of_another_package_is_restored() -> None:
    @ffi.callback("int(void)")
    def check() -> int:
        return 0

    def current() -> Any:
        found = ffi.new("int (**)(void)")
        assert lib.whorlGetInterruptCheck(found) == 0
        return found[0]

    assert lib.whorlSetInterruptCheck(check) == 0
    try:
        assert whorl.init_all(1)[0].allreduce(1) == 1
        assert current() == check
        lib.whorlSetInterruptCheck(_signals._look)  # as a child of fork() finds it if the parent was in a call
        assert whorl.init_all(1)[0].allreduce(1) == 1
        assert current() == check
    finally:
        lib.whorlSetInterruptCheck(ffi.NULL)
    assert whorl.init_all(1)[0].allreduce(1) == 1
    assert current() == ffi.NULL


PROGRAM = """
import signal, numpy, whorl
signal.signal(signal.SIGINT, signal.default_int_handler)  # which a job in the background begins without
comms = whorl.init_all(2)
stream = whorl.Stream()
kept = comms[0].allreduce(numpy.ones(1), stream=stream)
print("ready", flush=True)
"""


@pytest.mark.parametrize("rest", ["", "comms[0].allreduce(1)", "comms[0].free()", "comms[0].split()",
                                  "__import__('time').sleep(0.2); comms[0].allreduce(1)"])
def test_the_end_of_a_program(rest: str) -> None:
    """A program ends with an operation under way, by itself or by Ctrl-C, without a crash or a long wait."""
    process = subprocess.Popen([sys.executable, "-c", PROGRAM + rest], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               text=True)
    try:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        if rest:
            time.sleep(0.3)
            process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=20)
    finally:
        process.kill()
    if rest:
        assert "KeyboardInterrupt" in errors
        assert process.returncode in (-signal.SIGINT, 130), errors
    else:
        assert process.returncode == 0, errors


def test_without_the_library(tmp_path: Any) -> None:
    """The error says what to do, where there is no library; the package is copied without it."""
    import shutil

    package = tmp_path / "whorl"
    shutil.copytree(os.path.dirname(whorl.__file__), package, ignore=shutil.ignore_patterns("*.so*"))
    environment = dict(os.environ, PYTHONPATH=str(tmp_path), LD_LIBRARY_PATH="")
    answer = subprocess.run([sys.executable, "-c", "import whorl"], env=environment, capture_output=True, text=True,
                            check=False)
    if answer.returncode == 0:
        pytest.skip("libwhorl.so.0 is installed in the system")
    assert "pip install ./bindings/python" in answer.stderr and "libwhorl.so.0" in answer.stderr
