"""Compiles the extension's sources against the headers of other releases of PyTorch.

    python3 tests/torch/compile_with.py 2.4.1 2.8.0

The wheels come from pip and only their headers are unpacked, into build/torch-headers. Nothing is
linked and nothing runs: this finds what a release does not declare.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted((ROOT / "bindings/torch/src").glob("*.cc"))
WARNINGS = ("-Wall", "-Wextra", "-Wno-unused-parameter", "-Wno-missing-field-initializers")


def headers(version: str, folder: Path) -> Path:
    """The folder with the headers of a release."""
    there = folder / version
    if not there.exists():
        with tempfile.TemporaryDirectory(dir=folder) as downloads:
            subprocess.run(
                [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps",
                 "--only-binary=:all:", "--dest", downloads, f"torch=={version}"],
                check=True,
            )
            (wheel,) = Path(downloads).glob("*.whl")
            with zipfile.ZipFile(wheel) as archive:
                names = [n for n in archive.namelist() if n.startswith("torch/include/")]
                unpacked = Path(downloads) / "unpacked"
                archive.extractall(unpacked, names)
            unpacked.rename(there)
    return there / "torch/include"


def compile_one(source: Path, include: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [os.environ.get("CXX", "c++"), "-std=c++20", "-fsyntax-only", *WARNINGS,
         "-DTORCH_EXTENSION_NAME=_C", "-DTORCH_API_INCLUDE_EXTENSION_H",
         f"-I{ROOT}", f"-I{ROOT / 'include'}", f"-isystem{include}",
         f"-isystem{include / 'torch/csrc/api/include'}",
         f"-isystem{sysconfig.get_path('include')}", str(source)],
        capture_output=True, text=True, check=False,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("versions", nargs="+", metavar="VERSION")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    arguments = parser.parse_args()
    folder = ROOT / "build/torch-headers"
    folder.mkdir(parents=True, exist_ok=True)
    failed = 0
    for version in arguments.versions:
        include = headers(version, folder)
        with ThreadPoolExecutor(arguments.jobs) as pool:
            outcomes = list(pool.map(lambda source: compile_one(source, include), SOURCES))
        bad = [s.name for s, o in zip(SOURCES, outcomes, strict=True) if o.returncode or o.stderr]
        for outcome in outcomes:
            sys.stdout.write(outcome.stderr)
        failed += len(bad)
        print(f"torch {version}: {len(SOURCES) - len(bad)} of {len(SOURCES)} sources compile"
              + (f"; not cleanly: {', '.join(bad)}" if bad else ""), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
