#!/usr/bin/env python3
"""usage: exported_names.py LIBRARY [REFERENCE]: checks the dynamic symbols of libnccl.so.2.

Expects the soname, every function of functions.def as a weak ncclX and a strong pncclX at one address,
no symbol versions, no other names; with NVIDIA's library as REFERENCE also every name that it has."""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def output(*command: str) -> str:
    """Returns the output of a program."""
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def symbols_of(library: str) -> dict[str, tuple[str, str]]:
    """Returns address and kind of every name."""
    lines = output("nm", "--dynamic", "--defined-only", library).splitlines()
    return {name: (address, kind) for address, kind, name in map(str.split, lines)}


def missing(library: str, reference: str) -> list[str]:
    """Returns sentences about names that only the reference has."""
    there = {name for name in symbols_of(reference) if re.match(r"p?nccl[A-Z]", name)}
    if len(there) < 80:
        return [f"{reference} exports only {len(there)} names of NCCL"]
    return [f"{name} is exported by the reference and not by this library"
            for name in sorted(there - symbols_of(library).keys())]


def problems_of(library: str) -> list[str]:
    """Returns sentences about errors of the library."""
    listed = (ROOT / "bindings/nccl/functions.def").read_text(encoding="utf-8")
    entries = re.findall(r"^(WHORL_NCCL\w*)\([^,]*, (nccl\w+),", listed, re.M)
    names = [name for _, name in entries]
    if len(names) < 80 or len(names) != len(set(names)):
        return [f"functions.def lists {len(names)} names, {len(set(names))} different ones"]
    symbols = symbols_of(library)
    found = []
    for macro, name in entries:
        if macro == "WHORL_NCCL_ALONE":
            if symbols.pop(name, ("", ""))[1] != "T":
                found.append(f"{name} is not exported as a strong function")
            continue
        weak, strong = symbols.pop(name, None), symbols.pop("p" + name, None)
        if weak is None or strong is None:
            found.append(f"{name if weak is None else 'p' + name} is not exported")
        elif (weak[1], strong[1]) != ("W", "T") or weak[0] != strong[0]:
            found.append(f"{name} is {weak} and p{name} is {strong}; they must be one function, "
                         f"weak (W) and strong (T)")
    found += [f"{name} is exported and not part of the ABI" for name in sorted(symbols)]
    dynamic = output("readelf", "--dynamic", "--version-info", "--wide", library)
    if "Library soname: [libnccl.so.2]" not in dynamic:
        found.append("the soname is not libnccl.so.2")
    if "VERDEF" in dynamic or "Version definition" in dynamic:
        found.append("symbols have versions; NCCL's have none")
    relocations = output("readelf", "--relocs", "--wide", library)
    found += [f"a call of {name} inside the library can end in another libnccl.so.2"
              for name in sorted(set(re.findall(r"\b(p?nccl[A-Z]\w*)", relocations)))]
    return found


if __name__ == "__main__":
    wrong = problems_of(sys.argv[1])
    for other in sys.argv[2:]:
        wrong += missing(sys.argv[1], other)
    print("\n".join(wrong) or "names, weakness and soname are right")
    sys.exit(1 if wrong else 0)
