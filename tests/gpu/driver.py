"""The CUDA driver through ctypes: memory, streams, events and graphs of device 0."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

Handle = ctypes.c_void_p
Address = ctypes.c_uint64

_FUNCTIONS: dict[str, list[Any]] = {
    "cuInit": [ctypes.c_uint],
    "cuDevicePrimaryCtxRetain": [ctypes.POINTER(Handle), ctypes.c_int],
    "cuCtxSetCurrent": [Handle],
    "cuCtxSynchronize": [],
    "cuMemAlloc_v2": [ctypes.POINTER(Address), ctypes.c_size_t],
    "cuMemFree_v2": [Address],
    "cuMemcpyAsync": [Address, Address, ctypes.c_size_t, Handle],
    "cuStreamCreate": [ctypes.POINTER(Handle), ctypes.c_uint],
    "cuStreamDestroy_v2": [Handle],
    "cuStreamSynchronize": [Handle],
    "cuStreamWaitEvent": [Handle, Handle, ctypes.c_uint],
    "cuStreamBeginCapture_v2": [Handle, ctypes.c_int],
    "cuStreamEndCapture": [Handle, ctypes.POINTER(Handle)],
    "cuEventCreate": [ctypes.POINTER(Handle), ctypes.c_uint],
    "cuEventRecord": [Handle, Handle],
    "cuEventDestroy_v2": [Handle],
    "cuGraphInstantiateWithFlags": [ctypes.POINTER(Handle), Handle, ctypes.c_ulonglong],
    "cuGraphLaunch": [Handle, Handle],
    "cuGraphExecDestroy": [Handle],
    "cuGraphDestroy": [Handle],
}


class Driver:
    """Functions of the driver by their names; a call that fails raises."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libcuda.so.1")
        self.cuInit(0)
        self._context = Handle()
        self.cuDevicePrimaryCtxRetain(ctypes.byref(self._context), 0)
        self.enter()

    def __getattr__(self, name: str) -> Any:
        if name not in _FUNCTIONS:
            raise AttributeError(name)
        function = getattr(self._library, name)
        function.argtypes = _FUNCTIONS[name]

        def call(*arguments: Any) -> None:
            code = function(*arguments)
            if code != 0:
                raise RuntimeError(f"{name} failed with {code}")

        return call

    def enter(self) -> None:
        """Makes the device current on the calling thread."""
        self.cuCtxSetCurrent(self._context)

    def stream(self) -> Handle:
        """Makes a stream that the default stream does not order."""
        stream = Handle()
        self.cuStreamCreate(ctypes.byref(stream), 1)
        return stream

    @contextmanager
    def event(self, stream: Handle) -> Iterator[Handle]:
        """Records an event in a stream."""
        event = Handle()
        self.cuEventCreate(ctypes.byref(event), 2)
        self.cuEventRecord(event, stream)
        yield event
        self.cuEventDestroy_v2(event)


class Buffer:
    """Memory of the device, `offset` bytes into an allocation of its own."""

    def __init__(self, driver: Driver, size: int, offset: int = 0) -> None:
        self._driver, self._base, self.size = driver, Address(), size
        driver.cuMemAlloc_v2(ctypes.byref(self._base), max(size + offset, 1))
        self.address = self._base.value + offset

    def free(self) -> None:
        self._driver.cuMemFree_v2(self._base)
