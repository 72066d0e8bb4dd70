"""Pipeline parallelism with torch.distributed.pipelining: stages send activations forward and
gradients backward, with several microbatches in progress."""
from __future__ import annotations

import functools

import torch
from torch import nn
from torch.distributed import ProcessGroup
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe, ScheduleInterleaved1F1B

import models
from case import Case, Training, World
from data import text_batch

ROWS, MICROBATCHES = 8, 4


def cut(model: models.Transformer, stages: int) -> list[nn.Module]:
    """Cuts the model into `stages` modules, from the embedding in the first to the output in the last."""
    layers = [model.embed, *model.blocks, nn.Sequential(model.norm, model.out)]
    each, more = divmod(len(layers), stages)
    bounds = [0]
    for stage in range(stages):
        bounds.append(bounds[-1] + each + (stage < more))
    return [nn.Sequential(*layers[a:b]) for a, b in zip(bounds, bounds[1:], strict=False)]


def pipelined(world: World, schedule_class: type, stages_each: int = 1) -> Training:
    model = models.transformer(blocks=4)
    if world.alone:
        return whole(model)
    count = world.size * stages_each
    parts = cut(model, count)
    mine = range(world.rank, count, world.size)
    stages = [PipelineStage(parts[index], index, count, torch.device("cpu")) for index in mine]
    schedule = schedule_class(stages if stages_each > 1 else stages[0], MICROBATCHES, loss_fn=models.text_loss)
    held = nn.ModuleList(parts[index] for index in mine)
    return trained(schedule, held, world.rank == 0, world.rank == world.size - 1, [0], 1)


def trained(schedule: object, held: nn.Module, first: bool, last: bool, ranks: list[int], size: int,
            group: ProcessGroup | None = None) -> Training:
    """Trains with a schedule; the first stage gets the inputs, the last has the loss."""
    optimizer = torch.optim.AdamW(held.parameters(), lr=3e-3, foreach=False)

    def step(i: int) -> torch.Tensor | None:
        letters, wanted = text_batch(i, ranks, size, ROWS)
        optimizer.zero_grad()
        losses: list[torch.Tensor] = []
        given = (letters,) if first else ()
        if last:
            schedule.step(*given, target=wanted, losses=losses)
        else:
            schedule.step(*given)
        optimizer.step()
        return torch.stack([loss.detach() for loss in losses]).mean() if last else None

    return Training(step, ROWS if last else 0, held)


def whole(model: nn.Module, replicas: int = 1) -> Training:
    """Trains the whole model in one process, without microbatches, on the batches of all replicas together."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, foreach=False)

    def step(i: int) -> torch.Tensor:
        letters, wanted = text_batch(i, range(replicas), replicas, ROWS)
        optimizer.zero_grad()
        loss = models.text_loss(model(letters), wanted)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return Training(step, replicas * ROWS, model)


CASES = [
    Case("pipeline_1f1b", 2, functools.partial(pipelined, schedule_class=Schedule1F1B), alone_bound=1e-3, fast=True),
    Case("pipeline_gpipe", 3, functools.partial(pipelined, schedule_class=ScheduleGPipe), alone_bound=1e-3),
    Case("pipeline_interleaved", 2, functools.partial(pipelined, schedule_class=ScheduleInterleaved1F1B,
                                                      stages_each=2), alone_bound=1e-3),
]
