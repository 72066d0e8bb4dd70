"""The backend "whorl" of torch.distributed.

With the package installed, `torch.distributed.init_process_group("whorl")` works without an
import: torch loads it through the entry point `torch.backends`.
"""

from __future__ import annotations

import atexit
import glob
import os
from datetime import timedelta
from typing import Any


def _autoload() -> None:
    """Entry point `torch.backends`: torch calls it at the end of `import torch`. That may be the import
    below, so it comes first."""


# Streams of a device that share one of its queues wait for each other, and those of a group wait for
# other ranks. Read when the program first uses a device.
os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

if not dist.is_available():
    raise ImportError("whorl_torch: this build of torch has no torch.distributed")

from whorl_torch import _C  # noqa: E402  # needs the libraries that torch has loaded
from whorl_torch.memory import begin_if_asked, in_shared_memory, shared_memory  # noqa: E402

ProcessGroupWhorl = _C.ProcessGroupWhorl
Options = _C.ProcessGroupWhorl.Options

__all__ = ["Options", "ProcessGroupWhorl", "in_shared_memory", "library_version", "shared_memory"]

BACKEND = "whorl"


def library_version() -> str:
    """Version of the libwhorl that is loaded."""
    return _C.library_version()


def _world() -> ProcessGroupWhorl | None:
    """Returns the backend whorl of the default group, if there is one."""
    world = dist.group.WORLD
    for device in [] if world is None else world._device_types:
        backend = world._get_backend(device)
        if isinstance(backend, ProcessGroupWhorl):
            return backend
    return None


def _create(group: Any, options: Any) -> ProcessGroupWhorl:
    """Called by torch for each new process group of this backend."""
    # torch passes on options of other backends: those that it makes for NCCL, if that comes first in
    # "cuda:nccl,cpu:whorl", and those that the program gives for another device of the group.
    foreign = isinstance(options, Options.__base__) and not isinstance(options, Options)
    given = Options() if options is None or foreign else options
    if not isinstance(given, Options):
        raise TypeError(
            f"the backend whorl takes pg_options of type whorl_torch.Options, not {type(given)}"
        )
    # Options without a timeout of their own take the one of init_process_group() or new_group(). A
    # copy, for the same object may be given for several groups.
    own = given._timeout != Options()._timeout
    timeout = given._timeout if own else timedelta(seconds=group.timeout.total_seconds())
    if timeout < timedelta(milliseconds=1):
        raise ValueError(
            f"the timeout of a process group is {timeout.total_seconds()} s, as torch passes it on; it must be 1 ms "
            f"at least (torch cannot pass on timedelta.max: say timedelta(days=365))"
        )
    options = Options(timeout, eager=given.eager)
    options._name = group.group_id
    for field, value in (("group_name", group.group_id),
                         ("global_ranks_in_group", group.global_ranks_in_group)):
        if hasattr(options, field):
            setattr(options, field, value)
    return ProcessGroupWhorl(group.store, group.group_rank, group.group_size, options, _world())


# Files that tell of devices of torch's "cuda". With CUDA: a GPU, one on a board of NVIDIA, and a driver under
# WSL, which has /dev/dxg for GPUs of all vendors.
_CUDA_FILES = ("/dev/nvidia[0-9]*", "/dev/nvhost-gpu", "/usr/lib/wsl/lib/libcuda.so.1")
_HIP_FILES = ("/dev/kfd",)


def _has_cuda() -> bool:
    """Whether this torch and this machine have devices. Does not ask the driver, which cannot be used in
    children of fork() once it has been asked, and this runs in every `import torch`."""
    if not torch.backends.cuda.is_built():
        return False
    by_management_library = getattr(torch.cuda, "_device_count_nvml", lambda: -1)()
    if by_management_library >= 0:
        return by_management_library > 0
    return any(glob.glob(pattern) for pattern in (_HIP_FILES if torch.version.hip else _CUDA_FILES))


def _devices() -> list[str]:
    """What the name on its own stands for. Programs take a device of the group for one that this
    torch and this machine have; "cpu:whorl,cuda:whorl" says it in any case."""
    return ["cpu", "cuda"] if _has_cuda() else ["cpu"]


def _register() -> None:
    if BACKEND in dist.Backend.backend_list:
        return
    # On its own the name stands for all devices of a group, but it is the default of none.
    defaults = dict(dist.Backend.default_device_backend_map)
    dist.Backend.register_backend(BACKEND, _create, extended_api=True, devices=_devices())
    dist.Backend.default_device_backend_map.clear()
    dist.Backend.default_device_backend_map.update(defaults)
    atexit.register(_C.shut_down_all)


_register()
begin_if_asked()
