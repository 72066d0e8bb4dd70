"""The program of the README runs as it stands there."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

README = Path(__file__).resolve().parents[2] / "bindings" / "python" / "README.md"


def test_the_program_of_the_readme(tmp_path: Path) -> None:
    program = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.S)[0]
    path = tmp_path / "program.py"
    path.write_text(program)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    ranks: list[subprocess.Popen[str]] = []
    try:
        for rank in range(2):
            environment = dict(os.environ, WHORL_RANK=str(rank), WHORL_NRANKS="2", WHORL_ADDRESS=address)
            ranks.append(subprocess.Popen([sys.executable, str(path)], env=environment, stdout=subprocess.PIPE,
                                          stderr=subprocess.STDOUT, text=True))
        for rank, process in enumerate(ranks):
            output, _ = process.communicate(timeout=60)
            assert process.returncode == 0, output
            assert output == f"rank {rank} of 2: [3. 3. 3. 3.]\n"
    finally:
        for process in ranks:
            process.kill()
