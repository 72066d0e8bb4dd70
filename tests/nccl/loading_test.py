#!/usr/bin/env python3
"""usage: loading_test.py BUILD: tests the ways to make a program load the installed library.

Programs are built here against a decoy, a libnccl.so.2 of release 1 with empty functions."""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

SKIPPED = 77
OURS, DECOY = 22809, 1
DECOY_SOURCE = "int ncclGetVersion(int* version) { *version = 1; return 0; }\n"
PROGRAM_SOURCE = """
#include <stdio.h>
#include <string.h>
int ncclGetVersion(int* version);
int main(void) {
  int version = 0;
  char line[4096];
  FILE* maps = fopen("/proc/self/maps", "r");
  ncclGetVersion(&version);
  printf("%d\\n", version);
  while (fgets(line, sizeof line, maps)) {
    if (strstr(line, "libwhorl")) printf("%s", strchr(line, '/'));
  }
  return 0;
}
"""


def build_program(folder: pathlib.Path, search: list[str]) -> pathlib.Path:
    """Builds a program linked with the decoy; `search` is its library search path."""
    decoy = folder / "decoy"
    decoy.mkdir(exist_ok=True)
    (folder / "decoy.c").write_text(DECOY_SOURCE, encoding="utf-8")
    (folder / "program.c").write_text(PROGRAM_SOURCE, encoding="utf-8")
    subprocess.run(["cc", "-shared", "-fPIC", "-Wl,-soname,libnccl.so.2", "decoy.c", "-o",
                    "decoy/libnccl.so.2"], cwd=folder, check=True)
    program = folder / f"program{len(search)}"
    subprocess.run(["cc", "program.c", "-o", program, "decoy/libnccl.so.2", *search], cwd=folder,
                   check=True)
    return program


def main() -> int:
    """Installs, then tests each way."""
    build = pathlib.Path(sys.argv[1])
    if shutil.which("cc") is None:
        print("SKIPPED: there is no cc (apt-get install gcc)")
        return SKIPPED
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        root = folder / "root"
        subprocess.run(["meson", "install", "-C", build, "--no-rebuild", "--quiet", "--destdir",
                        root], check=True)
        found = [path for path in root.rglob("libnccl.so*") if path.parent.name != "nccl"]
        if found:
            print(f"{found} can shadow another NCCL")
            return 1
        library = next(root.rglob("libnccl.so.2"))
        if b"libasan" in library.read_bytes() or b"libtsan" in library.read_bytes():
            print("SKIPPED: programs built without the sanitizers cannot load a library built with "
                  "them")
            return SKIPPED
        plain = build_program(folder, [])
        wheel = build_program(folder, ["-Wl,--disable-new-dtags", f"-Wl,-rpath,{folder}/decoy"])
        ours = str(library.parent)
        ways = [("LD_LIBRARY_PATH", plain, {"LD_LIBRARY_PATH": ours}, OURS),
                ("LD_PRELOAD", plain, {"LD_PRELOAD": str(library),
                                       "LD_LIBRARY_PATH": str(folder / "decoy")}, OURS),
                ("RPATH beats LD_LIBRARY_PATH", wheel, {"LD_LIBRARY_PATH": ours}, DECOY),
                ("LD_PRELOAD beats RPATH", wheel, {"LD_PRELOAD": str(library)}, OURS)]
        problems = []
        # Meson sets LD_LIBRARY_PATH to its own folders for every test.
        clean = {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}
        for way, program, variables, wanted in ways:
            done = subprocess.run([program], env={**clean, **variables}, text=True,
                                  capture_output=True, check=False)
            version, *others = done.stdout.split("\n")
            if version != str(wanted):
                problems.append(f"{way}: release {version}, wanted {wanted}: {done.stderr}")
            elif wanted == OURS and not re.match(rf"{re.escape(str(root))}/.*/libwhorl\.so",
                                                 others[0]):
                problems.append(f"{way}: libwhorl is not the installed one: {others}")
    print("\n".join(problems) or f"{len(ways)} ways")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
