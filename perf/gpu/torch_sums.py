#!/usr/bin/env python3
"""Measures PyTorch's own operations as an allreduce of tensors of one device: add all, copy the sum
to each. torch_sums.py RANKS SIZES; a row of JSON for each size, as gpu_bench writes them."""

from __future__ import annotations

import json
import statistics
import sys
from typing import Any

UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def bytes_of(text: str) -> int:
    return int(text[:-1]) * UNITS[text[-1]] if text[-1] in UNITS else int(text)


def measure(torch: Any, ranks: int, size: int) -> dict[str, Any]:
    inputs = [torch.rand(size // 4, device="cuda") for _ in range(ranks)]
    outputs = [torch.empty_like(one) for one in inputs]

    def operation() -> None:
        torch.add(inputs[0], inputs[1], out=outputs[0])
        for more in inputs[2:]:
            outputs[0].add_(more)
        for output in outputs[1:]:
            output.copy_(outputs[0])

    operation()
    torch.cuda.synchronize()
    graph, times = torch.cuda.CUDAGraph(), 20
    with torch.cuda.graph(graph):
        for _ in range(times):
            operation()
    graph.replay()
    torch.cuda.synchronize()
    measured = []
    for _ in range(7):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        measured.append(begin.elapsed_time(end) * 1000 / times)
    return {"us": {"torch": statistics.median(measured)}, "min_us": {"torch": min(measured)},
            "moved_bytes": moved(ranks, size), "rounds": 7, "operations": times}


def moved(ranks: int, size: int) -> int:
    """Returns the bytes read and written: N − 1 sums of two tensors and N − 1 copies."""
    return 5 * (ranks - 1) * size


def main() -> int:
    ranks, sizes = int(sys.argv[1]), [bytes_of(one) for one in sys.argv[2].split(",")]
    row = {"measurement": "M2", "collective": "sums of torch", "ranks": ranks, "type": "float"}
    try:
        import torch
    except ImportError as error:
        print(json.dumps({**row, "skipped": f"no PyTorch: {error}"}))
        return 0
    if not torch.cuda.is_available():
        print(json.dumps({**row, "skipped": f"PyTorch {torch.__version__} has no device"}))
        return 0
    for size in sizes:
        print(json.dumps({**row, "bytes": size, **measure(torch, ranks, size)}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
