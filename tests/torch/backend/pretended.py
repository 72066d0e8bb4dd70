"""Tensors of a pretended CUDA device, for a torch without CUDA: builds pretended_cuda.cc beside this
file against the driver that the build has made for the tests of the library."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import pytest
import torch

HERE = Path(__file__).resolve().parent
BUILD = HERE.parents[2] / "build"
NAME = "pretended_cuda"


def driver() -> Path | None:
    """libcuda.so.1 of the tests; the environment names it when meson runs them."""
    named = os.environ.get("WHORL_FAKE_CUDA")
    candidates = [Path(named)] if named else sorted(
        BUILD.glob("*/tests/support/fake_cuda/libcuda.so.1"))
    return next((path for path in candidates if path.exists()), None)


def build() -> str:
    """The path of the module; skips the test where it cannot be."""
    if torch.version.cuda is not None:
        pytest.skip("this torch has CUDA; the pretended device is for one that has not")
    library = driver()
    if library is None:
        pytest.skip("this build has no pretended CUDA driver (it is made where nvcc is found)")
    from torch.utils import cpp_extension

    if not cpp_extension.is_ninja_available():
        pytest.skip("ninja, which builds the extension of the pretended device, is not there")
    folder = BUILD / "torch-pretended"
    folder.mkdir(parents=True, exist_ok=True)
    cpp_extension.load(
        NAME, [str(HERE / f"{NAME}.cc")], build_directory=str(folder), is_python_module=False,
        extra_cflags=["-std=c++20", "-O1"],
        extra_ldflags=[str(library), f"-Wl,-rpath,{library.parent}"])
    return str(folder / f"{NAME}.so")


def load(path: str) -> ModuleType:
    """In a rank, before it communicates."""
    if NAME not in sys.modules:
        spec = importlib.util.spec_from_file_location(NAME, path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        sys.modules[NAME] = module
        torch.cuda.get_device_capability = lambda device=None: (9, 0)  # torch.distributed asks
    return sys.modules[NAME]


@contextmanager
def stream(cuda: ModuleType) -> Iterator[int]:
    """A new stream as the current one."""
    number = cuda.new_stream()
    before = cuda.set_stream(number)
    try:
        yield number
    finally:
        cuda.set_stream(before)
