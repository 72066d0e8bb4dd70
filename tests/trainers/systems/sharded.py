"""Sharded data parallelism: optimizer state (ZeroRedundancyOptimizer), and everything (FSDP)."""
from __future__ import annotations

import functools

import torch
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecisionPolicy, ShardingStrategy, fully_shard
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.distributed.optim import ZeroRedundancyOptimizer

import models
from case import Case, Training, World
from data import digit_batch, text_batch
from systems.ddp import ranks_of, wrapped

ROWS = 4


def zero(world: World) -> Training:
    """Trains with DDP's gradients; each rank holds and steps the Adam state of a part of the parameters
    and broadcasts that part."""
    model = wrapped(world, models.plain_network())
    optimizer = (torch.optim.Adam(model.parameters(), lr=4e-3) if world.alone else
                 ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.Adam, lr=4e-3))

    def step(i: int) -> torch.Tensor:
        images, labels = digit_batch(i, ranks_of(world), world.size)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return Training(step, 32 * len(ranks_of(world)), model)


def language_training(world: World, model: torch.nn.Module) -> Training:
    """Trains on the text with AdamW, each rank on rows of its own."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)

    def step(i: int) -> torch.Tensor:
        letters, wanted = text_batch(i, ranks_of(world), world.size, ROWS)
        optimizer.zero_grad()
        loss = models.text_loss(model(letters).float(), wanted)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 10.0)
        optimizer.step()
        return loss.detach()

    return Training(step, ROWS * len(ranks_of(world)), model)


def fsdp1(world: World, strategy: ShardingStrategy) -> Training:
    model = models.transformer()
    if not world.alone:
        model = FullyShardedDataParallel(model, sharding_strategy=strategy, use_orig_params=True,
                                         auto_wrap_policy=ModuleWrapPolicy({models.Block}),
                                         device_id=torch.device("cpu"))
    return language_training(world, model)


def fsdp2(world: World, replicas: int = 1, bf16: bool = False) -> Training:
    """Trains with FSDP2. `replicas` > 1: hybrid sharding within a row of the mesh."""
    model = models.transformer()
    if not world.alone:
        if replicas > 1:
            mesh = init_device_mesh("cpu", (replicas, world.size // replicas), mesh_dim_names=("replica", "shard"))
        else:
            mesh = init_device_mesh("cpu", (world.size,))
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16) if bf16 \
            else MixedPrecisionPolicy()
        for block in model.blocks:
            fully_shard(block, mesh=mesh, mp_policy=policy)
        fully_shard(model, mesh=mesh, mp_policy=policy)
    return language_training(world, model)


CASES = [
    Case("zero_optimizer", 2, zero, alone_bound=1e-4, fast=True),
    Case("zero_optimizer_3_ranks", 3, zero, bound=1e-4, alone_bound=1e-3),
    Case("fsdp1_full", 2, functools.partial(fsdp1, strategy=ShardingStrategy.FULL_SHARD), alone_bound=1e-3),
    Case("fsdp1_grad_op", 2, functools.partial(fsdp1, strategy=ShardingStrategy.SHARD_GRAD_OP), alone_bound=1e-3),
    Case("fsdp1_4_ranks", 4, functools.partial(fsdp1, strategy=ShardingStrategy.FULL_SHARD), bound=1e-3,
         alone_bound=1e-3),
    Case("fsdp2", 2, fsdp2, alone_bound=1e-3, fast=True),
    Case("fsdp2_3_ranks", 3, fsdp2, bound=1e-3, alone_bound=1e-3),
    Case("fsdp2_hybrid", 4, functools.partial(fsdp2, replicas=2), bound=1e-3, alone_bound=1e-3),
    Case("fsdp2_bf16", 2, functools.partial(fsdp2, bf16=True), alone_bound=5e-2),
]
