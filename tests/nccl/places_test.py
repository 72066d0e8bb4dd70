#!/usr/bin/env python3
"""usage: places_test.py LIBRARY DRIVER [late]: tests calls with device memory and streams.

DRIVER is a library that stands for libcuda.so.1, see fake_driver.c. With "late" it is loaded only after the
communicator has been made and used."""
import ctypes
import sys

from pynccl import Comm, Library, UniqueId
from rank import INVALID_ARGUMENT, expect, fails

UNHANDLED_CUDA_ERROR = 1


def load_driver() -> ctypes.CDLL:
    """Makes this process one that uses a device."""
    driver = ctypes.CDLL(sys.argv[2])
    driver.fakeSetDeviceMemory.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return driver


def main() -> None:
    """Tests with one rank, which is enough."""
    late = sys.argv[3:] == ["late"]
    if not late:
        driver = load_driver()
    nccl, comm, unique_id = Library(sys.argv[1]), Comm(), UniqueId()
    nccl.ncclGetUniqueId(ctypes.byref(unique_id))
    nccl.ncclCommInitRank(ctypes.byref(comm), 1, unique_id, 0)

    host, device = (ctypes.c_float * 4)(1, 2, 3, 4), (ctypes.c_float * 4)()
    out = (ctypes.c_float * 4)()

    def reduce(source: object, target: object, stream: int | None = None) -> None:
        nccl.ncclAllReduce(source, target, 4, 7, 0, comm, stream)

    reduce(host, out)
    expect(list(out), [1, 2, 3, 4], "host memory")
    if late:
        driver = load_driver()
    expect(driver.fakeSynchronized(), 0, "without a context there is nothing to wait for")

    driver.fakeSetDeviceMemory(device, ctypes.sizeof(device), 0)
    fails(INVALID_ARGUMENT, lambda: reduce(device, out), "ncclAllReduce", "sendbuff", "device")
    fails(INVALID_ARGUMENT, lambda: reduce(host, device), "recvbuff")
    handle = ctypes.c_void_p()
    fails(INVALID_ARGUMENT, lambda: nccl.ncclCommRegister(comm, device, 16, ctypes.byref(handle)),
          "device")
    op = ctypes.c_int()
    fails(INVALID_ARGUMENT, lambda: nccl.ncclRedOpCreatePreMulSum(ctypes.byref(op), device, 7, 0,
                                                                  comm), "scalar")
    out[0] = 9
    nccl.ncclGroupStart()
    reduce(host, out)
    fails(INVALID_ARGUMENT, lambda: reduce(device, out))
    fails(INVALID_ARGUMENT, nccl.ncclGroupEnd, "ncclAllReduce", "sendbuff")
    expect(out[0], 9, "a group with a wrong call issues nothing")

    driver.fakeSetDeviceMemory(device, ctypes.sizeof(device), 1)
    reduce(host, device)
    expect(list(device), [1, 2, 3, 4], "managed memory counts as the host's")

    driver.fakeSetPointerError(700)  # an illegal address: the device is lost
    fails(INVALID_ARGUMENT, lambda: reduce(device, out), "sendbuff", "device")
    driver.fakeSetPointerError(3)  # not initialised
    reduce(host, out)
    driver.fakeSetPointerError(0)

    driver.fakeSetStreams(1, 0)
    reduce(host, out, 1)
    expect(driver.fakeSynchronized(), 1, "an operation waits for its stream")
    driver.fakeSetStreams(1, 900)
    fails(UNHANDLED_CUDA_ERROR, lambda: reduce(host, out, 1), "900", "captured")
    driver.fakeSetStreams(0, 0)
    reduce(host, out)
    expect(list(out), [1, 2, 3, 4], "afterwards")
    nccl.ncclCommDestroy(comm)
    print("ok")


if __name__ == "__main__":
    main()
