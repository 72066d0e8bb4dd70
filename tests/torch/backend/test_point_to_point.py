"""Sends and receives: order, tags, both directions at once, any source."""

from __future__ import annotations

import os
import resource
import signal
import time
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from ranks import DIED, let_others_leave, outcomes, run

LARGE = 2_000_000  # elements: does not fit into any buffer between two ranks


def both_send_first(rank: int, size: int) -> None:
    for count in (3, LARGE):
        requests = [dist.isend(torch.full((count,), float(rank)), peer)
                    for peer in range(size) if peer != rank]
        for peer in reversed(range(size)):
            if peer != rank:
                tensor = torch.empty(count)
                dist.recv(tensor, peer)
                assert tensor.eq(peer).all()
        for request in requests:
            request.wait()


def test_both_send_first() -> None:
    run(3, both_send_first)


def blocking_sends(rank: int, size: int) -> str:
    with pytest.raises(RuntimeError) as caught:
        dist.send(torch.ones(3), 1 - rank)  # no rank comes to a receive
    return str(caught.value)


def test_two_blocking_sends_say_that_no_receive_was_issued() -> None:
    sentences = run(2, blocking_sends, seconds=2)
    assert any("the first receive" in sentence for sentence in sentences), sentences


def into_shared_elements(rank: int, size: int) -> None:
    if rank == 0:
        dist.send(torch.arange(6.0), 1)
        dist.send(torch.ones(2), 1)
        return
    with pytest.raises(ValueError, match="share memory"):
        dist.recv(torch.zeros(1).expand(6), 0)
    for expected in (torch.arange(6.0), torch.ones(2)):
        received = torch.empty_like(expected)
        dist.recv(received, 0)
        assert received.equal(expected)


def test_receive_into_elements_that_share_memory() -> None:
    run(2, into_shared_elements)


def batch(rank: int, size: int) -> None:
    right, left = (rank + 1) % size, (rank - 1) % size
    for count in (5, LARGE):
        tensors = [torch.empty(count) for _ in range(2)]
        mine = torch.full((count,), float(rank))
        operations = [
            dist.P2POp(dist.isend, mine, right), dist.P2POp(dist.isend, mine, left),
            dist.P2POp(dist.irecv, tensors[0], left), dist.P2POp(dist.irecv, tensors[1], right),
        ]
        for request in dist.batch_isend_irecv(operations):
            request.wait()
        assert tensors[0].eq(left).all() and tensors[1].eq(right).all()
        # In one coalesced piece of work.
        output = torch.empty(count)
        with dist._coalescing_manager(device=torch.device("cpu"), async_ops=True) as manager:
            dist.irecv(output, left)
            dist.isend(mine, right)
        manager.wait()
        assert output.eq(left).all()


@pytest.mark.parametrize("size", [2, 3])
def test_batch(size: int) -> None:
    run(size, batch)


def tags(rank: int, size: int) -> None:
    if rank == 0:
        requests = [dist.isend(torch.full((4,), float(tag)), 1, tag=tag) for tag in (1, 2, 3, 2)]
        for request in requests:
            request.wait()
        dist.send(torch.zeros(1), 1, tag=9)
        dist.recv(torch.empty(1), 1)
        dist.send(torch.full((1,), 5.0), 1, tag=5)
        return
    for tag in (3, 2, 1, 2):
        tensor = torch.empty(4)
        dist.recv(tensor, 0, tag=tag)
        assert tensor.eq(tag).all()
    # A receive that is posted first need not complete first.
    last, first = torch.empty(1), torch.empty(1)
    later = dist.irecv(last, 0, tag=5)
    dist.recv(first, 0, tag=9)
    dist.send(first, 0)
    later.wait()
    assert last.eq(5).all()


def test_tags() -> None:
    run(2, tags)


def order(rank: int, size: int) -> None:
    count = 200
    if rank == 0:
        for i in range(count):
            dist.send(torch.full((i % 7,), i), 1)
    else:
        tensors = [torch.empty(i % 7, dtype=torch.int64) for i in range(count)]
        requests = [dist.irecv(tensor, 0) for tensor in tensors]
        requests[-1].wait()
        # All are there, though the thread that received one may not have marked it as complete yet.
        for i, tensor in enumerate(tensors):
            assert tensor.eq(i).all()
        for request in requests:
            request.wait()


def test_order() -> None:
    run(2, order)


def any_source(rank: int, size: int) -> None:
    if rank == 0:
        seen = []
        for i in range(3 * (size - 1)):
            tensor = torch.empty(2)
            if i % 2:
                source = dist.recv(tensor)
            else:
                work = dist.group.WORLD.recv_anysource([tensor], 0)
                work.wait()
                source = work._source_rank()
            assert tensor.eq(source).all()
            seen.append(source)
        assert sorted(seen) == sorted(list(range(1, size)) * 3)
        # What comes next from each is received by name.
        for peer in range(1, size):
            tensor = torch.empty(2)
            dist.recv(tensor, peer, tag=1)
            assert tensor.eq(10 * peer).all()
    else:
        time.sleep(0.01 * (size - rank))
        for _ in range(3):
            dist.send(torch.full((2,), float(rank)), 0)
        dist.send(torch.full((2,), 10.0 * rank), 0, tag=1)
    dist.barrier()


@pytest.mark.parametrize("size", [2, 4])
def test_any_source(size: int) -> None:
    run(size, any_source)


def parameter_server(rank: int, size: int) -> None:
    """Workers push and pull at their own pace; the server answers whoever comes."""
    rounds = 20
    if rank == 0:
        model = torch.zeros(8)
        for _ in range(rounds * (size - 1)):
            gradient = torch.empty(8)
            worker = dist.recv(gradient)
            model += gradient
            dist.send(model, worker)
        assert model.eq(rounds * (size - 1)).all()
    else:
        for _ in range(rounds):
            dist.send(torch.ones(8), 0)
            model = torch.empty(8)
            dist.recv(model, 0)


def test_parameter_server() -> None:
    run(4, parameter_server)


def wrong_size(rank: int, size: int) -> None:
    if rank == 0:
        dist.send(torch.ones(5), 1)
        dist.send(torch.ones(2), 1)
    else:
        dist.recv(torch.empty(3), 0)


def test_wrong_size_names_the_ranks() -> None:
    (_, _), (what, text) = outcomes(2, wrong_size)
    assert what == "raised"
    assert "rank 1 receives 12 bytes from rank 0 with tag 0, but rank 0 sends 20" in text


def nobody_sends(rank: int, size: int) -> float:
    start = time.monotonic()
    if rank == 1:
        with pytest.raises(RuntimeError):
            dist.recv(torch.empty(3), 0)
    else:
        time.sleep(5)  # one that has left would be noticed before the timeout
    return time.monotonic() - start


def test_receive_times_out() -> None:
    waited = run(2, nobody_sends, seconds=2)[1]
    assert 1 < waited < 15


def then_destroy(rank: int, size: int) -> None:
    count, elements = 5, 300_000
    if rank == 0:
        for i in range(count):
            dist.isend(torch.full((elements,), float(i)), 1)
        dist.destroy_process_group()
    else:
        time.sleep(0.5)
        tensor = torch.empty(elements)
        for i in range(count):
            dist.recv(tensor, 0)
            assert tensor.eq(i).all()


def test_destroy_sends_what_was_issued() -> None:
    run(2, then_destroy)


def silent_sender(rank: int, size: int) -> None:
    """Rank 2 sends nothing for longer than the timeout; receives from any rank go on meanwhile."""
    rounds, warm, megabytes = 60, 10, 4
    group = dist.new_group(timeout=timedelta(seconds=2))
    tensor = torch.zeros(1)
    if rank == 0:
        for i in range(rounds):
            if i == warm:  # the communicator has what memory it needs
                before = resident_megabytes()
            assert dist.recv(torch.empty(megabytes << 20, dtype=torch.uint8), group=group) == 1
        grown = resident_megabytes() - before
        assert grown < (rounds - warm) * megabytes // 2, f"{grown} MiB of received tensors are kept"
        dist.barrier()
        assert dist.recv(tensor, group=group) == 2 and tensor == 7
        with pytest.raises(RuntimeError, match="rank 0 received nothing with tag 9 from any rank"):
            dist.recv(tensor, tag=9, group=group)
        dist.barrier()
        dist.recv(tensor, 2, group=group)  # what was given up does no harm
        assert tensor == 8
    elif rank == 1:
        for _ in range(rounds):
            dist.send(torch.empty(megabytes << 20, dtype=torch.uint8), 0, group=group)
            time.sleep(3 / rounds)
        dist.barrier()
        dist.barrier()
    else:
        dist.barrier()
        dist.send(tensor + 7, 0, group=group)
        dist.barrier()
        dist.send(tensor + 8, 0, group=group)


def resident_megabytes() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize() >> 20


def test_any_source_with_a_silent_rank() -> None:
    run(3, silent_sender)


def nobody_receives(rank: int, size: int) -> None:
    if rank == 2:
        with pytest.raises(RuntimeError, match="from rank 2 to rank 1 of the group"):
            dist.send(torch.ones(3), 1)
    elif rank == 0:
        with pytest.raises(RuntimeError, match="from rank 2 to rank 0 of the group|from rank 2 within"):
            dist.recv(torch.empty(3), 2)


def test_errors_name_the_ranks_of_the_group() -> None:
    run(3, nobody_receives, seconds=1)


def dies_before_it_talks(rank: int, size: int, met: bool) -> float:
    """Ranks 0 and 1 have exchanged no message yet; rank 2 is slow, but there."""
    if met:
        dist.barrier()
        let_others_leave(rank, size)
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    start = time.monotonic()
    if rank == 0:
        with pytest.raises(RuntimeError, match="rank 1 of the group has ended"):
            dist.recv(torch.empty(3), 1)
        with pytest.raises(RuntimeError, match="rank 1 of the group has ended"):
            dist.isend(torch.empty(3), 1).wait()
        waited = time.monotonic() - start
        assert dist.recv(torch.empty(3)) == 2  # from any rank: the others still may
        return waited
    time.sleep(4)
    dist.send(torch.empty(3), 0)
    return 0.0


@pytest.mark.parametrize("met", [False, True])
def test_a_rank_that_died_before_its_first_message(met: bool) -> None:
    results = outcomes(3, dies_before_it_talks, met, seconds=40)
    assert results[1] == (DIED, -signal.SIGKILL)
    assert [what for what, _ in results] == ["returned", DIED, "returned"], results
    assert results[0][1] < 15


def finished_early(rank: int, size: int) -> None:
    """The sender leaves in good order while the receiver is still busy elsewhere."""
    dist.barrier()
    if rank == 1:
        dist.isend(torch.full((3,), 5.0), 0)
        dist.destroy_process_group()
        os._exit(0)
    tensor = torch.empty(3)
    work = dist.irecv(tensor, 1)
    time.sleep(3)
    work.wait()
    assert tensor.eq(5).all()


def test_a_rank_that_finished_early_has_sent() -> None:
    results = outcomes(2, finished_early)
    assert results[0][0] == "returned", results


def overdue(rank: int, size: int) -> float:
    start = time.monotonic()
    if rank == 0:
        for source in (None, 1):
            with pytest.raises(RuntimeError, match="received nothing with tag 3 from|did not arrive|nothing came"):
                work = dist.irecv(torch.empty(3), source, tag=3)
                work.get_future().wait()
    else:
        time.sleep(8)
    return time.monotonic() - start


def test_futures_of_receives_keep_the_time() -> None:
    assert 1 < run(2, overdue, seconds=2)[0] < 20


def coalescing_fails(rank: int, size: int) -> None:
    right, left = (rank + 1) % size, (rank - 1) % size
    kept = torch.full((2,), float(rank))
    with pytest.raises(ZeroDivisionError):
        with dist._coalescing_manager(device=torch.device("cpu"), async_ops=True):
            dist.isend(kept, right)
            raise ZeroDivisionError
    with dist._coalescing_manager(device=torch.device("cpu"), async_ops=True) as manager:
        output = torch.empty(2)
        dist.irecv(output, left)
    manager.wait()
    assert output.eq(left).all()
    device = torch.device("cpu")
    dist.group.WORLD._start_coalescing(device)
    dist.isend(kept, right)
    dist.group.WORLD._start_coalescing(device)  # as after an exception
    dist.irecv(output, left)
    assert len(dist.group.WORLD._end_coalescing(device).result()) == 1


def test_coalescing_after_an_exception() -> None:
    run(2, coalescing_fails)
