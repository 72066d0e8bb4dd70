"""Operations to measure. Each rewrites its input before it runs and compares its whole result
afterwards, so that data moves between caches during the measured time as in a program.

Sizes are those of perf/*_perf: bytes of the larger side, the whole vector or all blocks together.
Inputs are small integers, which every type sums exactly, and alternate between two patterns, so that
the output of an earlier operation is a wrong result.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist

PATTERNS = 2
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def pattern(rank: int, which: int, count: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.arange(which, count + which, dtype=torch.int32).remainder_(5).add_(rank).to(dtype)


def summed(ranks: int, which: int, count: int, dtype: torch.dtype) -> torch.Tensor:
    total = pattern(0, which, count, dtype)
    for rank in range(1, ranks):
        total += pattern(rank, which, count, dtype)
    return total


class Operation:
    """One operation of one size on one rank. Subclasses make `sources` and `expected`, one of each
    for each pattern, and the tensors that move."""

    timed = 1  # operations in one run()

    def __init__(self, group: dist.ProcessGroup, size: int, dtype: torch.dtype) -> None:
        self.group = group
        self.rank, self.ranks = dist.get_rank(group), dist.get_world_size(group)
        # Groups contain all ranks of the job, so ranks of the group are those of the job.
        per_rank = max(size // dtype.itemsize // self.ranks, 1)
        self.block, self.whole, self.dtype = per_rank, per_rank * self.ranks, dtype
        if not self.splits:
            self.whole = max(size // dtype.itemsize, 1)
        self.sources = [self.source(which) for which in range(PATTERNS)]
        self.expected = [self.result(which) for which in range(PATTERNS)]
        self.input = torch.empty_like(self.sources[0])
        self.output = self.input if self.in_place else torch.empty_like(self.expected[0])

    splits = False
    in_place = False

    def source(self, which: int) -> torch.Tensor:
        return pattern(self.rank, which, self.whole, self.dtype)

    def result(self, which: int) -> torch.Tensor:
        return self.sources[which]

    def fill(self, which: int) -> None:
        self.input.copy_(self.sources[which])

    def run(self, asynchronous: bool) -> None:
        work = self.issue(asynchronous)
        if asynchronous:
            work.wait()

    def issue(self, asynchronous: bool) -> dist.Work:
        raise NotImplementedError

    def right(self, which: int) -> bool:
        return torch.equal(self.output, self.expected[which])


class AllReduce(Operation):
    in_place = True

    def result(self, which: int) -> torch.Tensor:
        return summed(self.ranks, which, self.whole, self.dtype)

    def issue(self, asynchronous: bool) -> dist.Work:
        return dist.all_reduce(self.input, group=self.group, async_op=asynchronous)


class Reduce(AllReduce):
    def issue(self, asynchronous: bool) -> dist.Work:
        return dist.reduce(self.input, 0, group=self.group, async_op=asynchronous)

    def right(self, which: int) -> bool:
        return self.rank != 0 or super().right(which)


class ReduceScatter(Operation):
    splits = True

    def result(self, which: int) -> torch.Tensor:
        total = summed(self.ranks, which, self.whole, self.dtype)
        return total[self.rank * self.block:(self.rank + 1) * self.block].clone()

    def issue(self, asynchronous: bool) -> dist.Work:
        return dist.reduce_scatter_tensor(
            self.output, self.input, group=self.group, async_op=asynchronous)


class AllGather(Operation):
    splits = True

    def source(self, which: int) -> torch.Tensor:
        return pattern(self.rank, which, self.block, self.dtype)

    def result(self, which: int) -> torch.Tensor:
        return torch.cat([pattern(rank, which, self.block, self.dtype) for rank in range(self.ranks)])

    def issue(self, asynchronous: bool) -> dist.Work:
        return dist.all_gather_into_tensor(
            self.output, self.input, group=self.group, async_op=asynchronous)


class Broadcast(Operation):
    in_place = True

    def result(self, which: int) -> torch.Tensor:
        return pattern(0, which, self.whole, self.dtype)

    def issue(self, asynchronous: bool) -> dist.Work:
        return dist.broadcast(self.input, 0, group=self.group, async_op=asynchronous)


class AllToAll(Operation):
    splits = True

    def result(self, which: int) -> torch.Tensor:
        mine = slice(self.rank * self.block, (self.rank + 1) * self.block)
        return torch.cat([pattern(rank, which, self.whole, self.dtype)[mine]
                          for rank in range(self.ranks)])

    def issue(self, asynchronous: bool) -> dist.Work:
        return dist.all_to_all_single(
            self.output, self.input, group=self.group, async_op=asynchronous)


class Barrier(Operation):
    def issue(self, asynchronous: bool) -> dist.Work:
        return dist.barrier(group=self.group, async_op=asynchronous)

    def right(self, which: int) -> bool:
        return True


class PingPong(Operation):
    """Exchange of one message there and one back by ranks 0 and 1, 2 and 3 ...; a time is half of it."""

    timed = 2

    def result(self, which: int) -> torch.Tensor:
        return pattern(self.rank ^ 1, which, self.whole, self.dtype)

    def run(self, asynchronous: bool) -> None:
        steps: list[Callable[[], None]] = [lambda: self.send(asynchronous),
                                           lambda: self.receive(asynchronous)]
        for step in steps if self.rank % 2 == 0 else reversed(steps):
            step()

    def send(self, asynchronous: bool) -> None:
        if asynchronous:
            dist.isend(self.input, self.rank ^ 1, group=self.group).wait()
        else:
            dist.send(self.input, self.rank ^ 1, group=self.group)

    def receive(self, asynchronous: bool) -> None:
        if asynchronous:
            dist.irecv(self.output, self.rank ^ 1, group=self.group).wait()
        else:
            dist.recv(self.output, self.rank ^ 1, group=self.group)


OPERATIONS: dict[str, type[Operation]] = {
    "all_reduce": AllReduce,
    "reduce_scatter_tensor": ReduceScatter,
    "all_gather_into_tensor": AllGather,
    "broadcast": Broadcast,
    "reduce": Reduce,
    "all_to_all_single": AllToAll,
    "send_recv": PingPong,
    "barrier": Barrier,
}
