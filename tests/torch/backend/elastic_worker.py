"""A worker of torchrun that trains a model of one number, and whose rank 1 is killed once in the middle. All ranks
begin again then, from the last checkpoint. Used by test_elastic.py; the argument is a folder."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import torch
import torch.distributed as dist

import whorl_torch  # noqa: F401  # the backend

STEPS, LETHAL_STEP = 10, 6


def main(folder: Path) -> None:
    dist.init_process_group("whorl")
    rank, attempt = dist.get_rank(), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    checkpoint = folder / "checkpoint.json"
    state = json.loads(checkpoint.read_text()) if checkpoint.exists() else {"step": 0, "weight": 0.0}
    dist.barrier()  # before rank 0 writes the next one
    with open(folder / f"attempt{attempt}.rank{rank}", "w") as file:
        file.write(str(state["step"]))
    for step in range(state["step"], STEPS):
        gradient = torch.tensor([state["weight"] - rank - step], dtype=torch.float64)
        dist.all_reduce(gradient)
        if attempt == 0 and rank == 1 and step == LETHAL_STEP:
            os.kill(os.getpid(), signal.SIGKILL)
        state = {"step": step + 1, "weight": state["weight"] - 0.125 * gradient.item()}
        if rank == 0:
            temporary = checkpoint.with_suffix(".new")
            temporary.write_text(json.dumps(state))
            temporary.replace(checkpoint)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
