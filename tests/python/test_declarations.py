"""The declarations of the package are those of the headers: names, and the layout of structures for a compiler."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from whorl._library import ffi, lib

INCLUDE = Path(__file__).resolve().parents[2] / "include"
HEADERS = [(INCLUDE / "whorl" / name).read_text(encoding="utf-8") for name in ("types.h", "whorl.h")]
STRUCTURES = ("whorlConfig_t", "whorlUniqueId", "whorlSimInfo_t", "whorlStore_t", "whorlOob_t")


def test_every_function_is_declared_and_exported() -> None:
    names = re.findall(r"^WHORL_API [^(]*?(whorl\w+)\(", HEADERS[1], re.M)
    assert len(names) > 60
    for name in names:
        assert getattr(lib, name) != ffi.NULL, name


def test_every_enumerator_is_declared() -> None:
    names = re.findall(r"^  (whorl\w+) = ", "".join(HEADERS), re.M)
    assert len(names) > 60
    for name in names:
        assert isinstance(getattr(lib, name), int), name


def compiles(source: Path, text: str) -> None:
    """Fails unless a C compiler, if there is one, takes the text."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("there is no C compiler")
    source.write_text(text)
    answer = subprocess.run([compiler, "-std=c11", "-w", f"-I{INCLUDE}", "-fsyntax-only", str(source)],
                            capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr


def test_layout_and_constants_are_those_of_the_compiler(tmp_path: Path) -> None:
    facts = []
    for structure in STRUCTURES:
        facts.append((f"sizeof({structure})", ffi.sizeof(structure)))
        facts += [(f"offsetof({structure}, {field})", ffi.offsetof(structure, field))
                  for field, _ in ffi.typeof(structure).fields]
    numbers = re.findall(r"^#define (WHORL_\w+) +\(?-?\d\w*\)?(?: *///<.*)?$", HEADERS[0], re.M)
    assert "WHORL_SPLIT_NOCOLOR" in numbers and "WHORL_CONFIG_MAGIC" in numbers
    names = [*numbers, "WHORL_VERSION_CODE", "WHORL_RELEASE_CODE"]
    names += re.findall(r"^  (whorl\w+) = ", "".join(HEADERS), re.M)
    facts += [(name, getattr(lib, name)) for name in names]
    compiles(tmp_path / "facts.c", '#include "whorl/whorl.h"\n' + "\n".join(
        f'_Static_assert((long long)({fact}) == {value}, "{fact}");' for fact, value in facts))


def test_prototypes_are_those_of_the_header(tmp_path: Path) -> None:
    """Declares every function again as cffi understood it, which drops `const`; a compiler refuses what conflicts."""
    lines = ["#include <limits.h>", "#include <stddef.h>", "#include <stdint.h>", "#define const",
             '#include "whorl/whorl.h"']
    for name in re.findall(r"^WHORL_API [^(]*?(whorl\w+)\(", HEADERS[1], re.M):
        kind = ffi.typeof(ffi.addressof(lib, name))
        arguments = ", ".join(ffi.getctype(argument) for argument in kind.args) or "void"
        lines.append(f"{ffi.getctype(kind.result)} {name}({arguments});")
    compiles(tmp_path / "prototypes.c", "\n".join(lines) + "\n")
