"""How the ranks of a group meet: when it is made, and later without the store. Beside gloo where gloo
does the same."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist

import whorl_torch
from ranks import RankError, outcomes, run

BACKENDS = ("gloo", "whorl")
LONG = 600.0  # timeout of groups that must not need it; what waits for it exceeds the limit of run()


def runner_store() -> dist.Store:
    """That of the test's own process, which outlives the ranks."""
    return dist.distributed_c10d._get_default_store()


def options(backend: str, **fields: Any) -> Any:
    return whorl_torch.Options(**fields) if backend == "whorl" and fields else None


class Hosted:
    """A group whose store is rank 0's, which leaves, with a subgroup of the others."""

    def __init__(self, rank: int, size: int, backend: str, **fields: Any) -> None:
        shared = runner_store()
        if rank == 0:
            store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
            shared.set("port", str(store.port))
        else:
            store = dist.TCPStore("127.0.0.1", int(shared.get("port")), is_master=False)
        self.store = store
        dist.destroy_process_group()
        dist.init_process_group(backend, store=store, rank=rank, world_size=size,
                                timeout=timedelta(seconds=LONG), pg_options=options(backend, **fields))
        self.subgroup = dist.new_group(list(range(1, size)), pg_options=options(backend, **fields))
        dist.barrier()

    def wait_for_the_end_of_the_store(self) -> None:
        while True:
            try:
                self.store.check(["port"])
            except RuntimeError:
                return
            time.sleep(0.01)


def without_the_store(rank: int, size: int, backend: str) -> None:
    hosted = Hosted(rank, size, backend)
    if rank == 0:
        return  # and the store ends with this process
    hosted.wait_for_the_end_of_the_store()
    tensor = torch.full((3,), float(rank))
    dist.all_reduce(tensor, group=hosted.subgroup)
    assert tensor.eq(1 + 2).all()
    for group in (dist.group.WORLD, hosted.subgroup):
        for source, destination in ((1, 2), (2, 1)):
            if rank == source:
                dist.send(torch.full((3,), 7.0 + rank), destination, group=group)
            else:
                dist.recv(tensor, source, group=group)
                assert tensor.eq(7.0 + source).all()
    # An operation of a callback has a communicator of its own.
    work = dist.all_reduce(torch.ones(3), group=hosted.subgroup, async_op=True)

    def again(future: torch.futures.Future) -> torch.Tensor:
        value = future.value()[0]
        dist.all_reduce(value, group=hosted.subgroup)
        return value

    assert work.get_future().then(again).wait().eq(4).all()


@pytest.mark.parametrize("backend", BACKENDS)
def test_first_use_after_the_host_of_the_store_has_left(backend: str) -> None:
    try:
        run(3, without_the_store, backend)
    except RankError as error:
        if backend != "gloo" or f"exit code {-signal.SIGABRT}" not in str(error):
            raise
        pytest.skip("a thread of gloo's has aborted its process, as it does at times when a peer has left")


def met_too_late(rank: int, size: int) -> Any:
    hosted = Hosted(rank, size, "whorl", eager=False)
    if rank == 0:
        return None
    hosted.wait_for_the_end_of_the_store()
    with pytest.raises((RuntimeError, dist.DistError)) as caught:
        if rank == 1:
            dist.send(torch.ones(3), 2)
        else:
            dist.recv(torch.ones(3), 1)
    return str(caught.value)


def test_a_store_that_has_ended_is_an_error_at_once() -> None:
    for text in run(3, met_too_late)[1:]:
        assert "store" in text, text


def waiting_for_the_store(rank: int, size: int) -> Any:
    """Rank 1 waits for rank 2, which does not come, when the store ends."""
    hosted = Hosted(rank, size, "whorl", eager=False)
    shared = hosted.store
    if rank == 0:
        shared.get("waiting")
        return None
    if rank == 2:
        hosted.wait_for_the_end_of_the_store()
        time.sleep(5)
        return None
    work = dist.isend(torch.ones(3), 2)
    shared.set("waiting", "")
    with pytest.raises((RuntimeError, dist.DistError)) as caught:
        work.wait()
    return str(caught.value)


def test_who_waits_hears_of_the_end_of_the_store() -> None:
    text = run(3, waiting_for_the_store)[1]
    assert "store" in text or "has ended" in text, text


def absent(rank: int, size: int, backend: str, missing: int) -> Any:
    store = runner_store()
    if rank == missing:
        store.wait(["told"], timedelta(seconds=60))
        return None
    dist.destroy_process_group()
    with pytest.raises((RuntimeError, dist.DistError)) as caught:
        dist.init_process_group(backend, store=dist.PrefixStore("absent", store), rank=rank,
                                world_size=size, timeout=timedelta(seconds=2))
    store.set("told", "")
    return str(caught.value)


@pytest.mark.parametrize("missing", [0, 1])
@pytest.mark.parametrize("backend", BACKENDS)
def test_an_absent_rank_is_an_error_of_init_process_group(backend: str, missing: int) -> None:
    text = run(2, absent, backend, missing)[1 - missing]
    if backend == "whorl":
        assert f"rank {missing}" in text, text


def an_absent_rank_of_a_lazy_group(rank: int, size: int) -> None:
    store = runner_store()
    if rank == 1:
        return store.wait(["told"], timedelta(seconds=60))
    dist.destroy_process_group()
    dist.init_process_group("whorl", store=dist.PrefixStore("absent", store), rank=rank, world_size=size,
                            timeout=timedelta(seconds=2), pg_options=whorl_torch.Options(eager=False))
    with pytest.raises((RuntimeError, dist.DistError), match="rank 1"):
        dist.barrier()
    return store.set("told", "")


def test_a_group_that_is_not_eager_meets_at_its_first_use() -> None:
    run(2, an_absent_rank_of_a_lazy_group)


def made_with_options(rank: int, size: int) -> None:
    cpu = torch.device("cpu")

    def made(backend: str, **how: Any) -> Any:
        return dist.new_group(backend=backend, **how)._get_backend(cpu).options

    limit = timedelta(seconds=41)
    for backend in BACKENDS:  # the same fields, of the same values
        found = made(backend, timeout=limit)
        assert found._timeout == limit and found.global_ranks_in_group == list(range(size)), backend
        assert isinstance(found, dist.ProcessGroupGloo._Options if backend == "gloo" else
                          whorl_torch.ProcessGroupWhorl.Options)
    given = whorl_torch.ProcessGroupWhorl.Options(timeout=timedelta(seconds=17), eager=False)
    found = made("whorl", pg_options=given)
    assert found._timeout == timedelta(seconds=17) and not found.eager
    assert given.group_name != found.group_name, "the options that were given belong to the program"
    found = made("whorl", pg_options=whorl_torch.Options(eager=False), timeout=limit)
    assert found._timeout == limit and not found.eager
    assert made("whorl").eager
    # torch passes on options of other backends of the group, as those that it makes for NCCL.
    found = made("whorl", pg_options=dist.ProcessGroupGloo._Options(), timeout=limit)
    assert found._timeout == limit and found.eager
    with pytest.raises(TypeError, match="pg_options of type whorl_torch.Options"):
        made("whorl", pg_options={"eager": False})


def test_options() -> None:
    run(2, made_with_options)


def time_of_options(rank: int, size: int) -> None:
    group = dist.new_group(pg_options=whorl_torch.Options(timedelta(seconds=1)))
    if rank == 0:
        with pytest.raises((RuntimeError, dist.DistError), match="rank 1"):
            dist.all_reduce(torch.ones(1), group=group)
        runner_store().set("told", "")
    else:
        runner_store().wait(["told"], timedelta(seconds=60))


def test_the_timeout_of_options_is_kept() -> None:
    run(2, time_of_options, seconds=LONG)


def killed(rank: int, size: int) -> None:
    """An eager group is left by a rank that its peer then wants to talk to for the first time."""
    if rank == 1:
        dist.destroy_process_group()
        return
    with pytest.raises((RuntimeError, dist.DistError), match="rank 1"):
        dist.recv(torch.ones(1), 1)


def test_first_message_of_a_rank_that_has_left() -> None:
    results = outcomes(2, killed, seconds=LONG)
    assert [what for what, _ in results] == ["returned", "returned"], results


# As on machines that do not say who they are: no name of the boot, and another table of processes.
NAMELESS = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c",
            'mount --bind /dev/null /proc/sys/kernel/random/boot_id && exec "$@"', "sh"]

LATE_RECEIVER = """
import sys, time, torch, whorl_torch, torch.distributed as dist
from datetime import timedelta
rank = int(sys.argv[1])
store = dist.TCPStore("127.0.0.1", int(sys.argv[2]), is_master=False)
dist.init_process_group("whorl", store=store, rank=rank, world_size=2, timeout=timedelta(seconds=40))
if rank == 0:
    dist.send(torch.ones(1), 1)
else:
    time.sleep(4)  # longer than one waits for the other to end in order
    dist.recv(torch.ones(1), 0)
dist.barrier()
dist.destroy_process_group()
"""


def test_processes_of_hosts_without_a_name_are_not_compared() -> None:
    try:
        subprocess.run([*NAMELESS, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"such a machine cannot be made here: {error}")
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    processes = [subprocess.Popen([*NAMELESS, sys.executable, "-c", LATE_RECEIVER, str(rank), str(store.port)],
                                  stderr=subprocess.PIPE, text=True) for rank in range(2)]
    try:
        for process in processes:
            _, errors = process.communicate(timeout=90)
            assert process.returncode == 0, errors
    finally:
        for process in processes:
            process.kill()
