"""Accelerate, Lightning and DeepSpeed. The last two make the process group themselves, from the
environment variables of a launcher and the name of the backend. A framework that is not installed has
no cases; `MISSING` has its name and the reason."""
import functools
import importlib
import importlib.util
import os
import pathlib
import socket
import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard

import models
from case import Case, Training, World
from data import digit_batch

EACH = 32
FRAMEWORKS = ("accelerate", "lightning", "deepspeed")


def why_missing(name: str) -> str:
    """Returns the reason that `./run trainers` noted when it could not install the framework."""
    note = pathlib.Path(sys.prefix) / f"without-{name}"
    return note.read_text(encoding="utf-8").strip() if note.exists() else "it is not installed"


MISSING = {name: why_missing(name) for name in FRAMEWORKS if importlib.util.find_spec(name) is None}


def leave(world: World) -> None:
    """Ends the runner's process group and sets variables from which a framework makes its own."""
    port = [0]
    if world.rank == 0:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port[0] = free.getsockname()[1]
    dist.broadcast_object_list(port)
    dist.destroy_process_group()
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port[0]), LOCAL_RANK=str(world.rank))


def check_backend(world: World) -> None:
    if dist.get_backend() != world.backend or dist.get_world_size() != world.size:
        raise AssertionError(f"the framework has {dist.get_world_size()} ranks on {dist.get_backend()}")


def accelerate(world: World) -> Training:
    from accelerate import Accelerator
    accelerator = Accelerator(cpu=True)
    check_backend(world)
    if accelerator.num_processes != world.size:
        raise AssertionError(f"Accelerate sees {accelerator.num_processes} processes")
    model = models.plain_network()
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))

    def step(i: int) -> torch.Tensor:
        images, labels = digit_batch(i, [world.rank], world.size, EACH)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images), labels)
        accelerator.backward(loss)
        optimizer.step()
        return accelerator.gather(loss.detach()).mean()

    return Training(step, EACH, model)


def lightning(world: World, kind: str) -> Training:
    from lightning.fabric import Fabric, strategies
    leave(world)
    if kind == "ddp":
        strategy = strategies.DDPStrategy(process_group_backend=world.backend)
    else:
        strategy = strategies.ModelParallelStrategy(shard, data_parallel_size=world.size, tensor_parallel_size=1,
                                                    process_group_backend=world.backend)
    fabric = Fabric(accelerator="cpu", devices=world.size, strategy=strategy)
    fabric.launch()
    check_backend(world)
    model = fabric.setup_module(models.plain_network())  # first: sharding makes parameters of its own
    optimizer = fabric.setup_optimizers(torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))

    def step(i: int) -> torch.Tensor:
        images, labels = digit_batch(i, [world.rank], world.size, EACH)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images), labels)
        fabric.backward(loss)
        optimizer.step()
        return fabric.all_reduce(loss.detach(), reduce_op="mean")

    return Training(step, EACH, model)


def shard(model: nn.Module, mesh: DeviceMesh) -> nn.Module:
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh["data_parallel"])
    return fully_shard(model, mesh=mesh["data_parallel"])


def deepspeed(world: World, stage: int) -> Training:
    os.environ.update(DS_ACCELERATOR="cpu", DS_IGNORE_CUDA_DETECTION="1")
    import deepspeed as ds
    # Disabled: it would compile an allreduce that bypasses the backend. (`deepspeed.comm.torch` is torch itself.)
    importlib.import_module("deepspeed.comm.torch").build_shm_op = lambda: None
    leave(world)
    ds.init_distributed(dist_backend=world.backend, auto_mpi_discovery=False, verbose=False)
    check_backend(world)
    model = models.plain_network()
    engine, _, _, _ = ds.initialize(
        model=model, optimizer=torch.optim.AdamW(model.parameters(), lr=4e-3),
        config={"train_micro_batch_size_per_gpu": EACH, "zero_allow_untested_optimizer": True,
                "zero_optimization": {"stage": stage, "reduce_bucket_size": 5000, "allgather_bucket_size": 5000,
                                      "stage3_param_persistence_threshold": 0}})

    def step(i: int) -> torch.Tensor:
        images, labels = digit_batch(i, [world.rank], world.size, EACH)
        loss = F.cross_entropy(engine(images), labels)
        engine.backward(loss)
        engine.step()
        return loss.detach()

    return Training(step, EACH)


CASES = [case for case in (
    Case("accelerate", 2, accelerate),
    Case("lightning_ddp", 2, functools.partial(lightning, kind="ddp")),
    Case("lightning_fsdp2", 2, functools.partial(lightning, kind="fsdp2")),
    Case("deepspeed_zero1", 2, functools.partial(deepspeed, stage=1), seconds=90),
    Case("deepspeed_zero2", 2, functools.partial(deepspeed, stage=2), seconds=90),
    Case("deepspeed_zero3", 2, functools.partial(deepspeed, stage=3), seconds=90),
) if case.name.split("_")[0] not in MISSING]
