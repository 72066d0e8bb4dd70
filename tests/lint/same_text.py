#!/usr/bin/env python3
"""usage: same_text.py FILE PROGRAM: the program's output must be the file's content."""
import difflib
import pathlib
import subprocess
import sys

path, program = pathlib.Path(sys.argv[1]), sys.argv[2]
wanted = subprocess.run([program], check=True, capture_output=True, text=True).stdout
found = path.read_text(encoding="utf-8") if path.exists() else ""
if wanted != found:
    sys.stdout.writelines(difflib.unified_diff(found.splitlines(True), wanted.splitlines(True),
                                               str(path), pathlib.Path(program).name))
    sys.exit(f"{path.name} is out of date; `ninja -C build/release parameter-page` writes it anew")
