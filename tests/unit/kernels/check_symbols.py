#!/usr/bin/env python3
"""Fails if an object compiled for one instruction set defines a symbol that the linker may share.

Such a symbol (weak, or global other than the kernel table) could replace the baseline's copy of an
inline function, and the program would then execute instructions that the processor lacks.
"""
import re
import subprocess
import sys

nm, archive = sys.argv[1:3]
member, tables, errors = "", 0, []
for line in subprocess.run([nm, "-C", "--defined-only", archive], check=True, text=True,
                           stdout=subprocess.PIPE).stdout.splitlines():
    if line.endswith(":"):
        member = line[:-1].rsplit("/", 1)[-1]
    symbol = re.match(r"[0-9a-f]+ (\S) (.*)", line)
    if not symbol or "reduce_" not in member or symbol[1].islower():
        continue
    if re.fullmatch(r"whorl::kernels::k\w+Kernels", symbol[2]) and symbol[1] in "RD":
        tables += 1
    else:
        errors.append(f"{member} defines {symbol[2]} ({symbol[1]}): give it internal linkage")
if tables == 0:
    errors.append(f"{archive} has no kernel table; is this the right archive?")
print("\n".join(errors) or f"{tables} instruction sets, nothing but their tables is visible")
sys.exit(bool(errors))
