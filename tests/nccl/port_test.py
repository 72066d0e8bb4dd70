#!/usr/bin/env python3
"""usage: port_test.py LIBNCCL LIBWHORL CC...: porting a program of NCCL is one sed.

Programs of port/, written for NCCL, are built with the drop-in's header and library, ported by sed, and built
with whorl's. Both must print the same."""
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
SED = "s/nccl/whorl/g; s/NCCL/WHORL/g"
LIMIT_S = 60


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
    nccl, whorl, *compiler = sys.argv[1:]
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
