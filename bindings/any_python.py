"""Makes wheels that contain a library and serve every version of Python. Used by the setup.py of packages in which
nothing is compiled for Python."""

from __future__ import annotations

import os
import tempfile

from setuptools import Distribution

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:  # setuptools before 70
    from wheel.bdist_wheel import bdist_wheel


class Wheel(bdist_wheel):
    """Wheel for one kind of machine, and any Python."""

    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", super().get_tag()[2]


class WithLibrary(Distribution):
    """Distribution for one kind of machine, though setuptools compiles nothing. What is made on the way goes to the
    folder of setup.py, where the next build finds it, or to a temporary one if that folder may not be written."""

    def __init__(self, attrs: dict | None = None) -> None:
        super().__init__(attrs)
        if not os.access(".", os.W_OK):
            self.scratch = tempfile.TemporaryDirectory()
            for command, option in (("build", "build_base"), ("egg_info", "egg_base")):
                self.get_option_dict(command)[option] = ("any_python.py", self.scratch.name)

    def has_ext_modules(self) -> bool:
        return True
