"""Tensors of PyTorch, which come by DLPack; in a process of its own, since PyTorch is large."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys

import pytest

PROGRAM = """
import numpy, torch, whorl
comms = whorl.init_all(2)
for name in ("bfloat16", "float16", "float8_e4m3fn", "float8_e5m2", "bool", "int16", "uint16", "float64", "complex64"):
    dtype = getattr(torch, name)
    sent = [torch.ones(4).to(dtype) for _ in comms]
    got = [torch.zeros(4).to(dtype) for _ in comms]
    with whorl.group():
        for comm, send, recv in zip(comms, sent, got):
            comm.Allreduce(send, recv)
    expected = [1.0] * 4 if name == "bool" else [2.0] * 4
    assert all(tensor.to(torch.complex64).tolist() == expected for tensor in got), name
with whorl.group():
    arrays = [comm.allreduce(torch.arange(3.0)) for comm in comms]
assert [torch.from_dlpack(array).tolist() for array in arrays] == [[0.0, 2.0, 4.0]] * 2
for tensor, kind, text in (
    (torch.ones(3, requires_grad=True), TypeError, "require gradient"),
    (torch.ones(3, 3)[:, 1], ValueError, "not contiguous"),
    (torch.ones(3).to_sparse(), TypeError, "torch.strided"),
    (torch.ones(3, device="meta"), TypeError, "meta"),
    (torch._neg_view(torch.ones(3)), TypeError, "resolve_neg()"),
):
    try:
        comms[0].allreduce(tensor)
    except kind as error:
        assert "allreduce: array" in str(error) and text in str(error), error
    else:
        raise AssertionError(text)
print("done")
"""


def test_tensors() -> None:
    for module in ("torch", "ml_dtypes"):
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed")
    environment = dict(os.environ, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    answer = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True,
                            timeout=120, check=False)
    assert answer.returncode == 0 and answer.stdout == "done\n", answer.stdout + answer.stderr
