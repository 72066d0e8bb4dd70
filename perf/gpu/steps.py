"""Runs of programs that may fail, hang, or stay in the driver and never end."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

TERM_SECONDS = 1.0  # from SIGTERM to SIGKILL
KILL_SECONDS = 3.0  # from SIGKILL until a process is left behind


@dataclass
class Outcome:
    """End of a program: `code` is its exit status (minus a signal's number), None where it had no end in time."""

    code: int | None
    seconds: float
    left_behind: bool = False  # the process did not end even after SIGKILL

    def text(self) -> str:
        if self.left_behind:
            return f"no end within {self.seconds:.0f} s, not even after SIGKILL: left behind"
        if self.code is None:
            return f"no end within {self.seconds:.0f} s"
        return f"signal {-self.code}" if self.code < 0 else f"exit status {self.code}"


def run(command: list[str], limit: float, environment: dict[str, str] | None = None, *,
        output: Path, errors: Path | None = None) -> Outcome:
    """Runs a program for `limit` seconds at most; its output is in files from the first byte on. At the limit all
    processes of its group are ended, and one that stays in the kernel is left behind."""
    began = time.monotonic()
    with output.open("wb") as out, (errors or Path(os.devnull)).open("wb") as other:
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out,
                stderr=other if errors is not None else subprocess.STDOUT,
                env={**os.environ, **(environment or {})}, start_new_session=True)
        except OSError as error:
            out.write(f"cannot run {command[0]}: {error.strerror}\n".encode())
            return Outcome(127, 0.0)
    code: int | None = None
    left_behind = False
    try:
        code = process.wait(limit)
    except subprocess.TimeoutExpired:
        left_behind = not _end(process)
    seconds = time.monotonic() - began
    _signal(process, signal.SIGKILL)  # what the program has left running
    return Outcome(code, seconds, left_behind)


def _signal(process: subprocess.Popen[bytes], number: int) -> None:
    try:
        os.killpg(process.pid, number)
    except (ProcessLookupError, PermissionError):
        pass


def _end(process: subprocess.Popen[bytes]) -> bool:
    """Ends the program's group. Returns whether the program has ended."""
    for number, seconds in ((signal.SIGTERM, TERM_SECONDS), (signal.SIGKILL, KILL_SECONDS)):
        _signal(process, number)
        try:
            process.wait(seconds)
            return True
        except subprocess.TimeoutExpired:
            continue
    return False
