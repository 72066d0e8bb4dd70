#!/usr/bin/env python3
"""usage: exported_names.py LIBRARY: the library exports the functions of whorl.h and nothing else, each with
a version."""
import pathlib
import re
import subprocess
import sys

header = pathlib.Path(__file__).resolve().parents[2] / "include/whorl/whorl.h"
declared = set(re.findall(r"^WHORL_API [^;(]*?(whorl\w+)\(", header.read_text(encoding="utf-8"), re.M))
nm = subprocess.run(["nm", "--dynamic", "--defined-only", "--format=posix", sys.argv[1]],
                    check=True, capture_output=True, text=True).stdout
names = [line.split()[0].partition("@@") for line in nm.splitlines()]
names = [name for name in names if not name[0].startswith("WHORL_")]  # the versions themselves
exported = {name for name, _, _ in names}
problems = [f"{name} is declared in whorl.h and not exported" for name in sorted(declared - exported)]
problems += [f"{name} is exported and not declared in whorl.h" for name in sorted(exported - declared)]
problems += [f"{name} has no version of whorl's" for name, _, version in names if not version.startswith("WHORL_")]
print("\n".join(problems) or f"{len(exported)} functions")
sys.exit(1 if problems or not declared else 0)
