#!/usr/bin/env python3
"""Runs one rank: joins, trains, writes its results. `launch.py` calls `run` in forked processes; torchrun
can start this file as a program, and then RANK, WORLD_SIZE and the rendezvous are torchrun's:

    torchrun --nproc-per-node 2 tests/trainers/worker.py --case ddp --backend whorl --folder DIR
"""
from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import pathlib
import time

import torch
import torch.distributed as dist
from torch import nn

from case import ALONE, Case, World


def load_backend(name: str) -> None:
    """Imports the package, for a clear error if it is not installed; where torch loads entry points, the
    package registers the backend by itself."""
    if name not in (ALONE, "gloo"):
        __import__(f"{name}_torch")


def digest(weights: nn.Module | None) -> str:
    """Returns a hash over this rank's part of all parameters and buffers."""
    if weights is None:
        return ""
    total = hashlib.sha256()
    for name, value in sorted(weights.state_dict().items()):
        if isinstance(value, torch.Tensor):
            local = value.to_local() if hasattr(value, "to_local") else value
            if hasattr(local, "local_shards"):
                local = torch.cat([shard.tensor.flatten() for shard in local.local_shards()] or [torch.empty(0)])
            total.update(name.encode() + local.detach().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return total.hexdigest()[:16]


def train(case: Case, world: World) -> dict:
    """Trains. The clock starts after the second step, when buckets and channels exist."""
    torch.manual_seed(11)
    training = case.make(world)
    losses: list[float | None] = []
    began = time.perf_counter()
    for step in range(case.steps):
        if step == 2:
            began = time.perf_counter()
        loss = training.step(step)
        losses.append(None if loss is None else float(loss))
    seconds = time.perf_counter() - began
    values = training.finish() if training.finish else {}
    return {"losses": losses, "values": values, "digest": digest(training.weights), "seconds": seconds,
            "samples": training.samples * (case.steps - 2)}


def save(folder: str, rank: int, result: dict) -> None:
    target = pathlib.Path(folder) / f"rank{rank}.json"
    partial = target.with_suffix(".part")
    partial.write_text(json.dumps(result), encoding="utf-8")
    partial.rename(target)


def run(case: Case, world: World) -> None:
    """Trains inside the existing process group and writes the result to the folder."""
    result = train(case, world)
    if any(loss is not None and not math.isfinite(loss) for loss in result["losses"]):
        raise ArithmeticError(f"rank {world.rank}: a loss is not finite: {result['losses']}")
    save(world.folder, world.rank, result)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--case", required=True)
    parser.add_argument("--backend", required=True)
    parser.add_argument("--folder", required=True)
    arguments = parser.parse_args()
    from systems import all_cases
    torch.set_num_threads(1)
    load_backend(arguments.backend)
    dist.init_process_group(arguments.backend)
    run(all_cases()[arguments.case],
        World(int(os.environ["RANK"]), dist.get_world_size(), arguments.backend, arguments.folder))
    dist.barrier()  # gloo's threads sometimes abort their process when a peer has left
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
