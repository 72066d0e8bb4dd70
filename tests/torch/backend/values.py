"""Inputs that every rank can compute for every other, and the plain computation of results."""

from __future__ import annotations

import torch
import torch.distributed as dist

FLOATING = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
FLOAT8 = [torch.float8_e4m3fn, torch.float8_e5m2]
SIGNED = [torch.int8, torch.int16, torch.int32, torch.int64]
UNSIGNED = [torch.uint8, torch.uint16, torch.uint32, torch.uint64]
COMPLEX = [torch.complex64, torch.complex128]
MOVED = FLOATING + FLOAT8 + SIGNED + UNSIGNED + COMPLEX + [torch.bool]

Op = dist.ReduceOp
SHAPE = (3, 7)


def make(rank: int, dtype: torch.dtype, shape: tuple[int, ...] = SHAPE, seed: int = 0) -> torch.Tensor:
    """Small whole numbers, so that sums and products are exact in all types."""
    generator = torch.Generator().manual_seed(1000 * seed + rank)
    numbers = torch.randint(1, 4, shape, generator=generator)
    if dtype == torch.bool:
        return numbers > 2
    if dtype.is_complex:
        other = torch.randint(1, 4, shape, generator=generator)
        return torch.complex(numbers.double(), other.double()).to(dtype)
    return numbers.to(dtype)


def reduced(inputs: list[torch.Tensor], op: Op.RedOpType) -> torch.Tensor:
    """The reduction by torch itself, in a wide type."""
    dtype = inputs[0].dtype
    wide = torch.float64 if dtype.is_floating_point else torch.int64
    if dtype.is_complex:
        wide = torch.complex128
    stack = torch.stack([one.to(wide) for one in inputs])
    if dtype == torch.bool:
        by_op = {
            Op.SUM: lambda: stack.sum(0) > 0, Op.MAX: lambda: stack.sum(0) > 0,
            Op.BOR: lambda: stack.sum(0) > 0, Op.PRODUCT: lambda: stack.prod(0) > 0,
            Op.MIN: lambda: stack.prod(0) > 0, Op.BAND: lambda: stack.prod(0) > 0,
            Op.BXOR: lambda: stack.sum(0) % 2 == 1,
        }
        return by_op[op]()
    if op == Op.AVG:
        total = stack.sum(0)
        if wide is torch.int64:
            return torch.div(total, len(inputs), rounding_mode="trunc").to(dtype)
        return (total / len(inputs)).to(dtype)
    if op in (Op.BAND, Op.BOR, Op.BXOR):
        result = stack[0]
        for one in stack[1:]:
            result = {Op.BAND: torch.bitwise_and, Op.BOR: torch.bitwise_or,
                      Op.BXOR: torch.bitwise_xor}[op](result, one)
        return result.to(dtype)
    return {Op.SUM: lambda: stack.sum(0), Op.PRODUCT: lambda: stack.prod(0),
            Op.MIN: lambda: stack.amin(0), Op.MAX: lambda: stack.amax(0)}[op]().to(dtype)


def pairs() -> list[tuple[torch.dtype, Op.RedOpType]]:
    """All combinations of type and operator that are defined."""
    arithmetic = [Op.SUM, Op.AVG, Op.PRODUCT, Op.MIN, Op.MAX]
    bitwise = [Op.BAND, Op.BOR, Op.BXOR]
    result = [(dtype, op) for dtype in FLOATING + FLOAT8 for op in arithmetic]
    result += [(dtype, op) for dtype in SIGNED + UNSIGNED for op in arithmetic + bitwise]
    result += [(dtype, op) for dtype in COMPLEX for op in (Op.SUM, Op.AVG)]
    result += [(torch.bool, op) for op in (Op.SUM, Op.PRODUCT, Op.MIN, Op.MAX, *bitwise)]
    return result


def same(actual: torch.Tensor, expected: torch.Tensor, what: object = "") -> None:
    """Equal in type, shape and value; average and product of narrow types within one rounding."""
    assert actual.dtype == expected.dtype and actual.shape == expected.shape, what
    if actual.dtype in FLOAT8 or actual.dtype in UNSIGNED:
        actual, expected = actual.to(torch.float64), expected.to(torch.float64)
        tolerance = 0.15 if "float8" in str(what) else 0.0
        torch.testing.assert_close(actual, expected, rtol=tolerance, atol=0.0, msg=str(what))
        return
    if actual.dtype.is_floating_point or actual.dtype.is_complex:
        torch.testing.assert_close(actual, expected, msg=lambda text: f"{what}: {text}")
    else:
        assert torch.equal(actual, expected), what
