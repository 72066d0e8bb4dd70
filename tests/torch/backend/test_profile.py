"""A trace of torch.profiler names the operations, their groups and how much they move."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from ranks import run

COUNT = 1000


def traced(rank: int, size: int, folder: str) -> list[dict[str, Any]]:
    pair, uneven = dist.new_group([0, 2]), dist.new_group([0, 1, 3])
    with torch.profiler.profile() as profile:
        dist.all_reduce(torch.ones(COUNT))
        dist.all_gather_into_tensor(torch.empty(COUNT * size, dtype=torch.float64),
                                    torch.ones(COUNT, dtype=torch.float64), async_op=True).wait()
        if rank in (0, 2):
            dist.broadcast(torch.ones(7, dtype=torch.int32), 0, group=pair)
        if rank != 2:
            dist.broadcast(torch.ones(5), 0, group=uneven)
    path = Path(folder) / f"{rank}.json"
    profile.export_chrome_trace(str(path))
    events = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    return [event["args"] for event in events if event["name"] == "record_param_comms"]


def test_trace_has_what_tools_read(tmp_path: Path) -> None:
    names = ("Collective name", "In msg nelems", "Out msg nelems", "dtype", "Group size",
             "Process Group Ranks")
    for rank, spans in enumerate(run(4, traced, str(tmp_path))):
        rows = [tuple(span.get(name) for name in names) for span in spans]
        everyone = "[0, 1, 2, 3]"
        expected = [("all_reduce", COUNT, COUNT, "Float", 4, everyone),
                    ("_all_gather_base", COUNT, 4 * COUNT, "Double", 4, everyone)]
        if rank in (0, 2):
            expected.append(("broadcast", 7, 7, "Int", 2, "[0, 2]"))
        if rank != 2:  # torch's span has no place for ranks at uneven distances
            expected.append(("broadcast", 5, 5, "Float", 3, "[]"))
        assert rows == expected
