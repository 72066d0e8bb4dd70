#!/usr/bin/env python3
"""usage: run_tests.py BUILD [ARGS]: builds the package whorl with the library of a build directory, installs it there,
and runs the tests beside this file; ARGS go to pytest. The Python is that of build/venv, which `./run test` makes, or
this one. Where none has what is needed, says why and exits with 77, which meson counts as skipped."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
NEEDED = "import numpy, cffi, pytest, setuptools, wheel"


def find_python() -> str:
    """Returns a Python that has what is needed, or exits."""
    local, missing, reasons = ROOT / "build" / "venv" / "bin" / "python", ROOT / "build" / "venv-missing", []
    for python in ([str(local)] if local.exists() else []) + [sys.executable]:
        probe = subprocess.run([python, "-c", NEEDED], capture_output=True, text=True, check=False)
        if probe.returncode == 0:
            return python
        reasons.append(f"{python}: {(probe.stderr.strip() or 'failed').splitlines()[-1]}")
    if missing.exists():
        reasons.append(missing.read_text(encoding="utf-8").strip())
    print("skipped: no Python with numpy, cffi, pytest, setuptools and wheel: " + "; ".join(reasons))
    sys.exit(77)


def stamp_of(python: str, build: Path) -> str:
    """Returns a hash of what the installed package is made of."""
    package = ROOT / "bindings" / "python"
    paths = [*package.glob("*.*"), *package.glob("whorl/*.py*"), *package.parent.glob("*.py"),
             *(ROOT / "include" / "whorl").glob("*.h"), build / "src" / "libwhorl.so.0"]
    digest = hashlib.sha256(python.encode())
    for path in sorted(path for path in paths if path.is_file()):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()


def install(python: str, build: Path) -> Path:
    """Builds the wheel with the library of `build`, and returns the folder into which it is installed. Tests that run
    side by side share it."""
    folder = build / "python"
    with open(build / "python.lock", "a+", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.seek(0)
        stamp = stamp_of(python, build)
        if lock.read() != stamp:
            lock.truncate(0)
            install_with_pip(python, build, folder)
            lock.write(stamp)
    return folder


def copy_sources(folder: Path, package: str = "python") -> Path:
    """Copies what a wheel is made of, so that nothing is built in the source tree; returns the package's folder."""
    shutil.rmtree(folder, ignore_errors=True)
    made = shutil.ignore_patterns("build", "*.egg-info", "__pycache__", "_capi.py", "*.so*")
    for path in (f"bindings/{package}", "include/whorl"):
        shutil.copytree(ROOT / path, folder / path, ignore=made)
    for path in (ROOT / "bindings").glob("*.py"):
        shutil.copyfile(path, folder / "bindings" / path.name)
    return folder / "bindings" / package


def install_with_pip(python: str, build: Path, folder: Path) -> None:
    """Builds the wheel and installs it into a folder."""
    sources = copy_sources(build / "python-sources")
    shutil.rmtree(folder, ignore_errors=True)
    environment = dict(os.environ, WHORL_ROOT=str(build))
    for variable in ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE"):
        environment.pop(variable, None)
    command = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-build-isolation", "--no-deps",
               "--no-index", "--target", str(folder), str(sources)]
    answer = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        sys.exit(f"the package does not build: {answer.stdout}{answer.stderr}")


def main() -> int:
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    python = find_python()
    environment = dict(os.environ, PYTHONPATH=str(install(python, Path(sys.argv[1]).resolve())), OMP_NUM_THREADS="1",
                       OPENBLAS_NUM_THREADS="1")
    command = [python, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", *sys.argv[2:]]
    return subprocess.run(command, cwd=HERE, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
