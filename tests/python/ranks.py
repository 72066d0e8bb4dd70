"""Runs a function as the ranks of a communicator, each in a process of its own."""

from __future__ import annotations

import multiprocessing
import time
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import whorl

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["numpy", "whorl", "whorl.perf"])

def until(condition: Callable[[], object], seconds: float = 20) -> None:
    """Waits for a condition, as that another rank has made a file; fails after some seconds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


Outcome = tuple[str, Any]  # ("returned", value), ("raised", traceback) or ("died", exit code)


def _main(unique_id: bytes, size: int, rank: int, options: dict[str, Any], function: Callable[..., Any],
          args: tuple[Any, ...], pipe: Connection) -> None:
    try:
        comm = whorl.Communicator(unique_id, size, rank, **options)
        value = function(comm, *args)
        comm.free()
        pipe.send(("returned", value))
    except BaseException:
        pipe.send(("raised", traceback.format_exc()))


def outcomes(size: int, function: Callable[..., Any], *args: Any, limit: float = 60, **options: Any) -> list[Outcome]:
    """Returns what became of each rank. `limit` is the time of the whole in seconds."""
    unique_id = whorl.unique_id()
    options = {"timeout": 30.0, **options}
    processes, pipes = [], []
    for rank in range(size):
        mine, theirs = _context.Pipe(duplex=False)
        process = _context.Process(target=_main, daemon=True,
                                   args=(unique_id, size, rank, options, function, args, theirs))
        process.start()
        theirs.close()
        processes.append(process)
        pipes.append(mine)
    deadline = time.monotonic() + limit
    results: list[Outcome] = []
    for rank, (process, pipe) in enumerate(zip(processes, pipes)):
        try:
            if pipe.poll(max(0.0, deadline - time.monotonic())):
                results.append(pipe.recv())
            else:
                results.append(("raised", f"rank {rank} was not done after {limit} s"))
                process.kill()
        except EOFError:
            process.join(5)
            results.append(("died", process.exitcode))
        process.join(max(1.0, deadline - time.monotonic()))
        if process.is_alive():
            process.kill()
            results[-1] = ("raised", f"rank {rank} did not exit within {limit} s")
        elif results[-1][0] == "returned" and process.exitcode != 0:
            results[-1] = ("raised", f"rank {rank} ended with exit code {process.exitcode}")
    return results


def run(size: int, function: Callable[..., Any], *args: Any, **how: Any) -> list[Any]:
    """Returns what `function(comm, *args)` returned on the ranks; fails if one raised or died."""
    results = outcomes(size, function, *args, **how)
    bad = [f"rank {rank} {what}: {value}" for rank, (what, value) in enumerate(results) if what != "returned"]
    assert not bad, "\n".join(bad)
    return [value for _, value in results]
