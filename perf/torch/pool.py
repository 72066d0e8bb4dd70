"""Persistent rank processes, each with a process group of every backend, that carry out the parent's
commands, so that backends take turns inside one run of one process."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import statistics
import time
import traceback
import warnings
from datetime import timedelta
from multiprocessing.connection import Connection
from typing import Any

import torch
import torch.distributed as dist

import machine
import operations
import workloads

GLOO, WHORL, SHARED = "gloo", "whorl", "whorl-shared"
TIMEOUT = timedelta(seconds=60)
WARMUP, LEAST = 3, 3


class Worker:
    def __init__(self, rank: int, ranks: int, port: int, backends: list[str]) -> None:
        torch.set_num_threads(1)
        warnings.simplefilter("ignore", FutureWarning)  # names of functions that torch moves
        store = dist.TCPStore("127.0.0.1", port, is_master=False)
        dist.init_process_group(GLOO, store=store, rank=rank, world_size=ranks, timeout=TIMEOUT)
        # A group of its own for the barrier before each operation, the same for all backends.
        self.meeting = dist.new_group(backend=WHORL, timeout=TIMEOUT)
        self.options = dist.BarrierOptions()
        self.options.asyncOp = False
        gloo, whorl = dist.group.WORLD, dist.new_group(backend=WHORL, timeout=TIMEOUT)
        self.groups = {name: gloo if name == GLOO else whorl for name in backends}
        self.spaces: dict[str, workloads.Space] = dict.fromkeys(backends, contextlib.nullcontext)
        if SHARED in backends:
            import whorl_torch
            self.spaces[SHARED] = self.spaces[workloads.LOCAL_SHARED] = whorl_torch.shared_memory
        self.training: tuple[str, workloads.Training] | None = None

    def meet(self) -> None:
        self.meeting.barrier(self.options).wait()

    def agreed(self, seconds: float) -> float:
        longest = torch.tensor([seconds], dtype=torch.float64)
        self.meeting.allreduce([longest], dist.ReduceOp.MAX).wait()
        return longest.item()

    def operation(self, name: str, backend: str, size: int, dtype: str, asynchronous: bool,
                  budget: float) -> dict[str, Any]:
        """Returns the median time of one operation in microseconds, or why there is none."""
        with self.spaces[backend]():
            case = operations.OPERATIONS[name](self.groups[backend], size, operations.DTYPES[dtype])
        trial = [self._timed(case, index, asynchronous) for index in range(WARMUP)]
        count = int(budget / max(self.agreed(min(trial)), 1e-6))
        gc.disable()
        times = [self._timed(case, index, asynchronous)
                 for index in range(min(max(count, LEAST), 1000))]
        gc.enable()
        return {"us": statistics.median(times) * 1e6 / case.timed, "max_us": max(times) * 1e6}

    def _timed(self, case: operations.Operation, index: int, asynchronous: bool) -> float:
        which = index % operations.PATTERNS
        case.fill(which)
        self.meet()
        began = time.perf_counter()
        case.run(asynchronous)
        seconds = time.perf_counter() - began
        if not case.right(which):
            raise AssertionError("the result is wrong")
        return seconds

    def train(self, name: str, backend: str, count: int) -> dict[str, Any]:
        """Returns the median time of a step in microseconds."""
        times = self._made(name).steps(backend, count)
        return {"us": statistics.median(times) * 1e6, "max_us": max(times) * 1e6}

    def _made(self, name: str) -> workloads.Training:
        """Returns the training; the first call makes the models and lets DDP's buckets settle."""
        if self.training is None or self.training[0] != name:
            self.training = None
            made = workloads.Training(name, self.groups, self.spaces, self.meet)
            for one in made.models:
                made.steps(one, 3)
            self.training = (name, made)
        return self.training[1]

    def trace(self, name: str, backend: str, path: str) -> dict[str, Any]:
        """Writes a trace of rank 0's threads during two steps."""
        training = self._made(name)
        with torch.profiler.profile() as profile:
            training.steps(backend, 2)
        if dist.get_rank() == 0:
            profile.export_chrome_trace(path)
        return {}

    def check(self) -> dict[str, Any]:
        """Returns whether all backends trained to the same bits, and drops the models."""
        equal = self.training is None or self.training[1].equal()
        self.training = None
        return {"equal": equal}


def _serve(rank: int, ranks: int, port: int, backends: list[str], bind: bool, pipe: Connection) -> None:
    if bind:
        cpus = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cpus[rank % len(cpus)]})
    worker = Worker(rank, ranks, port, backends)
    while True:
        name, arguments = pipe.recv()
        if name == "end":
            break
        try:
            pipe.send(getattr(worker, name)(*arguments))
        except (RuntimeError, AssertionError, ValueError, NotImplementedError) as error:
            pipe.send({"error": str(error).split("\n", 1)[0] or traceback.format_exc()})
    dist.destroy_process_group()


class Pool:
    def __init__(self, ranks: int, backends: list[str], bind: bool) -> None:
        self.store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        context = multiprocessing.get_context("spawn")
        self.pipes: list[Connection] = []
        self.processes = []
        for rank in range(ranks):
            mine, theirs = context.Pipe()
            process = context.Process(target=_serve, daemon=True, args=(
                rank, ranks, self.store.port, backends, bind, theirs))
            process.start()
            theirs.close()
            self.pipes.append(mine)
            self.processes.append(process)

    def call(self, name: str, *arguments: Any, limit: float = 120) -> dict[str, Any]:
        """Calls a function on every rank. Times are those of the rank that took longest."""
        for pipe in self.pipes:
            pipe.send((name, arguments))
        deadline = time.monotonic() + limit
        answers = []
        for rank, pipe in enumerate(self.pipes):
            if not pipe.poll(max(deadline - time.monotonic(), 0)):
                raise machine.Failure(f"rank {rank} has not answered {name}{arguments} in {limit:.0f} s")
            try:
                answers.append(pipe.recv())
            except EOFError:
                raise machine.Failure(f"rank {rank} died in {name}{arguments}") from None
        for rank, answer in enumerate(answers):
            if "error" in answer:
                return {"error": f"rank {rank}: {answer['error']}"}
        return {key: min(values) if key == "equal" else max(values)
                for key in answers[0] for values in [[answer[key] for answer in answers]]}

    def end(self) -> None:
        for pipe in self.pipes:
            with contextlib.suppress(OSError):
                pipe.send(("end", ()))
        for process in self.processes:
            process.join(20)
            if process.is_alive():
                process.kill()
