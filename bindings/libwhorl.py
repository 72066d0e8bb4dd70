"""Finds libwhorl for a package that contains a copy of it, or builds it, and says how packages are distributed. Used by
the setup.py of each package.

libwhorl comes from WHORL_ROOT (an installation prefix or a build directory of this repository), else from pkg-config,
else it is built here with meson, with kernels for devices only if WHORL_WITH_CUDA=1.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from setuptools import Distribution

ROOT = Path(__file__).resolve().parents[1]
LIBRARY = "libwhorl.so.0"
PLACES = ("lib", "lib64", "lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu", "src", ".")


class Package(Distribution):
    """Distribution of a package. What is made on the way goes to the folder of setup.py, where the next build finds it,
    or to a temporary one if that folder may not be written."""

    def __init__(self, attrs: dict | None = None) -> None:
        super().__init__(attrs)
        if not os.access(".", os.W_OK):
            self.scratch = tempfile.TemporaryDirectory()
            for command, option in (("build", "build_base"), ("egg_info", "egg_base")):
                self.get_option_dict(command)[option] = ("libwhorl.py", self.scratch.name)


def under(prefix: Path, name: str = LIBRARY, places: tuple[str, ...] = PLACES) -> Path | None:
    """Returns a library below an installation prefix or a build directory."""
    for place in places:
        candidate = prefix / place / name
        if candidate.exists():
            return candidate
    return None


def from_environment(name: str = LIBRARY, places: tuple[str, ...] = PLACES) -> Path | None:
    """Returns a library of WHORL_ROOT, if that is set."""
    prefix = os.environ.get("WHORL_ROOT")
    if not prefix:
        return None
    library = under(Path(prefix), name, places)
    if library is None:
        sys.exit(f"WHORL_ROOT is {prefix}, but there is no {name} in {', '.join(places)} below it")
    return library


def from_pkg_config() -> Path | None:
    """Returns the library that pkg-config knows."""
    if not shutil.which("pkg-config"):
        return None
    answer = subprocess.run(
        ["pkg-config", "--variable=libdir", "whorl"], capture_output=True, text=True, check=False
    )
    library = Path(answer.stdout.strip()) / LIBRARY
    return library if answer.returncode == 0 and library.exists() else None


def built_here(folder: Path, package: str) -> Path:
    """Builds the library in `folder` for `package`, and returns it."""
    for tool in ("meson", "ninja"):
        if not shutil.which(tool):
            sys.exit(
                f"{package}: no libwhorl was found and {tool}, which builds it, is missing; "
                "install it, or set WHORL_ROOT to an installation of whorl"
            )
    cuda = "enabled" if os.environ.get("WHORL_WITH_CUDA") == "1" else "disabled"
    command = (
        ["configure", str(folder)] if (folder / "build.ninja").exists()
        else ["setup", str(folder), str(ROOT), "--buildtype=release", "-Dtests=disabled", "-Dperf=disabled"]
    )
    subprocess.run(["meson", *command, f"-Dcuda={cuda}"], check=True)
    name = "src/libwhorl.so"
    targets = subprocess.run(
        ["ninja", "-C", str(folder), "-t", "targets", "all"],
        capture_output=True, text=True, check=True,
    ).stdout
    real = next(
        line.split(":")[0]
        for line in targets.splitlines()
        if line.startswith(name) and line.split(":")[1].strip() == "cpp_LINKER"
    )
    subprocess.run(["ninja", "-C", str(folder), real], check=True)
    library = under(folder)
    if library is None:
        sys.exit(f"{package}: meson did not make {LIBRARY} in {folder}")
    return library


def find_or_build(folder: Path, package: str) -> Path:
    """Returns the library that `package` is to contain; `folder` is for a build."""
    return from_environment() or from_pkg_config() or built_here(folder, package)
