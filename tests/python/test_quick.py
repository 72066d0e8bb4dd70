"""Two ranks, and the operations that a program uses first."""

from __future__ import annotations

import numpy as np

import whorl
from ranks import run


def first_steps(comm: whorl.Communicator) -> None:
    rank, size = comm.rank, comm.size
    np.testing.assert_array_equal(comm.allreduce(np.arange(3.0) + rank), [1, 3, 5])
    np.testing.assert_array_equal(comm.allgather([rank, 7]), [[0, 7], [1, 7]])
    np.testing.assert_array_equal(comm.bcast(np.full(2, rank), root=1), [1, 1])
    total = np.zeros(4, np.float32)
    comm.Allreduce([np.full(4, rank + 1, np.float32), whorl.FLOAT], [total, 4, whorl.FLOAT], op=whorl.SUM)
    np.testing.assert_array_equal(total, np.full(4, 3))
    with whorl.group():
        comm.send(np.array([rank]), 1 - rank)
        got = comm.recv(np.zeros(1, int), 1 - rank)
    assert got[0] == 1 - rank
    with whorl.Stream() as stream:
        later = comm.allreduce(np.ones(1000), stream=stream)
    np.testing.assert_array_equal(later, np.full(1000, size))
    comm.barrier()


def test_first_steps() -> None:
    run(2, first_steps)


def test_one_rank_without_launcher() -> None:
    with whorl.init() as comm:
        assert (comm.rank, comm.size) == (0, 1)
        assert comm.allreduce(2.5) == 2.5
        assert "1 rank on 1 host" in comm.describe()
        assert repr(comm) == "<whorl.Communicator: rank 0 of 1>"
    assert "ended" in repr(comm)
