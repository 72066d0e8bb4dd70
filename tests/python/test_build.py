"""Packages, built from a folder that may not be written, as a system's or another user's copy of the sources."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import whorl
from run_tests import copy_sources


@pytest.mark.parametrize("name", ["python", "torch"])
def test_from_a_folder_that_may_not_be_written(tmp_path: Path, name: str) -> None:
    environment = dict(os.environ, WHORL_ROOT=str(Path(whorl.__file__).parent))
    if name == "torch":
        pytest.importorskip("torch")
        # The compiler compiles nothing, which would take minutes.
        environment |= {"CC": "true", "CXX": "true", "TORCH_DONT_CHECK_COMPILER_ABI": "1"}
    package = copy_sources(tmp_path / "sources", name)
    wheels = tmp_path / "wheels"
    build = [sys.executable, "-m", "pip", "wheel", "-q", "--disable-pip-version-check", "--no-build-isolation",
             "--no-deps", "--no-index", "-w", str(wheels), str(package)]
    for folder in (package, *filter(Path.is_dir, package.rglob("*"))):
        folder.chmod(0o555)
    if os.access(package, os.W_OK):  # root may write everywhere but on a file system that nobody may write
        mounts = 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0"'
        if subprocess.run(["unshare", "-m", "sh", "-c", mounts, str(package)], check=False).returncode != 0:
            pytest.skip("this user may write everywhere, and may not mount")
        build = ["unshare", "-m", "sh", "-c", mounts + ' && exec "$@"', str(package), *build]
    answer = subprocess.run(build, env=environment, capture_output=True, text=True, check=False)
    for folder in (package, *filter(Path.is_dir, package.rglob("*"))):
        folder.chmod(0o755)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert len(list(wheels.glob("whorl*.whl"))) == 1
