#!/usr/bin/env python3
"""usage: port_test.py REFERENCE LIBNCCL LIBWHORL CC...: porting a program of NCCL is one sed.

Programs of port/, written for NCCL, are built with the drop-in's header and library, ported by sed, and built
with whorl's. Both must print the same. All names of NVIDIA's nccl.h must have a counterpart in whorl's headers;
REFERENCE is the folder of that file, or empty."""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
SED = "s/nccl/whorl/g; s/NCCL/WHORL/g"
LIMIT_S = 60
# Names of nccl.h that a program does not use, and the one function that whorl lacks.
NOT_PORTED = re.compile(r"NCCL_H_|nccl\w+_v\d+|ncclWindow_vidmem|ncclResetDebugInit")


def names_in(headers):
    """Returns the identifiers of some headers, without those in comments."""
    text = "\n".join(header.read_text(encoding="utf-8") for header in headers)
    return set(re.findall(r"\b[A-Za-z]\w+", re.sub(r"/\*.*?\*/|//[^\n]*", "", text, flags=re.S)))


def unported_names(reference):
    """Returns the names of the reference's header that are not in whorl's headers once ported."""
    ours = names_in(sorted((ROOT / "include/whorl").glob("*.h")))
    return sorted(name for name in names_in([reference]) if re.match("nccl[A-Z]|NCCL_", name)
                  and not NOT_PORTED.fullmatch(name)
                  and name.replace("nccl", "whorl").replace("NCCL", "WHORL") not in ours)


def build_and_run(compiler, folder, source, includes, library):
    """Returns the sorted lines that a program prints. Its ranks print in any order."""
    program = folder / source.stem
    library = pathlib.Path(library)
    subprocess.run([*compiler, "-std=gnu11", "-Wall", "-Werror", *(f"-I{one}" for one in includes), source, library,
                    f"-Wl,-rpath,{library.parent}", "-pthread", "-o", program], check=True)
    done = subprocess.run([program], capture_output=True, text=True, timeout=LIMIT_S,
                          env={**os.environ, "WHORL_TIMEOUT_MS": str(LIMIT_S * 500)}, check=False)
    if done.returncode != 0:
        sys.exit(f"{program} ended with {done.returncode}: {done.stderr}")
    return sorted(done.stdout.splitlines())


def main():
    reference, nccl, whorl, *compiler = sys.argv[1:]
    if not reference:
        print("There is no nccl.h here: its names are not compared")
    elif missing := unported_names(pathlib.Path(reference) / "nccl.h"):
        sys.exit(f"in {reference}/nccl.h and not in include/whorl: {', '.join(missing)}")
    with tempfile.TemporaryDirectory() as folder:
        before, after = pathlib.Path(folder) / "nccl", pathlib.Path(folder) / "whorl"
        before.mkdir()
        after.mkdir()
        for source in [HERE / "port/check.h", *sorted((HERE / "port").glob("*.c"))]:
            ported = subprocess.run(["sed", SED, source], check=True, capture_output=True).stdout
            (after / source.name).write_bytes(ported)
        for source in sorted((HERE / "port").glob("*.c")):
            wanted = build_and_run(compiler, before, source, [HERE / "port", ROOT], nccl)
            got = build_and_run(compiler, after, after / source.name, [ROOT / "include"], whorl)
            print(f"{source.name}: {len(wanted)} lines")
            if got != wanted or not wanted:
                sys.exit("\n".join(["of NCCL:", *wanted, "ported:", *got]))


if __name__ == "__main__":
    main()
