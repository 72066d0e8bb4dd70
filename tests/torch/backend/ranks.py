"""Runs a function as the ranks of a process group, each in a process of its own."""

from __future__ import annotations

import multiprocessing
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.connection import Connection
from typing import Any

import torch.distributed as dist

_context = multiprocessing.get_context("forkserver")
# With what the modules of the tests import: each rank imports the module of its function.
_context.set_forkserver_preload(["torch", "torch.distributed", "whorl_torch", "pytest", "values", "ranks"])

DIED = "died"


class RankError(AssertionError):
    """What ranks raised."""


def let_others_leave(rank: int, size: int, dying: int = 1) -> None:
    """Returns on the rank that is to die once all others have left the operations so far, which a death would fail."""
    store = dist.distributed_c10d._get_default_store()
    if rank == dying:
        store.wait([f"{other} has left" for other in range(size) if other != dying])
    else:
        store.set(f"{rank} has left", "")


def _main(
    rank: int, size: int, port: int, seconds: float, backend: str, eager: bool, function: Callable,
    args: tuple, pipe: Connection
) -> None:
    import torch

    from whorl_torch import Options

    torch.set_num_threads(1)
    torch.manual_seed(rank)
    warnings.simplefilter("ignore")
    try:
        store = dist.TCPStore("127.0.0.1", port, is_master=False)
        dist.init_process_group(
            backend, store=store, rank=rank, world_size=size, timeout=timedelta(seconds=seconds),
            pg_options=Options(eager=eager)
        )
        value = function(rank, size, *args)
        pipe.send(("returned", value))
        if dist.is_initialized():
            dist.destroy_process_group()
        pipe.send(("ended", None))
    except BaseException:
        pipe.send(("raised", traceback.format_exc()))
        sys.exit(1)


def outcomes(
    size: int, function: Callable, *args: Any, seconds: float = 20, limit: float = 60,
    backend: str = "whorl", eager: bool = True
) -> list[tuple[str, Any]]:
    """What became of each rank: ("returned", value), ("raised", traceback) or ("died", exit code).
    `seconds` is the timeout of the group, `limit` that of the whole; `backend` and `eager` are of the
    group that the function finds."""
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    processes, pipes = [], []
    for rank in range(size):
        mine, theirs = _context.Pipe(duplex=False)
        process = _context.Process(
            target=_main, daemon=True,
            args=(rank, size, store.port, seconds, backend, eager, function, args, theirs)
        )
        process.start()
        theirs.close()
        processes.append(process)
        pipes.append(mine)
    deadline = time.monotonic() + limit
    results: list[tuple[str, Any]] = []
    for rank, (process, pipe) in enumerate(zip(processes, pipes)):
        result: tuple[str, Any] = (DIED, None)
        try:
            while pipe.poll(max(0.0, deadline - time.monotonic())):
                what, value = pipe.recv()
                if what == "ended":
                    break
                result = (what, value)
            else:
                result = ("raised", f"rank {rank} was not done after {limit} s")
                process.kill()
        except EOFError:
            process.join(5)
            if result[0] == DIED:
                result = (DIED, process.exitcode)
        process.join(max(1.0, deadline - time.monotonic()))
        if process.is_alive():
            process.kill()
            result = ("raised", f"rank {rank} did not exit within {limit} s")
        elif process.exitcode not in (0, 1, -signal.SIGKILL):
            result = ("raised", f"rank {rank} ended with exit code {process.exitcode}")
        results.append(result)
    return results


def run(size: int, function: Callable, *args: Any, **how: Any) -> list:
    """The values that `function(rank, size, *args)` returned on the ranks; fails if one raised. `how`: as
    of outcomes()."""
    results = outcomes(size, function, *args, **how)
    bad = [f"rank {rank} {what}: {value}" for rank, (what, value) in enumerate(results)
           if what != "returned"]
    if bad:
        raise RankError("\n".join(bad))
    return [value for _, value in results]
