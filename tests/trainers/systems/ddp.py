"""DistributedDataParallel, used in the ways of real programs."""
import functools
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

import models
from case import Case, Training, World
from data import digit_batch

EACH = 32
SMALL_BUCKETS_MIB = 0.05  # several buckets, also in a small model


def ranks_of(world: World) -> list[int]:
    """Returns the ranks on whose batches this process trains."""
    return list(range(world.size)) if world.alone else [world.rank]


def wrapped(world: World, model: nn.Module, bucket_mib: float = SMALL_BUCKETS_MIB, **options) -> nn.Module:
    return model if world.alone else DistributedDataParallel(model, bucket_cap_mb=bucket_mib, **options)


def training(world: World, model: nn.Module, every: int = 1) -> Training:
    """Trains the digits by SGD with momentum; every `every`th backward pass exchanges gradients."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def backward(batch: int) -> torch.Tensor:
        images, labels = digit_batch(batch, ranks_of(world), world.size, EACH)
        loss = F.cross_entropy(model(images), labels)
        (loss / every).backward()
        return loss.detach()

    def step(i: int) -> torch.Tensor:
        optimizer.zero_grad()
        losses = []
        for part in range(every - 1):
            if world.alone:
                losses.append(backward(i * every + part))
            else:
                with model.no_sync():
                    losses.append(backward(i * every + part))
        losses.append(backward(i * every + every - 1))
        optimizer.step()
        return torch.stack(losses).mean()

    return Training(step, EACH * every * len(ranks_of(world)), model)


def plain(world: World, network: Callable[[], nn.Module] = models.plain_network, every: int = 1,
          hook: Callable[[nn.Module], None] | None = None, **options) -> Training:
    model = wrapped(world, network(), **options)
    if hook and not world.alone:
        hook(model)
    return training(world, model, every)


class TwoRoads(nn.Module):
    """Model that uses one of two layers, alternating between calls and between ranks, so that each
    backward pass leaves parameters without a gradient."""

    def __init__(self, rank: int) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.turn = rank
        self.first, self.last = nn.Linear(64, 128), nn.Linear(128, 10)
        self.roads = nn.ModuleList(nn.Linear(128, 128) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.turn += 1
        return self.last(F.relu(self.roads[self.turn % 2](F.relu(self.first(x)))))


def power_sgd(model: nn.Module, rank: int = 2, least_saving: float = 1) -> None:
    state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=rank, start_powerSGD_iter=3,
                                        min_compression_rate=least_saving)
    model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)


def bf16_sum(state: object, bucket: torch.distributed.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Calls the hook under another name, since DDP allows its name on NCCL only."""
    return default_hooks.bf16_compress_hook(state, bucket)


def hook(function: Callable) -> Callable[[nn.Module], None]:
    return lambda model: model.register_comm_hook(None, function)


# Matrices of full rank approximate a gradient exactly: comparable with one process.
exact_power_sgd = functools.partial(power_sgd, rank=1024, least_saving=0.01)
ORDER = {"gloo": "operations of the callbacks of several buckets meet in different orders"}

CASES = [
    Case("ddp", 2, plain, alone_bound=1e-4, fast=True),
    Case("ddp_4_ranks", 4, plain, bound=1e-4, alone_bound=1e-4),
    Case("ddp_buffers", 2, functools.partial(plain, network=models.digit_network)),
    Case("ddp_static_graph", 2, functools.partial(plain, static_graph=True), alone_bound=1e-4),
    Case("ddp_no_sync", 2, functools.partial(plain, every=3), alone_bound=1e-4, fast=True),
    Case("ddp_bucket_view", 2, functools.partial(plain, gradient_as_bucket_view=True), alone_bound=1e-4),
    Case("ddp_unused", 2, lambda world: training(
        world, wrapped(world, TwoRoads(world.rank), find_unused_parameters=True))),
    Case("ddp_fp16", 2, functools.partial(plain, hook=hook(default_hooks.fp16_compress_hook)), alone_bound=2e-2),
    Case("ddp_bf16", 2, functools.partial(plain, hook=hook(bf16_sum)), alone_bound=5e-2,
         fast=True),
    Case("ddp_power_sgd", 2, functools.partial(plain, hook=power_sgd, bucket_mib=25), bound=1e-3, fast=True),
    Case("ddp_power_sgd_4_ranks", 4, functools.partial(plain, hook=power_sgd, bucket_mib=25), bound=1e-3),
    Case("ddp_power_sgd_buckets", 2, functools.partial(plain, hook=power_sgd), bound=1e-3, not_on=ORDER, fast=True),
    Case("ddp_power_sgd_exact", 4, functools.partial(plain, hook=exact_power_sgd), bound=1e-3, alone_bound=1e-2,
         not_on=ORDER),
]
