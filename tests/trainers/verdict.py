"""Compares the results of two runs of one case. The checks return sentences about errors; an empty
list is the verdict "equal"."""
from __future__ import annotations

import math

from case import Case


def mean_losses(results: list[dict]) -> list[float]:
    """Returns the loss of each step, the mean over the ranks that have one."""
    steps = len(results[0]["losses"])
    means = []
    for step in range(steps):
        have = [result["losses"][step] for result in results if result["losses"][step] is not None]
        means.append(sum(have) / len(have) if have else float("nan"))
    return means


def deviation(left: float, right: float) -> float:
    """Returns the difference relative to the larger of both; infinite if one is not a number."""
    if left == right:
        return 0.0
    relative = abs(left - right) / max(abs(left), abs(right))
    return float("inf") if math.isnan(relative) else relative


def learns(case: Case, results: list[dict]) -> list[str]:
    """Checks that the loss falls, since a training without progress proves nothing."""
    losses = mean_losses(results)
    quarter = losses[-max(len(losses) // 4, 1):]
    last = sum(quarter) / len(quarter)
    if not last <= case.learns * losses[0]:
        return [f"the loss went from {losses[0]:.4f} to {last:.4f}, wanted at most {case.learns} of the first"]
    return []


def compare(case: Case, one: list[dict], other: list[dict]) -> list[str]:
    """Compares rank by rank: losses, values of `finish`, and where the case is exact also weights."""
    if len(one) != len(other):
        return [f"{len(one)} ranks against {len(other)}"]
    wrong = []
    for rank, (left, right) in enumerate(zip(one, other, strict=True)):
        pairs = [(f"loss of step {step}", a, b)
                 for step, (a, b) in enumerate(zip(left["losses"], right["losses"], strict=True))]
        if case.last_only:
            pairs = pairs[-1:]
        for name in sorted(set(left["values"]) | set(right["values"])):
            pairs.append((name, left["values"].get(name), right["values"].get(name)))
        for what, a, b in pairs:
            if a is None and b is None:
                continue
            off = float("inf") if a is None or b is None else deviation(a, b)
            if off > case.bound:
                wrong.append(f"rank {rank}, {what}: {a!r} against {b!r}, allowed deviation {case.bound:g}")
                break
        if case.bound == 0 and left["digest"] != right["digest"]:
            wrong.append(f"rank {rank}: the weights differ in some bit")
    return wrong


def compare_alone(case: Case, results: list[dict], alone: list[dict]) -> list[str]:
    """Compares mean losses with those of a single process that trained on the batches of all ranks."""
    wrong = []
    for step, (a, b) in enumerate(zip(mean_losses(results), mean_losses(alone), strict=True)):
        if deviation(a, b) > case.alone_bound:
            wrong.append(f"loss of step {step}: {a!r}, a single process has {b!r}, "
                         f"allowed deviation {case.alone_bound:g}")
            break
    return wrong


def worst(one: list[dict], other: list[dict]) -> float:
    """Returns the largest deviation between two runs' losses, for the table."""
    return max((deviation(a, b) for left, right in zip(one, other, strict=True)
                for a, b in zip(left["losses"], right["losses"], strict=True)
                if a is not None and b is not None), default=0.0)
