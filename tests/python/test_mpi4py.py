"""The same program on mpi4py and on whorl: the results of every operation are equal, element by element."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

HERE = Path(__file__).resolve().parent
SIZE = 3
LIBRARY = "libmpich.so.12"


def under_mpich(which: str, folder: Path) -> None:
    """Runs operations.py on ranks of MPICH, which mpi4py's wheels know as libmpi.so.12."""
    libraries = folder / "libraries"
    libraries.mkdir(exist_ok=True)
    link = libraries / "libmpi.so.12"
    if not link.exists():
        link.symlink_to(path_of(LIBRARY))
    environment = dict(os.environ, MPI4PY_MPIABI="mpich",
                       LD_LIBRARY_PATH=f"{libraries}:{os.environ.get('LD_LIBRARY_PATH', '')}")
    command = ["mpirun.mpich", "-np", str(SIZE), sys.executable, str(HERE / "operations.py"), which, str(folder)]
    answer = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=90, check=False)
    assert answer.returncode == 0, answer.stdout + answer.stderr


def path_of(name: str) -> str:
    """Returns the path of a library that the loader finds; skips the test where it finds none."""
    try:
        ctypes.CDLL(name)
    except OSError as error:
        pytest.skip(f"no MPICH: {error}")
    with open("/proc/self/maps") as maps:
        return next(line.split()[-1] for line in maps if name in line)


def test_results_of_mpi4py(tmp_path: Path) -> None:
    if importlib.util.find_spec("mpi4py") is None:
        pytest.skip("mpi4py is not installed (pip install mpi4py)")
    if shutil.which("mpirun.mpich") is None:
        pytest.skip("mpirun.mpich is not installed (Debian: mpich)")
    for which in ("mpi4py", "whorl"):
        under_mpich(which, tmp_path)
    compared = 0
    for rank in range(SIZE):
        theirs, ours = (np.load(tmp_path / f"{which}.{rank}.npz") for which in ("mpi4py", "whorl"))
        assert sorted(theirs.files) == sorted(ours.files)
        for name in theirs.files:
            np.testing.assert_array_equal(ours[name], theirs[name], err_msg=f"rank {rank}: {name}")
            compared += 1
    assert compared > 900
