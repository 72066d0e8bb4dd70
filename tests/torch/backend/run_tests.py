#!/usr/bin/env python3
"""Runs the tests beside this file with a Python that has torch and whorl_torch: the one that
WHORL_TORCH_PYTHON names, that of build/venv, or this one. Exits with 77, which meson counts as
skipped, and says why where there is none. Arguments go to pytest."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
BUILD = HERE.parents[2] / "build"
NEEDED = "import torch, pytest, whorl_torch"


def candidates() -> list[str]:
    named = os.environ.get("WHORL_TORCH_PYTHON")
    if named:
        return [named]
    local = BUILD / "venv" / "bin" / "python"
    return ([str(local)] if local.exists() else []) + [sys.executable]


def main() -> int:
    reasons = []
    for python in candidates():
        probe = subprocess.run([python, "-c", NEEDED], capture_output=True, text=True, check=False)
        if probe.returncode == 0:
            environment = dict(os.environ, OMP_NUM_THREADS="1")
            command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *sys.argv[1:]]
            return subprocess.run(command, cwd=HERE, env=environment, check=False).returncode
        reasons.append(f"{python}: {(probe.stderr.strip() or 'failed').splitlines()[-1]}")
    missing = BUILD / "venv-missing"
    if missing.exists():
        reasons.append(missing.read_text(encoding="utf-8").strip())
    print("skipped: no Python with torch, pytest and whorl_torch (pip install ./bindings/torch): "
          + "; ".join(reasons))
    return 77


if __name__ == "__main__":
    sys.exit(main())
