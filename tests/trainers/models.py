"""Models that the systems train."""
from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

import data


def digit_network(width: int = 128, seed: int = 1) -> nn.Module:
    """Returns a small network for the digits, with a batch norm, whose mean and variance are buffers."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(64, width), nn.BatchNorm1d(width, track_running_stats=True), nn.ReLU(),
                         nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10))


def plain_network(width: int = 128, seed: int = 1) -> nn.Module:
    """Returns the network without batch norm: a rank's gradient is then a mean over its samples, so that
    training on several ranks is training on all their samples."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(),
                         nn.Linear(width, 10))


class Attention(nn.Module):
    """Causal attention with `heads` heads; the width of a head is fixed, so that a rank may hold some
    of the heads only."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.head = width // heads
        self.q, self.k, self.v = (nn.Linear(width, width, bias=False) for _ in range(3))
        self.o = nn.Linear(width, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (part(x).unflatten(-1, (-1, self.head)).transpose(1, 2) for part in (self.q, self.k, self.v))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o(mixed.transpose(1, 2).flatten(-2))


class FeedForward(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(F.gelu(self.up(x)))


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention, self.mlp = Attention(width, heads), FeedForward(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Embed(nn.Module):
    def __init__(self, width: int, length: int = 64) -> None:
        super().__init__()
        self.letters, self.places = nn.Embedding(data.VOCABULARY, width), nn.Embedding(length, width)

    def forward(self, letters: torch.Tensor) -> torch.Tensor:
        return self.letters(letters) + self.places(torch.arange(letters.shape[1]))


class Transformer(nn.Module):
    """Transformer that predicts the next letter."""

    def __init__(self, width: int = 64, heads: int = 4, blocks: int = 2) -> None:
        super().__init__()
        self.embed = Embed(width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(blocks))
        self.norm, self.out = nn.LayerNorm(width), nn.Linear(width, data.VOCABULARY, bias=False)

    def forward(self, letters: torch.Tensor) -> torch.Tensor:
        x = self.embed(letters)
        for block in self.blocks:
            x = block(x)
        return self.out(self.norm(x))


def transformer(width: int = 64, blocks: int = 2, seed: int = 1) -> Transformer:
    torch.manual_seed(seed)
    return Transformer(width=width, blocks=blocks)


def text_loss(output: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(output.flatten(0, 1), wanted.flatten())
