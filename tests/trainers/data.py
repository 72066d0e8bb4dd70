"""Real data that exists on every machine: handwritten digits from this repository, and the text of
Python's own help topics. Batch i of rank r always holds the same samples."""
from __future__ import annotations

import functools
import pathlib
from collections.abc import Sequence

import torch

DIGITS = pathlib.Path(__file__).resolve().parents[2] / "examples" / "train_digits" / "digits.txt"
VOCABULARY = 128


@functools.cache
def digits() -> tuple[torch.Tensor, torch.Tensor]:
    """Returns images, 1797 x 64 with mean 0 and deviation 1, in a fixed random order, and their labels."""
    lines = DIGITS.read_text(encoding="ascii").splitlines()
    labels = torch.tensor([int(line[0]) for line in lines])
    images = torch.tensor([[int(pixel, 17) for pixel in line[2:]] for line in lines], dtype=torch.float32)
    images = (images - images.mean()) / images.std()
    order = torch.randperm(len(lines), generator=torch.Generator().manual_seed(7))
    return images[order], labels[order]


@functools.cache
def text() -> torch.Tensor:
    """Returns the help topics as one row of ASCII codes."""
    from pydoc_data.topics import topics
    joined = "\n".join(topics[name] for name in sorted(topics))[:400_000]
    return torch.tensor([min(ord(letter), VOCABULARY - 1) for letter in joined])


def digit_batch(step: int, ranks: Sequence[int], size: int, each: int = 32) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns batch `step` of `ranks` among `size`, `each` images per rank, rank after rank."""
    images, labels = digits()
    index = torch.cat([torch.arange(each) + (step * size + rank) * each for rank in ranks]) % len(labels)
    return images[index], labels[index]


def text_batch(step: int, ranks: Sequence[int], size: int, each: int = 4,
               length: int = 64) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns windows of the text, and the letter that follows each of their letters."""
    letters = text()
    starts = [((step * size + rank) * each + row) * 997 % (len(letters) - length - 1)
              for rank in ranks for row in range(each)]
    rows = torch.stack([letters[start:start + length + 1] for start in starts])
    return rows[:, :-1].contiguous(), rows[:, 1:].contiguous()
