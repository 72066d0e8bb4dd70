"""A mixture of experts, one expert per rank: a router sends each letter to one expert by an uneven
all-to-all. A rank may send nothing to an expert: the router of the first steps sends all letters of a
rank to one expert, so most counts are zero."""
import torch
import torch.distributed as dist
from torch import nn

import models
from case import Case, Training, World
from data import text_batch

ROWS, WIDTH = 4, 64


class Exchange(torch.autograd.Function):
    """all_to_all_single with counts; its gradient is the exchange with the counts swapped."""

    @staticmethod
    def forward(context, rows: torch.Tensor, sent: list[int], received: list[int]) -> torch.Tensor:
        context.sent, context.received = sent, received
        out = rows.new_empty(sum(received), rows.shape[1])
        dist.all_to_all_single(out, rows.contiguous(), received, sent)
        return out

    @staticmethod
    def backward(context, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        return Exchange.apply(gradient, context.received, context.sent), None, None


class Experts(nn.Module):
    def __init__(self, world: World) -> None:
        super().__init__()
        self.world, self.calls, self.zero_counts = world, 0, 0
        torch.manual_seed(5)
        self.router = nn.Linear(WIDTH, world.size, bias=False)
        experts = [models.FeedForward(WIDTH) for _ in range(world.size)]
        self.expert = experts[world.rank]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = x.flatten(0, 1)
        weights = self.router(rows).softmax(-1)
        choice = weights.argmax(-1)
        if self.calls < 2:
            choice = torch.full_like(choice, (self.world.rank + self.calls) % 2)
        self.calls += 1
        order = choice.argsort(stable=True)
        sent = torch.bincount(choice, minlength=self.world.size)
        received = torch.empty_like(sent)
        dist.all_to_all_single(received, sent)
        self.zero_counts += int((sent == 0).sum())
        counts = sent.tolist(), received.tolist()
        there = Exchange.apply(rows[order], *counts)
        back = Exchange.apply(self.expert(there), counts[1], counts[0])
        out = torch.zeros_like(rows).index_copy(0, order, back)
        return x + (out * weights.gather(1, choice[:, None])).view_as(x)


def experts(world: World) -> Training:
    torch.manual_seed(1)
    embed, out = models.Embed(WIDTH), nn.Linear(WIDTH, 128)
    layer = Experts(world)
    model = nn.ModuleList([embed, layer, out])
    shared = [*embed.parameters(), *out.parameters(), *layer.router.parameters()]
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)

    def step(i: int) -> torch.Tensor:
        letters, wanted = text_batch(i, [world.rank], world.size, ROWS)
        optimizer.zero_grad()
        loss = models.text_loss(out(layer(embed(letters))), wanted)
        loss.backward()
        work = [dist.all_reduce(parameter.grad, async_op=True) for parameter in shared]
        for each in work:
            each.wait()
        for parameter in shared:
            parameter.grad /= world.size
        for parameter in layer.expert.parameters():
            if parameter.grad is not None:
                parameter.grad /= world.size
        optimizer.step()
        return loss.detach()

    def finish() -> dict[str, float]:
        if layer.zero_counts == 0:
            raise AssertionError("no count was zero: this training did not exercise empty messages")
        return {"zero counts": float(layer.zero_counts)}

    return Training(step, ROWS, model, finish)


CASES = [
    Case("experts", 2, experts, fast=True),
    Case("experts_4_ranks", 4, experts, bound=1e-3),
]
