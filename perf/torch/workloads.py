"""Training steps under DistributedDataParallel: forward, backward with the exchange of gradients in
buckets of 25 MiB, and, where a model computes, a step of SGD."""

from __future__ import annotations

import contextlib
import gc
import time
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import models
import operations

WORKLOADS = {"resnet18-exchange": "resnet18", "gpt2-exchange": "gpt2",
             "resnet18": "resnet18", "gpt2": "gpt2"}
Space = Callable[[], contextlib.AbstractContextManager]
# Names of the step without communication; the second has shared memory, which also changes how fast
# memory is allocated.
LOCAL, LOCAL_SHARED = "local", "local-shared"


def is_local(name: str) -> bool:
    return name in (LOCAL, LOCAL_SHARED)


def parameter_bytes(name: str) -> int:
    return sum(shape.numel() for shape in models.shapes(WORKLOADS[name])) * 4


class Training:
    """Models with the same weights and data, one for each backend and one without. `spaces` has
    a context for each, inside which everything of its model is allocated."""

    def __init__(self, name: str, groups: dict[str, dist.ProcessGroup], spaces: dict[str, Space],
                 meet: Callable[[], None]) -> None:
        self.exchange_only = name.endswith("-exchange")
        self.rank, self.ranks = dist.get_rank(), dist.get_world_size()
        self.spaces, self.meet = {LOCAL: contextlib.nullcontext, **spaces}, meet
        self.gradients = self._gradients(name) if self.exchange_only else []
        self.models = {LOCAL: self._model(name)}
        self.sample = self._sample()
        if LOCAL_SHARED in spaces:
            with spaces[LOCAL_SHARED]():
                self.models[LOCAL_SHARED] = self._model(name)
        for backend, group in groups.items():
            with self.spaces[backend]():
                self.models[backend] = DistributedDataParallel(self._model(name), process_group=group)
        self.optimizers = {} if self.exchange_only else {
            backend: torch.optim.SGD(model.parameters(), lr=1e-3)
            for backend, model in self.models.items()}

    def _gradients(self, name: str) -> list[torch.Tensor]:
        return [operations.pattern(self.rank, index, shape.numel(), torch.float32).view(shape)
                for index, shape in enumerate(models.shapes(WORKLOADS[name]))]

    def _model(self, name: str) -> nn.Module:
        torch.manual_seed(0)
        if self.exchange_only:
            return models.Shapes(models.shapes(WORKLOADS[name]), self.gradients)
        return models.MODELS[WORKLOADS[name]]()

    def _sample(self) -> torch.Tensor:
        if self.exchange_only:
            return torch.zeros(1, requires_grad=True)
        return self.models[LOCAL].sample(torch.Generator().manual_seed(self.rank))

    def step(self, backend: str) -> None:
        output = self.models[backend](self.sample)
        loss = output if self.exchange_only else output.square().mean()
        loss.backward()
        if backend in self.optimizers:
            self.optimizers[backend].step()

    def steps(self, backend: str, count: int) -> list[float]:
        """Returns the seconds of each of `count` steps."""
        seconds = []
        gc.disable()
        with self.spaces[backend]():
            for _ in range(count):
                self.meet()
                began = time.perf_counter()
                self.step(backend)
                seconds.append(time.perf_counter() - began)
                if self.exchange_only and not is_local(backend):
                    self._verify(self.models[backend])
                self.models[backend].zero_grad(set_to_none=True)
        gc.enable()
        return seconds

    def _verify(self, model: DistributedDataParallel) -> None:
        mine = (self.ranks - 1) / 2 - self.rank  # mean of all ranks' gradients minus this rank's
        for parameter, gradient in zip(model.module.parts, self.gradients):
            if not torch.equal(parameter.grad, gradient + mine):
                raise AssertionError("a gradient is not the mean over the ranks")

    def equal(self) -> bool:
        """Returns whether all backends have trained to the same weights, bit for bit."""
        first, *others = [list(model.parameters()) for backend, model in self.models.items()
                          if not is_local(backend)]
        return all(torch.equal(a, b) for other in others for a, b in zip(first, other))
