"""Imports of torch and of the backend, each in a Python of its own."""

from __future__ import annotations

import fnmatch
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

import whorl_torch


@pytest.mark.parametrize("imports", ["torch", "whorl_torch", "torch, whorl_torch"])
def test_imports(imports: str) -> None:
    """In any order, and without an import of its own."""
    program = f"import {imports}, torch.distributed as dist; assert 'whorl' in dist.Backend.backend_list"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=80)


def test_the_driver_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver that an import has initialised is of no use in children of fork()."""
    def asked() -> int:
        raise AssertionError("the driver was asked for its devices")

    monkeypatch.setattr(torch.cuda, "_is_compiled", lambda: True)
    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: True)
    monkeypatch.setattr(torch._C, "_cuda_getDeviceCount", asked, raising=False)
    cuda, hip = None, "6.4"
    for kind, by_nvml, file, expected in (
            (cuda, -1, "/dev/null", False), (cuda, -1, "/dev/nvidia0", True), (cuda, -1, "/dev/nvhost-gpu", True),
            (cuda, -1, "/usr/lib/wsl/lib/libcuda.so.1", True), (cuda, -1, "/dev/dxg", False),
            (cuda, -1, "/dev/kfd", False), (hip, -1, "/dev/kfd", True), (hip, -1, "/dev/nvidia0", False),
            (cuda, 0, "/dev/nvidia0", False), (cuda, 2, "/dev/null", True)):
        monkeypatch.setattr(torch.version, "hip", kind)
        monkeypatch.setattr(torch.cuda, "_device_count_nvml", lambda number=by_nvml: number)
        monkeypatch.setattr(whorl_torch, "glob", SimpleNamespace(
            glob=lambda pattern, only=file: fnmatch.filter([only], pattern)))
        assert whorl_torch._devices() == (["cpu", "cuda"] if expected else ["cpu"]), (kind, by_nvml, file)
