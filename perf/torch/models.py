"""Models whose gradients are exchanged, with the shapes of the published ones: ResNet-18 (11.7
million parameters) and GPT-2 small (124 million); and a model that has only the shapes."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inside, outside, 3, stride, 1, bias=False), nn.BatchNorm2d(outside), nn.ReLU(),
            nn.Conv2d(outside, outside, 3, 1, 1, bias=False), nn.BatchNorm2d(outside))
        self.skip = nn.Identity() if inside == outside else nn.Sequential(
            nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.body(x) + self.skip(x))


class ResNet18(nn.Sequential):
    def __init__(self) -> None:
        layers: list[nn.Module] = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64),
                                   nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
        inside = 64
        for outside in (64, 128, 256, 512):
            layers += [Block(inside, outside, 1 if outside == 64 else 2), Block(outside, outside, 1)]
            inside = outside
        super().__init__(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000))

    def sample(self, generator: torch.Generator) -> torch.Tensor:
        return torch.randn(2, 3, 64, 64, generator=generator)


class Layer(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(-2, -3)
                   for part in self.qkv(self.before(x)).chunk(3, -1))
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(-2, -3).flatten(-2))
        return x + self.mlp(self.between(x))


class GPT2(nn.Module):
    """GPT-2 small; the output layer shares the matrix of the embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(50257, 768), nn.Embedding(1024, 768)
        self.layers = nn.Sequential(*(Layer(768, 12) for _ in range(12)))
        self.last = nn.LayerNorm(768)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens) + self.places.weight[:tokens.shape[-1]]
        return nn.functional.linear(self.last(self.layers(x)), self.tokens.weight)

    def sample(self, generator: torch.Generator) -> torch.Tensor:
        return torch.randint(50257, (1, 64), generator=generator)


MODELS: dict[str, type[nn.Module]] = {"resnet18": ResNet18, "gpt2": GPT2}


def shapes(name: str) -> list[torch.Size]:
    with torch.device("meta"):
        return [parameter.shape for parameter in MODELS[name]().parameters()]


class _Give(torch.autograd.Function):
    """Passes a value through; its backward gives `parameter` a gradient that exists already."""

    @staticmethod
    def forward(ctx, value, parameter, gradient):  # noqa: ANN001, ANN205
        ctx.gradient = gradient
        return value.clone()

    @staticmethod
    def backward(ctx, grad):  # noqa: ANN001, ANN205
        return grad, ctx.gradient, None


class Shapes(nn.Module):
    """Parameters of given shapes. Backward reaches them from the last to the first, as that of a
    model does, and makes each gradient by one copy: the step is the exchange of the gradients."""

    def __init__(self, all_shapes: Iterable[torch.Size], gradients: list[torch.Tensor]) -> None:
        super().__init__()
        self.gradients = gradients
        self.parts = nn.ParameterList(nn.Parameter(torch.zeros(shape)) for shape in all_shapes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for parameter, gradient in zip(self.parts, self.gradients):
            x = _Give.apply(x, parameter, gradient)
        return x
