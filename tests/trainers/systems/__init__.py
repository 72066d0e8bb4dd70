"""Systems under test, one module each."""
from __future__ import annotations

import importlib
import pathlib

from case import Case


def all_cases() -> dict[str, Case]:
    """Returns every case of every module here, by name, in a fixed order."""
    cases: dict[str, Case] = {}
    for path in sorted(pathlib.Path(__file__).parent.glob("[a-z]*.py")):
        for case in importlib.import_module(f"systems.{path.stem}").CASES:
            if case.name in cases:
                raise ValueError(f"two cases are named {case.name}")
            cases[case.name] = case
    return cases
