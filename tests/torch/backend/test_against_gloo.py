"""Whorl and gloo side by side: the rows of the table in bindings/torch/README.md. Each test runs both, and says what
gloo does, so that a row goes when gloo learns. Facts of gloo are those of torch 2.13."""

from __future__ import annotations

import os
import re
import socket
import struct
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from ranks import outcomes, run

BACKENDS = ("gloo", "whorl")
SECONDS = 2.0  # timeout of the groups; what hangs, hangs so long
ABSENT = 60.0

INTEGERS = [torch.int8, torch.uint8, torch.int16, torch.uint16, torch.int32, torch.uint32, torch.int64,
            torch.uint64]
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
FLOATS8 = [torch.float8_e4m3fn, torch.float8_e5m2]
EVERYTHING = [*INTEGERS, *FLOATS, *FLOATS8, torch.bool, torch.complex64]
UNKNOWN_TO_GLOO = {torch.int16, torch.uint16, torch.uint32, torch.uint64, *FLOATS8}


def new_group(backend: str) -> dist.ProcessGroup:
    return dist.new_group(backend=backend, timeout=timedelta(seconds=SECONDS))


def tried(function: Callable[[], Any]) -> Any:
    """What it gave, or the sentence of its error."""
    try:
        return function()
    except (RuntimeError, ValueError) as error:
        return f"{type(error).__name__}: {error}"


def worked(result: Any) -> bool:
    return not isinstance(result, str)


# --- what is supported --------------------------------------------------------------------------

def sum_of(dtype: torch.dtype, rank: int, group: dist.ProcessGroup, op: Any = dist.ReduceOp.SUM) -> list:
    tensor = torch.full((3,), float(rank + 1)).to(dtype)
    dist.all_reduce(tensor, op, group=group)
    return tensor.to(torch.complex64).tolist()


def types(rank: int, size: int) -> dict[str, dict[str, Any]]:
    groups = {backend: new_group(backend) for backend in BACKENDS}
    return {backend: {
        "sum": {dtype: tried(lambda: sum_of(dtype, rank, group)) for dtype in EVERYTHING},
        "average": {dtype: tried(lambda: sum_of(dtype, rank, group, dist.ReduceOp.AVG))
                    for dtype in [*INTEGERS, *FLOATS]},
        "scaled": tried(lambda: sum_of(torch.float32, rank, group, dist._make_nccl_premul_sum(0.5))),
        "moved": {dtype: tried(lambda: dist.broadcast(torch.zeros(3).to(dtype), 0, group=group) or [])
                  for dtype in EVERYTHING},
    } for backend, group in groups.items()}


def test_types_and_operators() -> None:
    for found in run(2, types):
        for dtype in EVERYTHING:
            three = [1.0 if dtype is torch.bool else 3.0] * 3
            assert found["whorl"]["sum"][dtype] == three, dtype
            assert worked(found["whorl"]["moved"][dtype])
            for what in ("sum", "moved"):
                assert worked(found["gloo"][what][dtype]) == (dtype not in UNKNOWN_TO_GLOO), dtype
        for dtype in INTEGERS:
            assert found["whorl"]["average"][dtype] == [1.0] * 3, "rounded towards zero"
            assert not worked(found["gloo"]["average"][dtype])
        for dtype in FLOATS:
            assert found["whorl"]["average"][dtype] == found["gloo"]["average"][dtype] == [1.5] * 3
        assert found["whorl"]["scaled"] == [1.5] * 3
        assert "PREMUL_SUM" in found["gloo"]["scaled"]


def shapes(rank: int, size: int) -> dict[str, dict[str, Any]]:
    def gathered(group: dist.ProcessGroup) -> list:
        parts = [torch.empty(2 + other) for other in range(size)]
        dist.all_gather(parts, torch.full((2 + rank,), float(rank)), group=group)
        return [part.tolist() for part in parts]

    def exchanged(group: dist.ProcessGroup) -> list:
        parts = [torch.empty(1 + other) for other in range(size)]
        dist.all_to_all(parts, [torch.full((1 + rank,), float(rank))] * size, group=group)
        return [part.tolist() for part in parts]

    def scattered(group: dist.ProcessGroup) -> list:
        part = torch.empty(1 + rank)
        dist.reduce_scatter(part, [torch.ones(1 + other) for other in range(size)], group=group)
        return part.tolist()

    def future(group: dist.ProcessGroup) -> list:
        part = torch.empty(2)
        work = dist.reduce_scatter_tensor(part, torch.ones(2 * size), group=group, async_op=True)
        return [one.tolist() for one in work.get_future().wait()]

    return {backend: {one.__name__: tried(lambda: one(group))
                      for one in (gathered, exchanged, scattered, future)}
            for backend, group in ((backend, new_group(backend)) for backend in BACKENDS)}


def test_uneven_lists_and_futures() -> None:
    for rank, found in enumerate(run(2, shapes)):
        assert found["whorl"] == {
            "gathered": [[0.0, 0.0], [1.0, 1.0, 1.0]], "exchanged": [[0.0], [1.0, 1.0]],
            "scattered": [2.0] * (1 + rank), "future": [[2.0, 2.0]]}
        assert not worked(found["gloo"]["gathered"]) and not worked(found["gloo"]["exchanged"])
        assert "not implemented" in found["gloo"]["future"]


def connections() -> int:
    """TCP connections of this process."""
    inodes = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/self/net/{table}").read_text(encoding="utf-8").splitlines()[1:]:
            fields = line.split()
            if fields[3] == "01":  # established
                inodes.add(f"socket:[{fields[9]}]")
    found = 0
    for entry in Path("/proc/self/fd").iterdir():
        try:
            found += str(entry.readlink()) in inodes
        except FileNotFoundError:
            continue
    return found


def mappings() -> int:
    """Pieces of whorl's shared memory in this process."""
    return Path("/proc/self/maps").read_text(encoding="utf-8").count("memfd:whorl")


def path(rank: int, size: int) -> dict[str, tuple[int, int]]:
    found = {}
    for backend in BACKENDS:
        others = mappings()
        group = new_group(backend)
        dist.all_reduce(torch.ones(1 << 16), group=group)  # of gloo and whorl both: connected
        dist.barrier(group=group)
        before = connections()
        shared = mappings() - others
        del group
        found[backend] = (before, shared)
    return found


def test_shared_memory_on_one_host() -> None:
    for found in run(3, path):
        gloo, whorl = found["gloo"], found["whorl"]
        assert gloo[0] >= 2, "gloo has a connection to each peer"
        assert whorl[0] <= gloo[0], "whorl adds none that stays"
        assert gloo[1] == 0 and whorl[1] > 0


def received() -> int:
    """Bytes that have come over the TCP connections of this process."""
    offset = 128  # of tcpi_bytes_received in the kernel's tcp_info
    total = 0
    for entry in Path("/proc/self/fd").iterdir():
        try:
            if not str(entry.readlink()).startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(int(entry.name))) as copy:
                info = copy.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
        except OSError:  # closed meanwhile, or no TCP
            continue
        total += struct.unpack_from("Q", info, offset)[0]
    return total


def traffic(rank: int, size: int) -> dict[str, float]:
    """What a reduce-scatter brings to this rank, as a share of its input."""
    os.environ["WHORL_TRANSPORTS"] = "tcp"  # so that it can be counted
    found = {}
    for backend in BACKENDS:
        group = new_group(backend)
        part, whole = torch.empty(1 << 18), torch.ones(size << 18)
        dist.reduce_scatter_tensor(part, whole, group=group)
        dist.barrier()
        before = received()
        dist.barrier()  # nobody sends until all have counted
        dist.reduce_scatter_tensor(part, whole, group=group)
        found[backend] = (received() - before) / whole.nbytes
        assert part.eq(size).all()
    return found


def test_reduce_scatter_is_one_operation() -> None:
    for found in run(3, traffic):
        assert abs(found["whorl"] - 2 / 3) < 0.1, found
        assert abs(found["gloo"] - 4 / 3) < 0.1, "gloo reduces everything to every rank"


# --- what goes wrong ----------------------------------------------------------------------------

def disagreement(rank: int, group: dist.ProcessGroup, which: str) -> Any:
    tensor = torch.full((4,), float(rank + 1))
    if which == "count":
        tensor = torch.ones(4 + 4 * rank)
    elif which == "datatype":
        tensor = tensor.to([torch.float32, torch.int32][rank])
    op = dist.ReduceOp.MAX if which == "operator" and rank == 1 else dist.ReduceOp.SUM
    if which == "collective" and rank == 1:
        dist.broadcast(tensor, 0, group=group)
    else:
        dist.all_reduce(tensor, op, group=group)
    return tensor.tolist()


def disagree(rank: int, size: int, backend: str, which: str) -> Any:
    group = new_group(backend)
    dist.all_reduce(torch.ones(1), group=group)
    return tried(lambda: disagreement(rank, group, which))


@pytest.mark.parametrize("which", ["count", "datatype", "operator", "collective"])
def test_ranks_that_disagree(which: str) -> None:
    for rank, (what, value) in enumerate(outcomes(2, disagree, "whorl", which)):
        assert what == "returned"
        assert re.search(rf"differ in {which} \(.* here, .* there\)", value), (rank, value)
    gloo = outcomes(2, disagree, "gloo", which)
    if which == "count":
        assert any("exit code -6" in str(value) for _, value in gloo), "a rank is terminated"
    elif which == "collective":
        # The rank that gives up first times out; its peer may find the connection closed before that.
        assert not any(what == "returned" and worked(value) for what, value in gloo), gloo
        assert any("Timed out" in str(value) for _, value in gloo), gloo
        assert not any("differ in collective" in str(value) for _, value in gloo), gloo
    else:
        # Each rank reduced its half in its own way: [3, 3, 2, 2] for SUM and MAX of 1 and 2.
        assert all(what == "returned" and worked(value) for what, value in gloo), "wrong, silently"


def short_message(rank: int, size: int, backend: str) -> Any:
    group = new_group(backend)
    tensor = torch.full((4 + 4 * rank,), -1.0)
    if rank == 0:
        return tried(lambda: dist.send(torch.ones(4), 1, group=group))
    return tried(lambda: dist.recv(tensor, 0, group=group)), tensor.tolist()


def test_message_of_another_size() -> None:
    (_, _), (what, (error, _)) = outcomes(2, short_message, "whorl")
    assert what == "returned" and "rank 1 receives 32 bytes from rank 0" in error
    (_, _), (what, (error, values)) = outcomes(2, short_message, "gloo")
    assert what == "returned" and error == 0, "the rank that it came from: no error"
    assert values == [1.0] * 4 + [-1.0] * 4


def without_rank_1(rank: int, size: int, backend: str, abort: bool) -> Any:
    """Rank 0 in an allreduce to which rank 1 does not come."""
    group = new_group(backend)
    dist.all_reduce(torch.ones(1), group=group)
    ready = dist.distributed_c10d._get_default_store()
    if rank == 1:
        ready.wait(["done"], timedelta(seconds=ABSENT))
        return None
    if abort:
        threading.Timer(0.3, group.abort).start()
    began = time.monotonic()
    found = tried(lambda: dist.all_reduce(torch.ones(4), group=group))
    ready.set("done", "")
    return found, time.monotonic() - began


def test_timeout_names_the_culprit() -> None:
    error, _ = outcomes(2, without_rank_1, "whorl", False)[0][1]
    # The first operation of the group was the exchange of addresses.
    assert re.search(r"rank 0 .* in allreduce number 3 of 4 float32 .* waiting for rank 1 ", error)
    error, _ = outcomes(2, without_rank_1, "gloo", False)[0][1]
    assert "Timed out" in error and "rank" not in error


def rank_1_dies(rank: int, size: int, backend: str) -> Any:
    group = new_group(backend)
    dist.all_reduce(torch.ones(1), group=group)
    if rank == 1:
        os._exit(1)
    return tried(lambda: dist.all_reduce(torch.ones(4), group=group))


def test_death_names_the_rank() -> None:
    assert "rank 1 " in outcomes(2, rank_1_dies, "whorl")[0][1]
    error = outcomes(2, rank_1_dies, "gloo")[0][1]
    assert not worked(error) and "rank" not in error


def aborted(rank: int, size: int, backend: str) -> Any:
    return without_rank_1(rank, size, backend, True)


def test_abort_ends_what_is_under_way() -> None:
    error, _ = outcomes(2, aborted, "whorl")[0][1]
    assert "abort" in error.lower()
    error, seconds = outcomes(2, aborted, "gloo")[0][1]
    assert "Timed out" in error and seconds > 0.9 * SECONDS, "gloo waits on"
