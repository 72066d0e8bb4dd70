"""Tensor parallelism, and with it sequence parallelism, by DTensor: the attention's heads and the
feed-forward's columns are split over the ranks; between them activations are either whole on every
rank or split along the sequence."""
from __future__ import annotations

import functools

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    PrepareModuleOutput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

import models
from case import Case, Training, World
from data import text_batch

ROWS = 8


def split_block(block: nn.Module, mesh: DeviceMesh, sequence: bool) -> None:
    """Splits one transformer block over the mesh. Without `sequence` each of its two halves ends in an
    allreduce; with it, in a reduce-scatter, and begins with an all-gather."""
    between = Shard(1) if sequence else Replicate()
    plan: dict[str, object] = {
        "attention.q": ColwiseParallel(), "attention.k": ColwiseParallel(), "attention.v": ColwiseParallel(),
        "attention.o": RowwiseParallel(output_layouts=between),
        "mlp.up": ColwiseParallel(), "mlp.down": RowwiseParallel(output_layouts=between),
    }
    if sequence:
        for part in ("attention", "mlp"):
            plan[part] = PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),))
        plan["norm1"] = plan["norm2"] = SequenceParallel()
    parallelize_module(block, mesh, plan)


def split(model: models.Transformer, mesh: DeviceMesh, sequence: bool) -> models.Transformer:
    if sequence:
        parallelize_module(model, mesh, {
            # The embedding is whole on every rank; its output is split along the sequence.
            "embed": PrepareModuleOutput(output_layouts=Replicate(), desired_output_layouts=Shard(1)),
            "norm": SequenceParallel(),
            "out": ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate())})
    else:
        parallelize_module(model, mesh, {"out": ColwiseParallel(output_layouts=Replicate())})
    for block in model.blocks:
        split_block(block, mesh, sequence)
    return model


def tensor_parallel(world: World, sequence: bool) -> Training:
    model = models.transformer()
    if not world.alone:
        split(model, init_device_mesh("cpu", (world.size,)), sequence)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, foreach=False)

    def step(i: int) -> torch.Tensor:
        letters, wanted = text_batch(i, [0], 1, ROWS)
        optimizer.zero_grad()
        loss = models.text_loss(model(letters), wanted)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return Training(step, ROWS if world.alone or world.rank == 0 else 0, model)


CASES = [
    Case("tensor_parallel", 2, functools.partial(tensor_parallel, sequence=False), alone_bound=1e-3, fast=True),
    Case("sequence_parallel", 2, functools.partial(tensor_parallel, sequence=True), alone_bound=1e-3, fast=True),
    Case("sequence_parallel_4_ranks", 4, functools.partial(tensor_parallel, sequence=True), steps=10, bound=1e-3,
         alone_bound=1e-3),
]
