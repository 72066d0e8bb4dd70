#!/usr/bin/env python3
"""usage: nccl_cupy.py [PART…]: CuPy's binding of NCCL (cupy.cuda.nccl), and cupyx.distributed where
this CuPy has it, on whorl's libnccl.so.2: 2 and 4 ranks on one GPU."""

from __future__ import annotations

import pickle
import socket
import sys
import time
from typing import Any

import machine


def meet(rank: int, size: int, port: int, value: Any) -> Any:
    """Returns rank 0's value on every rank."""
    if rank == 0:
        with socket.create_server(("127.0.0.1", port)) as server:
            for _ in range(size - 1):
                connection, _ = server.accept()
                with connection:
                    connection.sendall(pickle.dumps(value))
        return value
    deadline = time.monotonic() + 60
    while True:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
                if connection.getsockname() == connection.getpeername():
                    continue  # rank 0 does not listen yet, and this end got the port by chance
                return pickle.loads(b"".join(iter(lambda: connection.recv(65536), b"")))
        except ConnectionRefusedError:
            assert time.monotonic() < deadline, "rank 0 did not come"
            time.sleep(0.05)


def communicator(rank: int, size: int) -> None:
    import cupy
    from cupy.cuda import nccl

    port = machine.rank_and_size()[2]
    identity = meet(rank, size, port, nccl.get_unique_id() if rank == 0 else None)
    comm = nccl.NcclCommunicator(size, identity, rank)
    assert (comm.size(), comm.rank_id()) == (size, rank)
    stream = cupy.cuda.Stream(non_blocking=True)

    def values(of: int, count: int, dtype: str) -> cupy.ndarray:
        return ((cupy.arange(count) * 3 + of) % 11).astype(dtype)

    kinds = {"float32": nccl.NCCL_FLOAT32, "float64": nccl.NCCL_FLOAT64,
             "float16": nccl.NCCL_FLOAT16, "int32": nccl.NCCL_INT32, "int64": nccl.NCCL_INT64}
    with stream:
        for dtype, kind in kinds.items():
            for count in (1, 1001, 1_000_000):
                every = [values(j, count, dtype) for j in range(size)]
                mine, out = every[rank], cupy.empty(count, dtype)
                comm.allReduce(mine.data.ptr, out.data.ptr, count, kind, nccl.NCCL_SUM, stream.ptr)
                assert (out == sum(every[1:], every[0])).all(), (dtype, count)
                gathered = cupy.empty(size * count, dtype)
                comm.allGather(mine.data.ptr, gathered.data.ptr, count, kind, stream.ptr)
                assert (gathered == cupy.concatenate(every)).all(), (dtype, count)
                whole = values(rank, size * count, dtype)
                comm.reduceScatter(whole.data.ptr, out.data.ptr, count, kind, nccl.NCCL_MAX,
                                   stream.ptr)
                all_whole = cupy.stack([values(j, size * count, dtype) for j in range(size)])
                assert (out == all_whole.max(0)[rank * count:(rank + 1) * count]).all()
                comm.broadcast(mine.data.ptr, out.data.ptr, count, kind, size - 1, stream.ptr)
                assert (out == every[size - 1]).all()
                nccl.groupStart()
                comm.send(mine.data.ptr, count, kind, (rank + 1) % size, stream.ptr)
                comm.recv(out.data.ptr, count, kind, (rank - 1) % size, stream.ptr)
                nccl.groupEnd()
                assert (out == every[(rank - 1) % size]).all()
    stream.synchronize()
    comm.check_async_error()
    comm.destroy()


def one_process(rank: int, size: int) -> None:
    """Tests all ranks in rank 0's process: one kernel for all."""
    if rank != 0:
        return
    import cupy
    from cupy.cuda import nccl

    comms = nccl.NcclCommunicator.initAll([0] * size)
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in comms]
    data = [cupy.random.default_rng(j).standard_normal(100_003, dtype="float32")
            for j in range(size)]
    expected = data[0].copy()
    for other in data[1:]:
        expected += other  # in the order of the ranks
    cupy.cuda.Device().synchronize()
    nccl.groupStart()
    for comm, stream, one in zip(comms, streams, data):
        comm.allReduce(one.data.ptr, one.data.ptr, one.size, nccl.NCCL_FLOAT32, nccl.NCCL_SUM,
                       stream.ptr)
    nccl.groupEnd()
    for stream in streams:
        stream.synchronize()
    for one in data:
        assert (one == expected).all()
    for comm in comms:
        comm.destroy()


def cupyx_distributed(rank: int, size: int) -> None:
    import cupy
    # CuPy uses mpi4py where it can be imported; without an MPI library that raises an exception which
    # CuPy does not handle.
    sys.modules["mpi4py"] = None  # type: ignore[assignment]
    try:
        from cupyx import distributed
    except ImportError as error:
        print(f"this CuPy has no cupyx.distributed: {error}")
        return
    port = machine.rank_and_size()[2] + 1
    comm = distributed.init_process_group(size, rank, host="127.0.0.1", port=port)
    mine, out = cupy.full(1000, rank + 1.0, "float32"), cupy.zeros(1000, "float32")
    comm.all_reduce(mine, out)
    assert (out == sum(range(1, size + 1))).all()
    gathered = cupy.zeros((size, 1000), "float32")
    comm.all_gather(mine, gathered, 1000)
    assert (gathered == cupy.arange(1, size + 1, dtype="float32")[:, None]).all()
    comm.broadcast(mine, 0)
    assert (mine == 1).all()
    comm.barrier()


PARTS = {"communicator": communicator, "one_process": one_process,
         "cupyx_distributed": cupyx_distributed}


def free_ports() -> int:
    """Returns the first of two consecutive free ports."""
    while True:
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            port = first.getsockname()[1]
            try:
                second.bind(("127.0.0.1", port + 1))
                return port
            except (OSError, OverflowError):
                continue


def main() -> None:
    if machine.am_rank():
        machine.do_parts(PARTS)
        machine.check_loaded("libnccl")
        return
    machine.need_device()
    machine.need_module("cupy", "CuPy's binding of NCCL")
    library = machine.need_library("libnccl.so.2")
    surroundings = machine.environment(preload=library)
    parts = machine.choose(PARTS)
    if not available(surroundings):
        machine.skip("this CuPy was built without NCCL (cupy.cuda.nccl.available is False)")
    results = machine.run_parts(parts, (2, 4), free_ports, surroundings)
    machine.finish(results)


def available(surroundings: dict[str, str]) -> bool:
    """Returns whether CuPy has NCCL, from a process of its own that preloads whorl's library."""
    import subprocess

    question = "from cupy.cuda import nccl; raise SystemExit(0 if nccl.available else 3)"
    return subprocess.run([sys.executable, "-c", question], env=surroundings,
                          check=False).returncode == 0


if __name__ == "__main__":
    main()
