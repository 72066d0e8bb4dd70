"""Copies libnccl.so.2 and libwhorl.so.0 from WHORL_ROOT into the package.

WHORL_ROOT is a build directory of this repository or an installation prefix. In the package both libraries are in one
folder, where libnccl.so.2 finds the other by its rpath.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py
from wheel.bdist_wheel import bdist_wheel

PREFIXES = ("lib", "lib64", "lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu")
PLACES = {
    "libnccl.so.2": ("bindings/nccl", *(f"{prefix}/whorl/nccl" for prefix in PREFIXES)),
    "libwhorl.so.0": ("src", *PREFIXES),
}


def find(root: Path, name: str) -> Path:
    """Returns a library below WHORL_ROOT."""
    for place in PLACES[name]:
        if (root / place / name).exists():
            return root / place / name
    sys.exit(f"WHORL_ROOT is {root}, but there is no {name} in {', '.join(PLACES[name])} below it")


class Build(build_py):
    """Adds the libraries to the package."""

    def run(self) -> None:
        super().run()
        if "WHORL_ROOT" not in os.environ:
            sys.exit("whorl-nccl: set WHORL_ROOT to an installation or a build directory of whorl")
        if not shutil.which("chrpath"):
            sys.exit("whorl-nccl: chrpath is missing; install it (Debian: apt-get install chrpath)")
        root = Path(os.environ["WHORL_ROOT"]).resolve()
        folder = Path(self.build_lib) / "whorl_nccl"
        for name in PLACES:
            shutil.copyfile(find(root, name).resolve(), folder / name)
        subprocess.run(["chrpath", "--replace", "$ORIGIN", str(folder / "libnccl.so.2")], check=True)


class Wheel(bdist_wheel):
    """Names a wheel of one platform, for every Python."""

    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", super().get_tag()[2]


class Binary(Distribution):
    """Says that the package belongs to a platform, though no extension is compiled."""

    def has_ext_modules(self) -> bool:
        return True


setup(cmdclass={"build_py": Build, "bdist_wheel": Wheel}, distclass=Binary)
