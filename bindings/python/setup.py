"""Builds the package: writes the declarations of the C API from its headers (declarations.py), and copies libwhorl
(../libwhorl.py) into it. Nothing is compiled, so one wheel serves every version of Python."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:  # setuptools before 70
    from wheel.bdist_wheel import bdist_wheel

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
from libwhorl import LIBRARY, ROOT, find_or_build  # noqa: E402

from declarations import write_module  # noqa: E402


class Build(build_py):
    """Adds the two files that are made."""

    def run(self) -> None:
        super().run()
        folder = HERE / "whorl" if getattr(self, "editable_mode", False) else Path(self.build_lib) / "whorl"
        folder.mkdir(parents=True, exist_ok=True)
        write_module(ROOT / "include" / "whorl", folder / "_capi.py")
        library = find_or_build(HERE / "build" / "whorl", "whorl")
        shutil.copyfile(library.resolve(), folder / LIBRARY)


class Wheel(bdist_wheel):
    """Says that the wheel is for one kind of machine, and any Python."""

    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", super().get_tag()[2]


class WithLibrary(Distribution):
    """Distribution for one kind of machine, though setuptools compiles nothing."""

    def has_ext_modules(self) -> bool:
        return True


setup(cmdclass={"build_py": Build, "bdist_wheel": Wheel}, distclass=WithLibrary)
