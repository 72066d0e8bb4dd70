#!/usr/bin/env python3
"""Prints the places of NVIDIA's NCCL on this machine: three lines, empty where there is none.

The folder of nccl.h, the folder of cuda_runtime.h, the path of libnccl.so.2. NCCL_HOME and CUDA_HOME
are searched first, then the usual folders and the Python packages."""
import os
import pathlib
import site
import sysconfig

packages = [sysconfig.get_paths()["purelib"], *site.getsitepackages(), site.getusersitepackages()]
nvidia = [pathlib.Path(folder) / "nvidia" for folder in packages]
usual = [pathlib.Path(folder) for folder in ("/usr/local/cuda", "/usr/local", "/usr")]


def first(roots: list[pathlib.Path], *patterns: str) -> pathlib.Path | None:
    """Returns the first file below one of the roots."""
    for root in roots:
        for pattern in patterns:
            for found in sorted(root.glob(pattern)) if root.is_dir() else []:
                return found
    return None


def from_environment(name: str) -> list[pathlib.Path]:
    """Returns the folder that a variable names, if it is set."""
    return [pathlib.Path(os.environ[name])] if os.environ.get(name) else []


nccl = from_environment("NCCL_HOME") + [folder / "nccl" for folder in nvidia] + usual
cuda = from_environment("CUDA_HOME") + usual + [folder / "cuda_runtime" for folder in nvidia]
header = first(nccl, "include/nccl.h")
runtime = first(cuda, "include/cuda_runtime.h")
library = first(nccl, "lib/libnccl.so.2", "lib64/libnccl.so.2", "lib/*-linux-gnu/libnccl.so.2")
print(header.parent if header else "")
print(runtime.parent if runtime else "")
print(library or "")
