#!/usr/bin/env python3
"""usage: abi.py check|write CC...: compares the C interface of the public headers with the description of the last
release, or writes the description anew.

The description is that of a library which has all functions of the headers and does nothing. Compilers have checked
each function of the real library against its declaration, and tests/install/exported_names.py checks that the library
exports it. So the ABI is the same, and with debugging information this library is compiled in a moment."""
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
INCLUDE = HERE.parents[1] / "include"
MAP = HERE.parents[1] / "src/whorl.map"
MAY_CHANGE = HERE / "may_change.abignore"
# Numbers that each release, or each new constant, may change.
VARYING = re.compile(r"WHORL_(RELEASE_\w+|MAJOR|MINOR|PATCH|VERSION_CODE)|whorlNum(Types|Results)")
RENEW = "`ninja -C build/release abi-description` writes the description anew; docs/versioning.md says when"

INCLUDES = '#include "whorl/types.h"\n#include "whorl/whorl.h"\n#include "whorl/profiler.h"\n'
# Functions that bring types and constants into the description. libabigail reports neither a member of another type
# in a struct that may grow, nor another value of a constant where two constants have one.
USES = r"""
#define TYPE(name) void whorlType_##name(name* type) {}
#define MEMBER(name, member) void whorlMember_##name##_##member(__typeof__(((name*)0)->member)* type) {}
#define LAST(name, member) _Static_assert(sizeof(name) == offsetof(name, member) + sizeof(((name*)0)->member), \
  #name " may not end with padding, because older programs would not set members that come to be there");
#define CONSTANT(name) void whorlConstant_##name(enum constant_##name { value_##name = name } value) {}
"""


def run(*command, **options):
    """Runs a program, and ends the test as skipped where libabigail is absent."""
    try:
        return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, **options)
    except FileNotFoundError:
        if command[0] not in ("abidiff", "abidw"):
            raise
        print(f"skipped: there is no {command[0]} here; it is in Debian's abigail-tools")
        sys.exit(77)


def source(compiler, include):
    """Returns a C source that defines every function of the headers and uses every type and constant."""
    text = "".join(re.sub(r"//.*", "", (include / name).read_text(encoding="utf-8"))
                   for name in re.findall('"(.*)"', INCLUDES))
    macros = run(*compiler, "-E", "-dM", "-xc", f"-I{include}", "-", input=INCLUDES).stdout
    if "#define __LP64__ 1" not in macros:
        print("skipped: the description is for machines whose pointers and longs have 64 bits")
        sys.exit(77)
    lines = [f"{one} {{ __builtin_trap(); }}" for one in re.findall(r"^WHORL_API ([^;]*\([^;]*);", text, re.M)]
    lines += [f"{variable};" for variable in re.findall(r"^extern WHORL_API ([^;]*);", text, re.M)]
    lines += [f"TYPE({name})" for name in re.findall(r"\} (whorl\w+);", text)]
    for name in re.findall(r"\bname = (\w+)", MAY_CHANGE.read_text(encoding="utf-8")):
        members = re.findall(r"(\w+);", re.search(rf"typedef struct \{{([^}}]*)\}} {name};", text)[1])
        lines += [f"MEMBER({name}, {member})" for member in members] + [f"LAST({name}, {members[-1]})"]
    constants = re.findall(r"^#define (WHORL_\w+) (?:\(?-?(?:0x)?[0-9a-fA-F]+u?\)?|INT_MIN)$", macros, re.M)
    constants += re.findall(r"\b(whorl\w+) = ", text)
    lines += [f"CONSTANT({name})" for name in sorted(constants) if not VARYING.fullmatch(name)]
    return INCLUDES + USES + "\n".join(lines) + "\n"


def build(compiler, include, folder):
    """Returns the path of the library, which is made in `folder`."""
    (folder / "interface.c").write_text(source(compiler, include), encoding="utf-8")
    done = run(*compiler, "-w", "-g", "-O0", "-fPIC", "-shared", "-nostdlib", f"-I{include}", "interface.c",
               f"-Wl,--version-script={MAP}", "-o", "interface.so", cwd=folder)
    if done.returncode != 0:
        sys.exit("The public headers do not make a library; the compiler's message is above.")
    return folder / "interface.so"


def write(description, library):
    """Writes the description of a library's ABI, without paths of this machine."""
    done = run("abidw", "--no-show-locs", "--no-comp-dir-path", "--no-corpus-path", "--no-architecture",
               "--no-parameter-names", library, "--out-file", description)
    return done.returncode


def differences(description, library):
    """Returns what programs of the description find changed in the library, or an empty text."""
    done = run("abidiff", "--no-architecture", "--no-added-syms", "--suppressions", MAY_CHANGE, description, library)
    return done.stdout.strip() or "abidiff failed" if done.returncode else ""


def main():
    action, *compiler = sys.argv[1:]
    types = (INCLUDE / "whorl/types.h").read_text(encoding="utf-8")
    description = HERE / f"whorl-{re.search(r'define WHORL_RELEASE_MAJOR (.*)', types)[1]}.abi"
    with tempfile.TemporaryDirectory() as folder:
        library = build(compiler, INCLUDE, pathlib.Path(folder))
        if action == "write":
            return write(description, library)
        if not description.exists():
            sys.exit(f"There is no tests/abi/{description.name}. {RENEW}.")
        changes = differences(description, library)
    if changes:
        sys.exit(f"{changes}\n\nPrograms compiled for the last release (tests/abi/{description.name}) would find this "
                 "changed. Take the change back, or add a new function or constant beside the old one: additions pass. "
                 "What must change needs a new MAJOR. Before the first release of a MAJOR everything may change: "
                 f"{RENEW}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
