"""Turns the headers of the C API into the declarations that cffi reads, when the package is built.

The package has no copy of the API: names, prototypes, structures and constants are those of
include/whorl/types.h and include/whorl/whorl.h.
"""

from __future__ import annotations

import re
from pathlib import Path

HEADERS = ("types.h", "whorl.h")
COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.S)
DIRECTIVE = re.compile(r"^[ \t]*#[^\n]*\n?", re.M)
GUARDED = re.compile(r"^#ifdef __cplusplus\n.*?^#endif\n", re.M | re.S)
DEFINE = re.compile(r"^#define (WHORL_\w+) (.+)$", re.M)
NUMBER = re.compile(r"-?(0x[0-9a-fA-F]+|\d+)")
# The size of an enumeration, which cffi cannot evaluate within another one.
SIZE_OF_ENUM = re.compile(r"sizeof\(whorl\w+_dummy_t\)")


def constants(text: str) -> dict[str, int]:
    """Returns the macros of a header that are whole numbers, without suffix and parentheses."""
    found = {}
    for name, value in DEFINE.findall(text):
        plain = value.strip().strip("()").rstrip("u")
        if NUMBER.fullmatch(plain):
            found[name] = int(plain, 0)
    return found


def declarations(folder: Path) -> str:
    """Returns the text for cffi's cdef() of the headers in `folder`."""
    text = COMMENT.sub("", "".join((folder / name).read_text(encoding="utf-8") for name in HEADERS))
    text = text.replace("\\\n", " ")
    numbers = constants(text)
    # NCCL's encoding of versions since 2.9; the headers compute it by a macro with arguments.
    numbers["WHORL_VERSION_CODE"] = (
        numbers["WHORL_MAJOR"] * 10000 + numbers["WHORL_MINOR"] * 100 + numbers["WHORL_PATCH"])
    numbers["WHORL_RELEASE_CODE"] = (
        numbers["WHORL_RELEASE_MAJOR"] * 10000 + numbers["WHORL_RELEASE_MINOR"] * 100
        + numbers["WHORL_RELEASE_PATCH"])
    text = DIRECTIVE.sub("", GUARDED.sub("", text))
    text = SIZE_OF_ENUM.sub("4", re.sub(r"\bWHORL_API\b", "", text))
    for name, value in numbers.items():
        text = re.sub(rf"\b{name}\b", str(value), text)
    lines = [f"#define {name} {value}" for name, value in sorted(numbers.items())]
    return "\n".join(lines) + "\n" + re.sub(r"\s*\n\s*", "\n", text)


def write_module(folder: Path, path: Path) -> None:
    """Writes the module with the declarations of the headers in `folder` to `path`."""
    import cffi

    builder = cffi.FFI()
    builder.cdef(declarations(folder))
    builder.set_source("whorl._capi", None)
    builder.emit_python_code(str(path))
