"""Newest MPI libraries from PyPI's wheels, each in an environment of its own.

They run the programs that were linked with Debian's libraries: Open MPI 5 has the binary interface of Open MPI 4, and
MPICH 5 and Intel MPI have that of MPICH 4, under another file name.
"""
import pathlib
import subprocess
import sys

import machine
from machine import Failure


class Wheel:
    """Library of one wheel below `folder`. `libraries`: its folders with libraries, below lib."""

    def __init__(self, package, folder, libraries=(".",), stands_for=None):
        self.package, self.home = package, pathlib.Path(folder) / package
        self.libraries, self.stands_for = libraries, stands_for

    def program(self, name):
        return self.home / "bin" / name

    @property
    def variables(self):
        paths = [self.home / "lib" / part for part in self.libraries]
        return {"LD_LIBRARY_PATH": ":".join(map(str, [*([self.links] if self.stands_for else []), *paths]))}

    @property
    def links(self):
        return self.home / "links"

    def install(self, say):
        """Makes the environment, unless it is there."""
        done = self.home / "complete"
        if done.exists():
            return
        say(f"installing the wheel {self.package} in {self.home}")
        for line in ([sys.executable, "-m", "venv", "--clear", self.home],
                     [self.program("pip"), "install", "--quiet", self.package]):
            made = subprocess.run(line, capture_output=True, text=True, check=False)
            if made.returncode != 0:
                raise Failure(f"its wheel cannot be installed: {machine.first_line(made.stderr)}")
        if self.stands_for:
            self.links.mkdir()
            (self.links / self.stands_for).symlink_to(self.home / "lib/libmpi.so.12")
        done.touch()
