"""The last operations in the format of PyTorch's flight recorder analyser."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from ranks import outcomes
from whorl_torch import flight_recorder

analyser = pytest.importorskip("torch.distributed.flight_recorder.fr_trace")


def disagree(rank: int, size: int, folder: str) -> None:
    os.environ["WHORL_FLIGHT_FILE"] = folder + "/%j.%r.json"
    group = dist.new_group()
    for _ in range(3):
        dist.all_reduce(torch.ones(10), group=group)
    with pytest.raises(RuntimeError, match="ranks disagree"):
        if rank == 2:
            dist.barrier(group=group)
        else:
            dist.all_reduce(torch.ones(10), group=group)


def test_the_analyser_finds_the_calls_that_differ(tmp_path: Path) -> None:
    results = outcomes(3, disagree, str(tmp_path))
    assert [result[0] for result in results] == ["returned"] * 3, results
    files = sorted(str(file) for file in tmp_path.glob("*.json"))
    assert len(files) == 3
    flight_recorder.main([*files, "-o", str(tmp_path / "traces")])
    told = subprocess.run([sys.executable, "-m", "torch.distributed.flight_recorder.fr_trace",
                           str(tmp_path / "traces"), "-p", "rank_"],
                          capture_output=True, text=True, check=False)
    said = told.stdout + told.stderr
    # Whose call is the wrong one is a matter of the order of the files to the analyser.
    for part in ("COLLECTIVE_TYPE_MISMATCH", "'barrier'", "'all_reduce'", "expected ranks: {0, 1, 2}"):
        assert part in said, said


def test_other_files_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "file.json"
    for text in ("{", "[1]", '{"format": "other"}'):
        file.write_text(text)
        with pytest.raises(SystemExit, match="file.json"):
            flight_recorder.main([str(file), "-o", str(tmp_path)])
