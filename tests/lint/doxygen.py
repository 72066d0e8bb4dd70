#!/usr/bin/env python3
"""usage: doxygen.py ROOT: the public headers are documented without a gap, and links between pages lead somewhere
(doxygen warns of none).
Skips where doxygen is not installed."""
import pathlib
import shutil
import subprocess
import sys
import tempfile

root = pathlib.Path(sys.argv[1])
if shutil.which("doxygen") is None:
    print("doxygen is not installed (apt-get install doxygen)")
    sys.exit(77)
with tempfile.TemporaryDirectory() as folder:
    config = (root / "docs/Doxyfile").read_text(encoding="utf-8")
    config += f"\nOUTPUT_DIRECTORY = {folder}\nGENERATE_HTML = NO\nGENERATE_XML = YES\n"
    run = subprocess.run(["doxygen", "-"], input=config, text=True, cwd=root, capture_output=True)
    print(run.stderr)
    sys.exit(1 if run.returncode or "warning:" in run.stderr else 0)
