"""Data parallelism with less communication or less synchronisation: local SGD, an asynchronous parameter
server, and compressed gradients."""
import functools
from collections.abc import Callable

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

import models
from case import Case, Training, World
from data import digit_batch

EACH = 32


def gradient(model: nn.Module, world: World, step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns loss and flat gradient of this rank's batch."""
    images, labels = digit_batch(step, [world.rank], world.size, EACH)
    loss = F.cross_entropy(model(images), labels)
    parts = torch.autograd.grad(loss, list(model.parameters()))
    return loss.detach(), torch.cat([part.flatten() for part in parts])


def descend(model: nn.Module, flat: torch.Tensor, rate: float) -> None:
    with torch.no_grad():
        vector_to_parameters(parameters_to_vector(model.parameters()) - rate * flat, model.parameters())


def local_sgd(world: World, period: int = 4) -> Training:
    """Trains every rank by itself; every `period` steps parameters become their mean."""
    model = models.plain_network()

    def step(i: int) -> torch.Tensor:
        loss, flat = gradient(model, world, i)
        descend(model, flat, 0.3)
        if i % period == period - 1:
            mean = parameters_to_vector(model.parameters()).detach()
            dist.all_reduce(mean, op=dist.ReduceOp.AVG)
            with torch.no_grad():
                vector_to_parameters(mean, model.parameters())
        return loss

    return Training(step, EACH, model)


def parameter_server(world: World) -> Training:
    """Trains with a server: rank 0 receives a gradient from any rank, applies it and sends that rank the
    new parameters. Workers are not synchronised, so only the end is compared. The first loss is that of
    the common starting point, the last one is measured on parameters that all ranks receive."""
    model = models.plain_network()
    size = sum(parameter.numel() for parameter in model.parameters())
    images, labels = digit_batch(0, range(world.size), world.size, 64)
    counts = [0] * world.size
    rounds = 30

    def measure() -> torch.Tensor:
        current = parameters_to_vector(model.parameters()).detach()
        dist.broadcast(current, 0)
        with torch.no_grad():
            vector_to_parameters(current, model.parameters())
            return F.cross_entropy(model(images), labels)

    def serve() -> None:
        flat = torch.empty(size)
        for _ in range(rounds * (world.size - 1)):
            source = dist.recv(flat)
            counts[source] += 1
            descend(model, flat, 0.1)
            dist.send(parameters_to_vector(model.parameters()).detach(), source)

    def work(i: int) -> None:
        for part in range(rounds):
            _, flat = gradient(model, world, i * rounds + part)
            dist.send(flat, 0)
            fresh = torch.empty(size)
            dist.recv(fresh, 0)
            with torch.no_grad():
                vector_to_parameters(fresh, model.parameters())

    def step(i: int) -> torch.Tensor:
        if i > 0:
            serve() if world.rank == 0 else work(i)
        return measure()

    def finish() -> dict[str, float]:
        return {f"gradients of rank {rank}": float(count) for rank, count in enumerate(counts)}

    return Training(step, 0 if world.rank == 0 else rounds * EACH, None, finish)


def pack_signs(values: torch.Tensor) -> torch.Tensor:
    """Packs one bit per value, eight in a byte."""
    bits = (values >= 0).view(-1, 8).to(torch.uint8)
    return (bits << torch.arange(8, dtype=torch.uint8)).sum(-1, dtype=torch.uint8)


def unpack_signs(packed: torch.Tensor) -> torch.Tensor:
    return ((packed[:, None] >> torch.arange(8, dtype=torch.uint8)) & 1).flatten().float() * 2 - 1


class OneBit:
    """Scheme of 1-bit Adam: signs with a scale per rank and error feedback, first to the rank that
    owns the part of the vector (all_to_all of packed bytes), whose mean is compressed again and gathered."""

    def __init__(self, world: World, size: int) -> None:
        self.world = world
        self.part = -(-size // (8 * world.size)) * 8
        self.error = torch.zeros(self.part * world.size)
        self.second_error = torch.zeros(self.part)

    def mean(self, flat: torch.Tensor) -> torch.Tensor:
        size = self.world.size
        padded = F.pad(flat, (0, len(self.error) - len(flat))) + self.error
        scale = padded.abs().mean()
        packed = pack_signs(padded)
        self.error = padded - scale * unpack_signs(packed)
        received = torch.empty_like(packed)
        dist.all_to_all_single(received, packed)
        scales = [torch.empty(1) for _ in range(size)]
        dist.all_gather(scales, scale.reshape(1))
        mine = sum(scales[rank] * unpack_signs(piece)
                   for rank, piece in enumerate(received.chunk(size))) / size + self.second_error
        second_scale = mine.abs().mean()
        second = pack_signs(mine)
        self.second_error = mine - second_scale * unpack_signs(second)
        whole = torch.empty(size * len(second), dtype=torch.uint8)
        dist.all_gather_into_tensor(whole, second)
        dist.all_gather(scales, second_scale.reshape(1))
        return torch.cat([scales[rank] * unpack_signs(piece)
                          for rank, piece in enumerate(whole.chunk(size))])[:len(flat)]


class TopK:
    """Scheme in which every rank sends its largest values, a number of its own choice, so that the parts
    of the all-gather have different lengths; the rest stays as error feedback."""

    def __init__(self, world: World, size: int) -> None:
        self.world, self.error = world, torch.zeros(size)

    def gather(self, mine: torch.Tensor, counts: list[int]) -> list[torch.Tensor]:
        """Gathers parts of different lengths; padded to the longest on gloo, which requires equal ones."""
        room = [max(counts)] * len(counts) if self.world.backend == "gloo" else counts
        parts = [mine.new_empty(count) for count in room]
        dist.all_gather(parts, F.pad(mine, (0, room[self.world.rank] - len(mine))))
        return [part[:count] for part, count in zip(parts, counts, strict=True)]

    def mean(self, flat: torch.Tensor) -> torch.Tensor:
        corrected = flat + self.error
        index = corrected.abs().topk(len(flat) // (10 + 5 * self.world.rank)).indices.sort().values
        values = corrected[index]
        self.error = corrected.index_fill(0, index, 0.0)
        length = torch.tensor([len(index)])
        lengths = [torch.empty_like(length) for _ in range(self.world.size)]
        dist.all_gather(lengths, length)
        counts = [int(each) for each in lengths]
        indices, parts = self.gather(index, counts), self.gather(values, counts)
        total = torch.zeros_like(flat)
        for where, what in zip(indices, parts, strict=True):
            total.index_add_(0, where, what)
        return total / self.world.size


def compressed(world: World, scheme: Callable[[World, int], OneBit | TopK], rate: float) -> Training:
    model = models.plain_network()
    exchange = scheme(world, sum(parameter.numel() for parameter in model.parameters()))

    def step(i: int) -> torch.Tensor:
        loss, flat = gradient(model, world, i)
        descend(model, exchange.mean(flat), rate)
        return loss

    return Training(step, EACH, model)


CASES = [
    Case("local_sgd", 2, local_sgd, fast=True),
    Case("local_sgd_3_ranks", 3, local_sgd, bound=1e-4),
    # The order of the workers differs from run to run; a factor of two in the last loss is usual.
    Case("parameter_server", 4, parameter_server, steps=4, bound=0.7, last_only=True, fast=True),
    Case("one_bit", 2, functools.partial(compressed, scheme=OneBit, rate=0.3), steps=30, fast=True),
    Case("one_bit_4_ranks", 4, functools.partial(compressed, scheme=OneBit, rate=0.3), steps=30),
    Case("top_k", 2, functools.partial(compressed, scheme=TopK, rate=0.3), steps=30, fast=True),
    Case("top_k_3_ranks", 3, functools.partial(compressed, scheme=TopK, rate=0.3), steps=30),
]
