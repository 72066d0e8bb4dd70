"""One program for mpi4py and for whorl: every rank does the same operations in mpi4py's spelling, and keeps the
results.

usage, under an MPI launcher: operations.py mpi4py|whorl FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

DTYPES = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float32", "float64", "complex64",
          "complex128")
COUNTS = {dtype: (5,) for dtype in DTYPES} | {"int32": (1, 5, 4099), "complex128": (5, 4099)}


def values(rank: int, count: int, dtype: str) -> np.ndarray[Any, Any]:
    """Returns small whole numbers, whose sums and products are exact in every type."""
    numbers = np.random.default_rng(17 * rank + count).integers(1, 4, count)
    return (numbers + 1j * numbers[::-1]).astype(dtype) if dtype.startswith("complex") else numbers.astype(dtype)


def operations_of(comm: Any, api: Any, dtype: str, count: int) -> dict[str, np.ndarray[Any, Any]]:
    """Returns the results of all collectives for one element type and count."""
    rank, size = comm.Get_rank(), comm.Get_size()
    mine, everyones = values(rank, count, dtype), values(rank, count * size, dtype)
    results: dict[str, np.ndarray[Any, Any]] = {}

    def new(name: str, elements: int) -> np.ndarray[Any, Any]:
        results[name] = np.zeros(elements, dtype)
        return results[name]

    names = ["SUM"] if dtype.startswith("complex") else ["SUM", "PROD", "MAX", "MIN"]
    for name in names + (["BAND", "BOR", "BXOR"] if "int" in dtype else []):
        comm.Allreduce(mine, new(f"Allreduce {name}", count), getattr(api, name))
    new("Allreduce in place", count)[:] = mine
    comm.Allreduce(api.IN_PLACE, results["Allreduce in place"])
    root = size - 1
    comm.Reduce(mine, new("Reduce", count), api.SUM, root)
    # Root 0, since MPICH 4.0.2 crashes in place on another root of ranks that share memory.
    new("Reduce in place", count)[:] = mine
    comm.Reduce(api.IN_PLACE if rank == 0 else mine, results["Reduce in place"] if rank == 0 else None)
    new("Bcast", count)[:] = mine
    comm.Bcast(results["Bcast"], root)
    comm.Allgather(mine, new("Allgather", count * size))
    new("Allgather in place", count * size)[rank * count:(rank + 1) * count] = mine
    comm.Allgather(api.IN_PLACE, results["Allgather in place"])
    comm.Reduce_scatter_block(everyones, new("Reduce_scatter_block", count))
    comm.Alltoall(everyones, new("Alltoall", count * size))
    counts_of_blocks(comm, api, new, everyones, count, root)
    comm.Gather(mine, new("Gather", count * size) if rank == root else None, root)
    comm.Scatter(everyones if rank == root else None, new("Scatter", count), root)
    blocks_of(comm, new, dtype, count, root)
    to, of = (rank + 1) % size, (rank - 1) % size
    comm.Sendrecv(mine, to, recvbuf=new("Sendrecv", count), source=of)
    if rank % 2 == 0 and rank + 1 < size:
        comm.Send([mine, count], rank + 1)
    elif rank % 2 == 1:
        comm.Recv(new("Recv", count), rank - 1)
    comm.Barrier()
    return results


def counts_of_blocks(comm: Any, api: Any, new: Any, everyones: np.ndarray[Any, Any], count: int, root: int) -> None:
    """Does the collectives of one block for each rank with the count of a block, one less than there is room for."""
    rank, size = comm.Get_rank(), comm.Get_size()
    part = count - 1
    gathered = new("Allgather of a count in place", count * size)
    gathered[rank * part:(rank + 1) * part] = everyones[:part]
    comm.Allgather(api.IN_PLACE, [gathered, part])
    comm.Allgather([everyones, part], [new("Allgather of a count", count * size), part])
    comm.Alltoall([everyones, part], [new("Alltoall of a count", count * size), part])
    comm.Reduce_scatter_block([everyones, part], [new("Reduce_scatter_block of a count", count), part])
    comm.Gather([everyones, part], [new("Gather of a count", count * size), part] if rank == root else None, root)
    comm.Scatter([everyones, part] if rank == root else None, [new("Scatter of a count", count), part], root)


def blocks_of(comm: Any, new: Any, dtype: str, count: int, root: int) -> None:
    """Does the collectives whose blocks differ in size; block j has `count` + j elements, none for j = 1."""
    rank, size = comm.Get_rank(), comm.Get_size()
    counts = [0 if j == 1 else count + j for j in range(size)]
    total = sum(counts)
    gaps = [sum(counts[:j]) + 2 * j for j in range(size)]  # two elements between the blocks
    mine = values(rank, counts[rank], dtype)
    comm.Allgatherv(mine, [new("Allgatherv", total), counts])
    comm.Allgatherv(mine, [new("Allgatherv with gaps", total + 2 * size), (counts, gaps)])
    comm.Allgatherv(mine, [new("Allgatherv of a tuple", total), (tuple(map(np.int64, counts)), None)])
    comm.Gatherv(mine, [new("Gatherv", total), (counts, None)] if rank == root else None, root)
    source = [values(rank, total + 2 * size, dtype), (counts, gaps)] if rank == root else None
    comm.Scatterv(source, new("Scatterv", counts[rank]), root)
    comm.Reduce_scatter(values(rank, total, dtype), new("Reduce_scatter", counts[rank]), counts)
    sent = [(rank + j) % 3 for j in range(size)]
    received = [(j + rank) % 3 for j in range(size)]
    comm.Alltoallv([values(rank, sum(sent), dtype), sent], [new("Alltoallv", sum(received)), received])


def split_of(comm: Any) -> dict[str, np.ndarray[Any, Any]]:
    """Returns ranks, and a sum, in two communicators that divide `comm` in reversed order."""
    rank = comm.Get_rank()
    part = comm.Split(rank % 2, -rank)
    total = np.zeros(1)
    part.Allreduce(np.array([float(rank)]), total)
    numbers = np.array([part.Get_rank(), part.Get_size(), total[0]])
    part.Free()
    return {"Split": numbers}


def beside(theirs: Any) -> None:
    """Makes a communicator of whorl of the ranks of one of mpi4py, and uses both."""
    import whorl

    with whorl.Communicator.from_mpi4py(theirs) as ours:
        assert (ours.rank, ours.size) == (theirs.Get_rank(), theirs.Get_size())
        totals = np.zeros((2, 3))
        for comm, total in zip((theirs, ours), totals):
            comm.Allreduce(np.full(3, ours.rank + 1.0), total)
        assert (totals[0] == totals[1]).all()


def main(which: str, folder: Path) -> None:
    api: Any
    if which == "mpi4py":
        from mpi4py import MPI as api

        comm = api.COMM_WORLD
        beside(comm)
    else:
        import whorl as api

        comm = api.init()
    results = {f"{dtype} {count} {name}": array for dtype in DTYPES for count in COUNTS[dtype]
               for name, array in operations_of(comm, api, dtype, count).items()}
    results.update(split_of(comm))
    np.savez(folder / f"{which}.{comm.Get_rank()}.npz", **results)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
