"""Builds the package: writes the declarations of the C API from its headers (declarations.py), and copies libwhorl
(../libwhorl.py) into it. Nothing is compiled, so one wheel serves every version of Python."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
from any_python import Wheel, WithLibrary  # noqa: E402
from libwhorl import LIBRARY, ROOT, find_or_build  # noqa: E402

from declarations import write_module  # noqa: E402


class Build(build_py):
    """Adds the two files that are made."""

    def run(self) -> None:
        super().run()
        folder = HERE / "whorl" if getattr(self, "editable_mode", False) else Path(self.build_lib) / "whorl"
        folder.mkdir(parents=True, exist_ok=True)
        write_module(ROOT / "include" / "whorl", folder / "_capi.py")
        built = Path(self.get_finalized_command("build").build_base).resolve()
        library = find_or_build(built / "whorl", "whorl")
        shutil.copyfile(library.resolve(), folder / LIBRARY)


setup(cmdclass={"build_py": Build, "bdist_wheel": Wheel}, distclass=WithLibrary)
