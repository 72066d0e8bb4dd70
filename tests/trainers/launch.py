"""Starts the ranks of one training, bounds its time and collects their results."""
from __future__ import annotations

import datetime
import faulthandler
import json
import multiprocessing
import multiprocessing.connection
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback

import torch
import torch._dynamo
import torch.distributed as dist

import worker
from case import ALONE, Case, World

HERE = pathlib.Path(__file__).resolve().parent
GRACE_SECONDS = 5  # time for the other ranks after one has failed


class TrainingFailed(Exception):
    """Failure of a rank, or timeout; the text holds the ranks' output."""


def _rank_main(case: Case, world: World, listener: socket.socket) -> None:
    """Runs a forked rank. Rank 0 serves the store on the socket that the parent has bound, so no port is
    chosen twice."""
    os.setpgid(0, 0)
    error = (pathlib.Path(world.folder) / f"rank{world.rank}.err").open("w", encoding="utf-8")
    os.dup2(error.fileno(), 2)
    os.dup2(error.fileno(), 1)
    faulthandler.register(signal.SIGUSR1, file=error, all_threads=True)
    try:
        if not world.alone:
            worker.load_backend(world.backend)
            limit = datetime.timedelta(seconds=case.seconds)
            port = listener.getsockname()[1]
            os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(world.rank),
                              WORLD_SIZE=str(world.size), LOCAL_RANK=str(world.rank),
                              LOCAL_WORLD_SIZE=str(world.size))
            first = world.rank == 0
            store = dist.TCPStore("127.0.0.1", port, world.size, first, limit, wait_for_workers=False,
                                  **({"master_listen_fd": listener.detach()} if first else {}))
            dist.init_process_group(world.backend, store=store, rank=world.rank, world_size=world.size,
                                    timeout=limit)
        worker.run(case, world)
        if not world.alone:
            dist.barrier()
            dist.destroy_process_group()
    except BaseException:
        traceback.print_exc()
        error.flush()
        os._exit(1)
    error.flush()


def _fork(case: Case, backend: str, folder: str) -> list:
    context = multiprocessing.get_context("fork")
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    ranks = range(1 if backend == ALONE else case.ranks)
    processes = [context.Process(target=_rank_main, args=(case, World(rank, case.ranks, backend, folder), listener))
                 for rank in ranks]
    for process in processes:
        process.start()
    listener.close()
    return processes


def _wait(processes: list, seconds: float) -> str:
    """Waits for the ranks; kills the rest after the deadline. Returns the first error, or ""."""
    trouble = ""
    deadline = time.monotonic() + seconds
    while alive := [process for process in processes if process.exitcode is None]:
        left = deadline - time.monotonic()
        if left <= 0:
            trouble = trouble or f"not finished after {seconds:.0f} s"
            break
        multiprocessing.connection.wait([process.sentinel for process in alive], timeout=left)
        for process in alive:
            process.join(0)
        failed = [rank for rank, process in enumerate(processes) if process.exitcode]
        if failed and not trouble:
            trouble = ", ".join(f"rank {rank} ended with {processes[rank].exitcode}" for rank in failed)
            deadline = min(deadline, time.monotonic() + GRACE_SECONDS)
    stuck = [process for process in processes if process.exitcode is None]
    for process in stuck:
        os.kill(process.pid, signal.SIGUSR1)
    if stuck:
        time.sleep(0.5)
    for process in stuck:
        os.killpg(process.pid, signal.SIGKILL)  # with its own children, a compiler for instance
        process.join()
    return trouble


def _said(folder: str, lines: int = 25) -> str:
    parts = []
    for path in sorted(pathlib.Path(folder).glob("*.err")):
        text = path.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        if text:
            parts.append(f"--- {path.stem}\n" + "\n".join(text[-lines:]))
    return "\n".join(parts)


def _collect(folder: str, count: int) -> list[dict]:
    results = []
    for rank in range(count):
        path = pathlib.Path(folder) / f"rank{rank}.json"
        if not path.exists():
            raise TrainingFailed(f"rank {rank} left no result\n{_said(folder)}")
        results.append(json.loads(path.read_text(encoding="utf-8")))
    return results


def run_forked(case: Case, backend: str) -> list[dict]:
    """Runs a case; returns the result of each rank, or raises TrainingFailed."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="trainer.") as folder:
        processes = _fork(case, backend, folder)
        trouble = _wait(processes, case.seconds)
        if trouble:
            raise TrainingFailed(f"{trouble}\n{_said(folder)}")
        return _collect(folder, len(processes))


def run_torchrun(case: Case, backend: str) -> list[dict]:
    """Runs a case under torchrun, with its own rendezvous; returns or raises as run_forked() does."""
    with tempfile.TemporaryDirectory(prefix="trainer.") as folder:
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone",
                   "--nproc-per-node", str(case.ranks), str(HERE / "worker.py"),
                   "--case", case.name, "--backend", backend, "--folder", folder]
        with (pathlib.Path(folder) / "torchrun.err").open("w", encoding="utf-8") as error:
            process = subprocess.Popen(command, stdout=error, stderr=error,
                                       env={**os.environ, "OMP_NUM_THREADS": "1"})
            try:
                status = process.wait(case.seconds)
            except subprocess.TimeoutExpired:
                process.terminate()  # torchrun ends its ranks
                try:
                    process.wait(35)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
                raise TrainingFailed(f"not finished after {case.seconds} s\n{_said(folder)}") from None
        # gloo's threads sometimes abort their process when a peer has left, after all have trained.
        trained = all((pathlib.Path(folder) / f"rank{rank}.json").exists() for rank in range(case.ranks))
        if status and not (backend == "gloo" and trained and "(SIGABRT)" in _said(folder)):
            raise TrainingFailed(f"torchrun ended with {status}\n{_said(folder)}")
        return _collect(folder, case.ranks)
