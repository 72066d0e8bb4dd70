"""Imports of torch and of the backend, each in a Python of its own."""

from __future__ import annotations

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
    for by_nvml, files, expected in ((-1, [], False), (-1, ["/dev/nvidia0"], True), (0, ["/dev/nvidia0"], False),
                                     (2, [], True)):
        monkeypatch.setattr(torch.cuda, "_device_count_nvml", lambda number=by_nvml: number)
        monkeypatch.setattr(whorl_torch, "glob", SimpleNamespace(
            glob=lambda pattern, found=files: found if "nvidia" in pattern else []), raising=False)
        assert whorl_torch._devices() == (["cpu", "cuda"] if expected else ["cpu"])
