#!/usr/bin/env python3
"""usage: reference_test.py OURS [REFERENCE]: calls with wrong arguments, on whorl's and NVIDIA's library.

Without a device the reference answers only calls that it refuses before it looks for one. Each call
is made in a process of its own: calls that crash the reference are not compared."""
import ctypes
import os
import sys
from collections.abc import Callable

from pynccl import CollConfig, Comm, EncryptionConfig, Library, SimInfo, UniqueId

SKIPPED = 77
NO_DEVICE = 1  # ncclUnhandledCudaError: the reference looked for a device first
CRASHED = -1

data = ctypes.create_string_buffer(64)
number = ctypes.c_int()
pointer = ctypes.c_void_p()
comm = Comm()
no_comm = ctypes.create_string_buffer(65536)  # memory that is not a communicator
unique_id = UniqueId()


def group(nccl: Library, *calls: tuple) -> list[int]:
    """Returns the codes of calls in a group, and that of its end."""
    nccl.raw("ncclGroupStart")
    codes = [nccl.raw(*call) for call in calls]
    return codes + [nccl.raw("ncclGroupEnd")]


def plain(name: str, *arguments: object) -> Callable[[Library], list[int]]:
    """Returns a function that makes one call."""
    return lambda nccl: [nccl.raw(name, *arguments)]


def scalar(kind: Callable[[], object]) -> object:
    """Returns a new object as an output argument."""
    return ctypes.byref(kind())


REDUCE = ("ncclAllReduce", data, data, 4, 7, 0)
CONFIGURED = ("ncclAllReduceConfig", *REDUCE[1:], None, None)
CALLS: dict[str, Callable[[Library], list[int]]] = {
    "version into NULL": plain("ncclGetVersion", None),
    "version": plain("ncclGetVersion", number),
    "id into NULL": plain("ncclGetUniqueId", None),
    "id": plain("ncclGetUniqueId", unique_id),
    "destroy NULL": plain("ncclCommDestroy", None),
    "abort NULL": plain("ncclCommAbort", None),
    "finalize NULL": plain("ncclCommFinalize", None),
    "revoke NULL": plain("ncclCommRevoke", None, 0),
    "state of NULL": plain("ncclCommGetAsyncError", None, number),
    "count of NULL": plain("ncclCommCount", None, number),
    "rank of NULL": plain("ncclCommUserRank", None, number),
    "device of NULL": plain("ncclCommCuDevice", None, number),
    "count of no communicator": plain("ncclCommCount", no_comm, number),
    "state of no communicator": plain("ncclCommGetAsyncError", no_comm, number),
    "allreduce on no communicator": plain(*REDUCE, no_comm, None),
    "destroy no communicator": plain("ncclCommDestroy", no_comm),
    "allreduce on NULL": plain(*REDUCE, None, None),
    "reduce on NULL": plain("ncclReduce", data, data, 4, 7, 0, 0, None, None),
    "broadcast on NULL": plain("ncclBroadcast", data, data, 4, 7, 0, None, None),
    "bcast on NULL": plain("ncclBcast", data, 4, 7, 0, None, None),
    "allgather on NULL": plain("ncclAllGather", data, data, 4, 7, None, None),
    "reducescatter on NULL": plain("ncclReduceScatter", data, data, 4, 7, 0, None, None),
    "alltoall on NULL": plain("ncclAlltoAll", data, data, 4, 7, None, None),
    "gather on NULL": plain("ncclGather", data, data, 4, 7, 0, None, None),
    "scatter on NULL": plain("ncclScatter", data, data, 4, 7, 0, None, None),
    "send on NULL": plain("ncclSend", data, 4, 7, 0, None, None),
    "recv on NULL": plain("ncclRecv", data, 4, 7, 0, None, None),
    "operator on NULL": plain("ncclRedOpCreatePreMulSum", number, data, 7, 1, None),
    "destroy a built-in operator": plain("ncclRedOpDestroy", 0, None),
    "destroy an operator of NULL": plain("ncclRedOpDestroy", 9, None),
    "register with NULL": plain("ncclCommRegister", None, data, 64, pointer),
    "deregister with NULL": plain("ncclCommDeregister", None, None),
    "allreduce on NULL without options": plain(*CONFIGURED, None),
    "allreduce on NULL with options": plain(*CONFIGURED, CollConfig()),
    "allreduce with options of no size": plain(*CONFIGURED, CollConfig(size=8)),
    "allreduce with other options": plain(*CONFIGURED, CollConfig(magic=1)),
    "allreduce with half a selection": plain(*CONFIGURED, CollConfig(forceAlgSelection=2)),
    "allreduce with a wrong policy": plain(*CONFIGURED, CollConfig(CTAPolicy=4)),
    "encryption by NULL": plain("ncclSetEncryption", None),
    "no encryption": plain("ncclSetEncryption", EncryptionConfig()),
    "encryption by other options": plain("ncclSetEncryption", EncryptionConfig(magic=1)),
    "encryption of no mode": plain("ncclSetEncryption", EncryptionConfig(mode=2)),
    "end of no group": plain("ncclGroupEnd"),
    "simulated end of no group": plain("ncclGroupSimulateEnd", None),
    "empty group": lambda nccl: group(nccl),
    "nested groups": lambda nccl: group(nccl, ("ncclGroupStart",), ("ncclGroupEnd",)),
    "group with a wrong call": lambda nccl: group(nccl, (*REDUCE, None, None)),
    "end after a wrong group": lambda nccl: (group(nccl, (*REDUCE, None, None)) + group(nccl) +
                                             [nccl.raw("ncclGroupEnd")]),
    "simulated group": lambda nccl: [
        nccl.raw("ncclGroupStart"),
        nccl.raw("ncclGroupSimulateEnd",
                 ctypes.byref(SimInfo(ctypes.sizeof(SimInfo), 0x74685283, 22809, -1.0))),
        nccl.raw("ncclGroupEnd")],
    "simulated inner group": lambda nccl: group(nccl, ("ncclGroupStart",),
                                                ("ncclGroupSimulateEnd", None)),
    "create with no ranks": plain("ncclCommInitRank", comm, 0, unique_id, 0),
    "create with a negative rank": plain("ncclCommInitRank", comm, 2, unique_id, -1),
    "create with rank = nranks": plain("ncclCommInitRank", comm, 2, unique_id, 2),
    "create into NULL": plain("ncclCommInitRank", None, 1, unique_id, 0),
    "create with an empty id": plain("ncclCommInitRank", comm, 1, UniqueId(), 0),
    "create all into NULL": plain("ncclCommInitAll", None, 2, None),
    "split NULL": plain("ncclCommSplit", None, 0, 0, comm, None),
    "shrink NULL": plain("ncclCommShrink", None, number, 1, comm, None, 0),
}


def outcome(nccl: Library, call: Callable[[Library], list[int]]) -> list[int]:
    """Returns the codes of the calls, made in a child process."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        codes = call(nccl)
        os.write(write_end, ",".join(map(str, codes)).encode())
        os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end) as stream:
        text = stream.read()
    os.waitpid(child, 0)
    return [int(code) for code in text.split(",")] if text else [CRASHED]


def main() -> int:
    """Compares codes and the beginnings of the strings."""
    if len(sys.argv) < 3:
        print("SKIPPED: there is no libnccl.so.2 of NVIDIA here to compare with; NCCL_HOME names its "
              "folder when the build directory is set up")
        return SKIPPED
    ours, reference = Library(sys.argv[1]), Library(sys.argv[2])
    problems, compared = [], 0
    for name, call in CALLS.items():
        mine, theirs = outcome(ours, call), outcome(reference, call)
        if CRASHED in mine:
            problems.append(f"{name}: it crashes")
        if NO_DEVICE in theirs or CRASHED in theirs:
            print(f"not compared: {name}: the reference "
                  f"{'crashes' if CRASHED in theirs else 'needs a device'}; ours is {mine}")
            continue
        compared += 1
        if mine != theirs:
            problems.append(f"{name}: ours is {mine}, the reference is {theirs}")
    for code in (-1, *range(8), 9, 100):
        mine, theirs = ours.error_string(code), reference.error_string(code)
        if theirs.split(" (")[0].split(" - ")[0] != mine:
            problems.append(f"string of {code}: ours is {mine!r}, the reference is {theirs!r}")
    if compared < 30:
        problems.append(f"the reference answered only {compared} calls")
    print("\n".join(problems) or f"{compared} calls have the same codes")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
