"""Distributed checkpoints: a sharded model is saved by all ranks, damaged, loaded again and trained on."""
import pathlib

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard

import models
from case import Case, Training, World
from data import text_batch

ROWS, SAVED_AT = 4, 6


def checkpointed(world: World) -> Training:
    model = models.transformer()
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    folder = pathlib.Path(world.folder) / "checkpoint"
    drift: dict[str, float] = {}

    def train(i: int) -> torch.Tensor:
        letters, wanted = text_batch(i, [world.rank], world.size, ROWS)
        optimizer.zero_grad()
        loss = models.text_loss(model(letters), wanted)
        loss.backward()
        optimizer.step()
        return loss.detach()

    def parameters() -> torch.Tensor:
        return torch.cat([parameter.to_local().detach().flatten().clone() for parameter in model.parameters()])

    def save_and_load() -> None:
        before = parameters()
        weights, state = get_state_dict(model, optimizer)
        dcp.save({"model": weights, "optimizer": state}, checkpoint_id=folder)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.to_local().add_(1.0)
        if torch.equal(before, parameters()):
            raise AssertionError("the parameters were not damaged")
        weights, state = get_state_dict(model, optimizer)
        dcp.load({"model": weights, "optimizer": state}, checkpoint_id=folder)
        set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=state)
        drift["drift of the loaded parameters"] = float((parameters() - before).abs().max())
        if drift["drift of the loaded parameters"] != 0.0:
            raise AssertionError(f"what was loaded is not what was saved: {drift}")
        if not list(folder.glob(f"__{dist.get_rank()}_*.distcp")):
            raise AssertionError(f"rank {dist.get_rank()} saved nothing")

    def step(i: int) -> torch.Tensor:
        if i == SAVED_AT:
            save_and_load()
        return train(i)

    return Training(step, ROWS, model, lambda: drift)


CASES = [Case("checkpoint", 2, checkpointed, fast=True), Case("checkpoint_3_ranks", 3, checkpointed, bound=1e-3)]
