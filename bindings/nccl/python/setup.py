"""Copies libnccl.so.2 and libwhorl.so.0 from WHORL_ROOT into the package.

WHORL_ROOT is a build directory of this repository or an installation prefix. In the package both libraries are in one
folder, where libnccl.so.2 finds the other by its rpath.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from any_python import Wheel, WithLibrary  # noqa: E402
from libwhorl import LIBRARY, PLACES, from_environment  # noqa: E402

NCCL = "libnccl.so.2"
PLACES_OF = {LIBRARY: PLACES, NCCL: ("bindings/nccl", *(f"{place}/whorl/nccl" for place in PLACES))}


class Build(build_py):
    """Adds the libraries to the package."""

    def run(self) -> None:
        super().run()
        if not shutil.which("chrpath"):
            sys.exit("whorl-nccl: chrpath is missing; install it (Debian: apt-get install chrpath)")
        folder = Path(self.build_lib) / "whorl_nccl"
        for name, places in PLACES_OF.items():
            library = from_environment(name, places)
            if library is None:
                sys.exit("whorl-nccl: set WHORL_ROOT to an installation or a build directory of whorl")
            shutil.copyfile(library.resolve(), folder / name)
        subprocess.run(["chrpath", "--replace", "$ORIGIN", str(folder / NCCL)], check=True)


setup(cmdclass={"build_py": Build, "bdist_wheel": Wheel}, distclass=WithLibrary)
