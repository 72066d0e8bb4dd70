#!/usr/bin/env python3
"""usage: in_venv.py SCRIPT [ARGS]: runs a script with the Python of build/venv, which `./run test`
makes; where it is not there, says why and exits with 77, which meson counts as skipped."""
import os
import pathlib
import sys

BUILD = pathlib.Path(__file__).resolve().parents[2] / "build"


def main() -> None:
    missing, python = BUILD / "venv-missing", BUILD / "venv" / "bin" / "python"
    if missing.exists() or not (BUILD / "venv" / "run-backend").exists():
        print("no PyTorch: " + (missing.read_text(encoding="utf-8").strip() if missing.exists() else
                                "`./run test` makes build/venv, and has not done so yet"))
        sys.exit(77)
    os.execv(python, [str(python), *sys.argv[1:]])


if __name__ == "__main__":
    main()
