"""Gradients are exchanged while backward goes on: shown by a trace."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ranks import run

SPAN = "run of whorl:all_reduce in whorl"
GATE = "gate"
LIMIT = timedelta(seconds=20)


class Gate(torch.autograd.Function):
    """Its backward lies between those of two layers. Rank 0's waits there until rank 1, which begins
    its backward only when rank 0 is at the gate, has taken part in the exchange of the gradients of
    the upper layer: nothing but the thread of the group can carry that out on rank 0."""

    @staticmethod
    def forward(ctx: Any, value: torch.Tensor, works: list[dist.Work]) -> torch.Tensor:
        ctx.works = works
        return value.clone()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        if dist.get_rank() == 0 and ctx.works:
            with torch.profiler.record_function(GATE):
                done = threading.Event()
                ctx.works[0].get_future().add_done_callback(lambda _: done.set())
                dist.distributed_c10d._get_default_store().set(GATE, "")
                assert done.wait(LIMIT.total_seconds()), "nothing is exchanged during backward"
        return grad, None


class Gated(nn.Module):
    def __init__(self, works: list[dist.Work]) -> None:
        super().__init__()
        self.works = works
        # Each layer has more than the first bucket takes, 1 MiB.
        self.lower, self.upper = nn.Linear(600, 600), nn.Linear(600, 600)

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        return self.upper(Gate.apply(self.lower(value), self.works))


def traced(rank: int, size: int) -> list[tuple[str, int, float, float]]:
    works: list[dist.Work] = []

    def hook(state, bucket):  # noqa: ANN001, ANN202  # DDP refuses annotations that are text
        works.append(dist.all_reduce(bucket.buffer(), dist.ReduceOp.AVG, async_op=True))
        return works[-1].get_future().then(lambda future: future.value()[0])

    model = DistributedDataParallel(Gated(works), bucket_cap_mb=1)
    model.register_comm_hook(None, hook)
    model(torch.ones(4, 600)).sum().backward()  # one bucket; from here on those of the rule
    works.clear()
    with torch.profiler.profile() as profile:
        loss = model(torch.ones(4, 600)).sum()
        if rank == 1:
            dist.distributed_c10d._get_default_store().wait([GATE], LIMIT)
        loss.backward()
    return [(event.name, event.thread, event.time_range.start, event.time_range.end)
            for event in profile.events() if event.name in (SPAN, GATE)]


def test_communication_overlaps_backward() -> None:
    spans = run(2, traced)[0]
    (gate,) = (span for span in spans if span[0] == GATE)
    runs = [span for span in spans if span[0] == SPAN]
    _, thread, begin, end = gate
    assert any(other != thread and start < end and stop > begin for _, other, start, stop in runs), spans
