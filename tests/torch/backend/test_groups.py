"""Life of process groups: many of them, ends of all kinds, errors."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

import whorl_torch
from ranks import DIED, let_others_leave, outcomes, run


def many(rank: int, size: int) -> None:
    groups = [dist.new_group([0, 1] if i % 2 else list(range(size))) for i in range(50)]
    for i, group in enumerate(groups):
        if i % 2 and rank > 1:
            continue
        tensor = torch.full((3,), float(i))
        dist.all_reduce(tensor, group=group)
        assert tensor.eq(i * (2 if i % 2 else size)).all()
    for group in groups[:10]:
        if dist.get_rank(group) >= 0:
            dist.destroy_process_group(group)
    dist.barrier()


def test_fifty_groups() -> None:
    run(3, many)


def names(rank: int, size: int) -> None:
    assert dist.get_backend() == "whorl"
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    assert backend.name() == "whorl"
    before = backend._get_sequence_number_for_group()
    dist.barrier()
    assert backend._get_sequence_number_for_group() == before + 1
    backend._set_default_timeout(timedelta(seconds=7))
    backend.monitored_barrier(timedelta(seconds=5))
    subgroup = dist.new_group([size - 1, 0], timeout=timedelta(seconds=9))
    if rank in (0, size - 1):
        tensor = torch.full((2,), float(rank))
        dist.broadcast(tensor, size - 1, group=subgroup)
        assert tensor.eq(size - 1).all()


def test_names_and_numbers() -> None:
    run(3, names)


def mesh(rank: int, size: int) -> None:
    grid = init_device_mesh("cpu", (2, 2), mesh_dim_names=("rows", "columns"))
    tensor = torch.full((2,), float(rank))
    dist.all_reduce(tensor, group=grid.get_group("columns"))
    assert tensor.eq(1 if rank < 2 else 5).all()
    tensor = torch.full((2,), float(rank))
    dist.all_reduce(tensor, group=grid.get_group("rows"))
    assert tensor.eq(2 if rank % 2 == 0 else 4).all()


def test_device_mesh() -> None:
    run(4, mesh)


def split(rank: int, size: int) -> None:
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    assert backend.supports_splitting
    parent = dist.group.WORLD
    ranks = [0, 2] if rank % 2 == 0 else [1, 3]
    child = parent.split_group(ranks, group_name="half", group_desc="halves")
    tensor = torch.full((3,), float(rank))
    child.allreduce([tensor]).wait()
    assert tensor.eq(sum(ranks)).all()
    if child.rank() == 0:
        child.send([tensor], 1, 0).wait()
    else:
        child.recv([tensor], 0, 0).wait()
    child.shutdown()
    dist.barrier()


def test_split() -> None:
    if not hasattr(dist.ProcessGroup, "split_group"):
        pytest.skip("this torch has no ProcessGroup.split_group")
    run(4, split)


def again(rank: int, size: int, port: int) -> None:
    dist.destroy_process_group()
    for _ in range(3):  # the same store and the same names
        store = dist.TCPStore("127.0.0.1", port, is_master=False)
        dist.init_process_group("cpu:whorl", store=store, rank=rank, world_size=size)
        tensor = torch.ones(2)
        dist.all_reduce(tensor)
        assert tensor.eq(size).all()
        dist.destroy_process_group()


def test_made_again_in_the_same_store() -> None:
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    run(2, again, store.port)


def again_with_other_members(rank: int, size: int, port: int, eager: bool) -> None:
    dist.destroy_process_group()
    store = dist.TCPStore("127.0.0.1", port, is_master=False)
    options = whorl_torch.Options(eager=eager)
    for members in ([0, 1], [0, 1, 2], [1, 2], [0, 1, 2]):  # each group has the name of the one before
        dist.init_process_group("whorl", store=store, rank=rank, world_size=size, pg_options=options,
                                timeout=timedelta(seconds=20))
        group = dist.new_group(members, pg_options=options)
        if rank in members:
            tensor = torch.ones(2)
            dist.all_reduce(tensor, group=group)
            assert tensor.eq(len(members)).all()
        dist.destroy_process_group()


@pytest.mark.parametrize("eager", [True, False])
def test_a_name_with_other_members_in_the_same_store(eager: bool) -> None:
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    run(3, again_with_other_members, store.port, eager)


def bound_to_a_device(rank: int, size: int) -> None:
    """As init_process_group(device_id=) does: torch tells those whom a new group leaves out."""
    dist.group.WORLD.bound_device_id = torch.device("cuda:0")
    group = dist.new_group([0])
    if rank == 0:
        dist.all_reduce(torch.ones(1), group=group)
    dist.all_reduce(torch.ones(1))


def test_new_group_of_some_ranks_with_a_device() -> None:
    run(2, bound_to_a_device, backend="cpu:whorl,cuda:whorl")


def mismatch(rank: int, size: int) -> None:
    dist.all_reduce(torch.ones(4 if rank == 0 else 6))


def test_mismatch_names_the_ranks() -> None:
    results = outcomes(2, mismatch)
    texts = " ".join(str(text) for what, text in results if what == "raised")
    assert "rank 0" in texts and "rank 1" in texts and "count" in texts, texts


def killed(rank: int, size: int) -> tuple[float, str]:
    tensor = torch.ones(1_000_000)
    dist.all_reduce(tensor)
    let_others_leave(rank, size)
    if rank == 1:
        work = dist.all_reduce(tensor, async_op=True)
        os.kill(os.getpid(), signal.SIGKILL)
        work.wait()
    start = time.monotonic()
    with pytest.raises((RuntimeError, dist.DistError)) as caught:
        for _ in range(1000):
            dist.all_reduce(tensor, async_op=True).wait()
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    assert backend.get_error() != dist.ErrorType.SUCCESS if hasattr(backend, "get_error") else True
    return time.monotonic() - start, str(caught.value)


def test_killed_rank_raises_in_the_others() -> None:
    results = outcomes(3, killed, seconds=30)
    assert results[1] == (DIED, -signal.SIGKILL)
    for rank in (0, 2):
        what, value = results[rank]
        assert what == "returned", value
        seconds, text = value
        assert seconds < 10 and "rank 1" in text, value


def new_group_with_the_dead(rank: int, size: int) -> float:
    """The ranks that live make groups with the one that is dead, and then one without it."""
    dist.barrier()
    let_others_leave(rank, size)
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    start = time.monotonic()
    if rank == 0:
        time.sleep(1)  # so the other gives up first, and this rank hears of that before it gives up itself
    with pytest.raises(dist.DistNetworkError, match="rank 1 of the group has ended"):
        dist.new_group([0, 1, 2])
    for pair in ([0, 1], [1, 2]):
        if rank in pair:
            with pytest.raises(dist.DistNetworkError, match=f"rank {pair.index(1)} of the group has ended"):
                dist.new_group(pair)
        else:
            dist.new_group(pair)
    waited = time.monotonic() - start
    group = dist.new_group([0, 2])
    tensor = torch.full((3,), float(rank))
    dist.all_reduce(tensor, group=group)
    assert tensor.eq(2).all()
    return waited


@pytest.mark.parametrize("eager", [True, False])
def test_new_group_with_a_dead_rank(eager: bool) -> None:
    results = outcomes(3, new_group_with_the_dead, seconds=600, eager=eager)
    assert results[1] == (DIED, -signal.SIGKILL)
    for rank in (0, 2):
        what, waited = results[rank]
        assert what == "returned", waited
        assert waited < 30  # the timeout of a new group is 30 minutes


def killed_while_receiving(rank: int, size: int) -> float:
    tensor = torch.ones(10)
    if rank == 1:
        dist.send(tensor, 0)
        os.kill(os.getpid(), signal.SIGKILL)
    start = time.monotonic()
    dist.recv(tensor, 1)
    with pytest.raises(RuntimeError, match="rank"):
        dist.recv(tensor, 1)
    return time.monotonic() - start


def test_killed_sender() -> None:
    results = outcomes(2, killed_while_receiving, seconds=30)
    assert results[0][0] == "returned" and results[0][1] < 10, results[0]


def aborted(rank: int, size: int) -> None:
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    dist.barrier()
    if rank == 0:
        work = dist.all_reduce(torch.ones(3), async_op=True)
        receive = dist.irecv(torch.empty(3), 1)
        time.sleep(0.2)
        backend.abort()
        for one in (work, receive):
            with pytest.raises(RuntimeError):
                one.wait()
        with pytest.raises(RuntimeError, match="abort"):
            dist.all_reduce(torch.ones(3))
    else:
        time.sleep(0.5)
        with pytest.raises(RuntimeError):
            for _ in range(10):  # what the other had sent before may still complete
                dist.all_reduce(torch.ones(3))


def test_abort() -> None:
    run(2, aborted)


def aborted_while_created(rank: int, size: int, way: str) -> float:
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    if rank == size - 1:  # never comes
        time.sleep(2)
        return 0.0
    work = dist.all_reduce(torch.ones(3), async_op=True)
    channel = dist.irecv(torch.empty(3), size - 1)
    time.sleep(0.5)
    start = time.monotonic()
    if way == "abort":
        backend.abort()
    elif way == "drop":
        backend._set_default_timeout(timedelta(seconds=700))
        backend.abort()
        dist.destroy_process_group()
    for one in (work, channel):
        with pytest.raises(RuntimeError, match="whorl"):  # perhaps of the other rank's end
            one.wait()
    return time.monotonic() - start


@pytest.mark.parametrize("way", ["abort", "drop"])
def test_abort_while_another_rank_has_not_come(way: str) -> None:
    waited = run(3, aborted_while_created, way, seconds=600, limit=60, eager=False)
    assert max(waited) < 5, waited


def destroyed_while_created(rank: int, size: int) -> float:
    start = time.monotonic()
    if rank == 0:
        dist.all_reduce(torch.ones(3), async_op=True)
        dist.destroy_process_group()  # waits 10 s for the other
    return time.monotonic() - start


def test_destroy_while_another_rank_has_not_come() -> None:
    waited = run(2, destroyed_while_created, seconds=600, eager=False)[0]
    assert waited < 20


def late(rank: int, size: int) -> float:
    start = time.monotonic()
    store = dist.distributed_c10d._get_default_store()
    if rank == 0:
        with pytest.raises(RuntimeError):
            dist.all_reduce(torch.ones(3))
        store.set("done", "")
    else:
        store.wait(["done"], timedelta(seconds=60))
    return time.monotonic() - start


def test_timeout_of_the_group() -> None:
    waited = run(2, late, seconds=2)[0]
    assert 1 < waited < 15


def missing(rank: int, size: int) -> str:
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    if rank == 2:
        return ""
    with pytest.raises(RuntimeError) as caught:
        backend.monitored_barrier(timedelta(seconds=1), True)
    return str(caught.value)


def test_monitored_barrier_names_who_is_missing() -> None:
    first, second, _ = run(3, missing)
    assert "for rank 2" in first
    assert "for rank 2" in second or "its own error names the rank" in second, second


def barrier_at_the_end(rank: int, size: int) -> None:
    """The store ends with rank 0, which leaves first."""
    shared = dist.distributed_c10d._get_default_store()
    dist.destroy_process_group()
    for number in range(20):
        port = f"port {number}"
        if rank == 0:
            store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
            shared.set(port, str(store.port))
        else:
            store = dist.TCPStore("127.0.0.1", int(shared.get(port)), is_master=False)
        dist.init_process_group("whorl", store=store, rank=rank, world_size=size, timeout=timedelta(seconds=20),
                                pg_options=whorl_torch.Options(eager=False))
        backend = dist.group.WORLD._get_backend(torch.device("cpu"))
        keys = []
        for _ in range(3):
            backend.monitored_barrier()
            if rank == 0:
                keys.append(store.num_keys())  # perhaps with those of ranks that have come to the next one
        assert keys == [] or keys[-1] <= keys[0], "the barriers have left keys behind"
        del store, backend
        dist.destroy_process_group()


def test_monitored_barrier_as_the_last_act() -> None:
    run(3, barrier_at_the_end)


def pending_at_the_end(rank: int, size: int) -> None:
    if rank == 0:
        dist.irecv(torch.empty(3), 1)  # nobody sends
        dist.group.WORLD.recv_anysource([torch.empty(3)], 5)


def test_destroy_with_a_pending_receive() -> None:
    start = time.monotonic()
    run(2, pending_at_the_end)
    assert time.monotonic() - start < 25


IN_THREADS = """
import threading, time
for tag in range(8): threading.Thread(target=lambda tag: %s, args=(tag,), daemon=True).start()
time.sleep(0.3)
"""
EXITS = {
    "without destroy": "",
    "with work under way": "w = dist.all_reduce(torch.ones(100000), async_op=True)",
    "with a receive that nobody serves": "w = dist.irecv(torch.empty(3), 1 - rank)",
    "with threads in receives": IN_THREADS % "dist.recv(torch.empty(3), 1 - rank, tag=tag)",
    "with threads in receives with a limit":
        IN_THREADS % "dist.irecv(torch.empty(3), 1 - rank).wait(timedelta(seconds=15))",
    "with threads in receives from any rank": IN_THREADS % "dist.recv(torch.empty(3), tag=tag)",
    "with threads in a collective": IN_THREADS % "rank and dist.all_reduce(t)",
    "by sys.exit": "import sys; sys.exit(0)",
    "by an exception": "raise SystemExit(0)",
    "with a callback under way":
        "f = dist.all_reduce(torch.ones(3), async_op=True).get_future().then(lambda x: 1)",
    "after destroy": "dist.destroy_process_group()",
    "after destroy by hand": "del t; import gc; dist.distributed_c10d._world.pg_map; gc.collect()",
    "with a group that was never used": "g = dist.new_group([0, 1])",
    "after fork": "import os; os.fork() or os._exit(0)",
    "of a forked child": "import os\nif os.fork(): os.wait()",
}

PROGRAM = """
import sys, torch, torch.distributed as dist
from datetime import timedelta
rank = int(sys.argv[1])
store = dist.TCPStore("127.0.0.1", int(sys.argv[2]), is_master=False)
dist.init_process_group("whorl", store=store, rank=rank, world_size=2,
                        timeout=timedelta(seconds=20))
t = torch.ones(3)
dist.all_reduce(t)
if rank == 0: dist.send(t, 1)
else: dist.recv(t, 0)
assert t.eq(2).all()
dist.barrier(async_op=True).wait()
"""


@pytest.mark.parametrize("way", EXITS)
def test_exit(way: str) -> None:
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    program = PROGRAM + EXITS[way]
    if os.environ.get("WHORL_TORCH_NOT_INSTALLED"):  # no entry point
        program = "import whorl_torch\n" + program
    start = time.monotonic()
    processes = [
        subprocess.Popen([sys.executable, "-c", program, str(rank), str(store.port)],
                         stderr=subprocess.PIPE, text=True, cwd=Path(__file__).parent)
        for rank in range(2)
    ]
    for process in processes:
        _, errors = process.communicate(timeout=50)
        assert process.returncode == 0, f"exit {process.returncode}: {errors}"
    assert time.monotonic() - start < 40
