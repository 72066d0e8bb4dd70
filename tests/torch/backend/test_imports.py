"""Imports of torch and of the backend, each in a Python of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize("imports", ["torch", "whorl_torch", "torch, whorl_torch"])
def test_imports(imports: str) -> None:
    """In any order, and without an import of its own."""
    program = f"import {imports}, torch.distributed as dist; assert 'whorl' in dist.Backend.backend_list"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=80)
