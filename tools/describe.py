#!/usr/bin/env python3
"""Runs a program of this project for its --help or --list where packages that it imports are missing.

usage: describe.py SCRIPT [ARGS]

A missing package of PACKAGES is replaced by a module in which every name exists and does nothing.
"""
import importlib.abc
import importlib.machinery
import importlib.util
import pathlib
import runpy
import sys
import types

PACKAGES = ("torch", "numpy", "sklearn", "accelerate", "lightning", "deepspeed")


class AnyName(type):
    """Metaclass of the names of a missing package: classes with every attribute, which can be
    called, subscripted and inherited from."""

    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Nothing

    def __getitem__(cls, key):
        return Nothing


class Nothing(metaclass=AnyName):
    def __init__(self, *args, **kwargs):
        pass

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Nothing

    def __call__(self, *args, **kwargs):
        return Nothing


class MissingModule(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Nothing


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finder of missing packages: the last one, so it finds only what the others have not found."""

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] not in PACKAGES:
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        return MissingModule(spec.name)

    def exec_module(self, module):
        pass


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    script = pathlib.Path(sys.argv[1]).resolve()
    sys.meta_path.append(Finder())
    sys.path[0] = str(script.parent)
    sys.argv = sys.argv[1:]
    runpy.run_path(str(script), run_name="__main__")


if __name__ == "__main__":
    main()
