"""Makes wheels that contain a library and serve every version of Python. Used by the setup.py of packages in which
nothing is compiled for Python."""

from __future__ import annotations

from libwhorl import Package

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:  # setuptools before 70
    from wheel.bdist_wheel import bdist_wheel


class Wheel(bdist_wheel):
    """Wheel for one kind of machine, and any Python."""

    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", super().get_tag()[2]


class WithLibrary(Package):
    """Distribution for one kind of machine, though setuptools compiles nothing."""

    def has_ext_modules(self) -> bool:
        return True
