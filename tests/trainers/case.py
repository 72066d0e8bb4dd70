"""Interface of a system under test. A system is one module in `systems/`: it holds a list `CASES`,
and its cases build one training each; the runner has the loop, the ranks, the clock and the
verdict."""
from __future__ import annotations

import dataclasses
from collections.abc import Callable

import torch
from torch import nn


@dataclasses.dataclass(frozen=True)
class World:
    """Surroundings of a training: the default process group exists, unless `backend` is "alone"."""

    rank: int
    size: int
    backend: str
    folder: str  # shared by the ranks of one run, empty at its start

    @property
    def alone(self) -> bool:
        return self.backend == ALONE


ALONE = "alone"


@dataclasses.dataclass
class Training:
    """Part of one rank. `step(i)` trains on batch i and returns this rank's loss, or None where this
    rank has none (a stage of a pipeline that is not the last). `weights` are compared bit by bit where
    the case is exact. `finish` runs after the last step and returns values to compare, by name."""

    step: Callable[[int], torch.Tensor | float | None]
    samples: int  # number that this rank trains on in a step
    weights: nn.Module | None = None
    finish: Callable[[], dict[str, float]] | None = None


@dataclasses.dataclass(frozen=True)
class Case:
    """A case. `bound` is the largest deviation allowed between two backends, of a loss or of a
    value of `finish`, relative to the larger one; 0 means bit by bit, which holds where each sum has two terms.
    `alone_bound`, where given, also compares with a single process that trains on the batches of all
    ranks. The mean loss of the last quarter must be at most `learns` times the first loss. `not_on`
    names backends that cannot run the case, with the reason; the runs of the others are compared."""

    name: str
    ranks: int
    make: Callable[[World], Training]
    steps: int = 20
    bound: float = 0.0
    learns: float = 0.7
    alone_bound: float | None = None
    fast: bool = False
    last_only: bool = False  # steps of the ranks interleave differently each time: compare the end
    seconds: int = 60
    not_on: dict[str, str] = dataclasses.field(default_factory=dict)
