"""torchrun starts all ranks again when one is killed, and they go on from the last checkpoint."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from elastic_worker import LETHAL_STEP, STEPS

RANKS = 3


def trained_alone() -> float:
    weight = 0.0
    for step in range(STEPS):
        weight -= 0.125 * sum(weight - rank - step for rank in range(RANKS))
    return weight


def test_a_killed_worker_is_restarted(tmp_path: Path) -> None:
    worker = Path(__file__).with_name("elastic_worker.py")
    run = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={RANKS}",
         "--max-restarts=1", "--monitor-interval=0.1", str(worker), str(tmp_path)],
        capture_output=True, text=True, timeout=120, check=False)
    assert run.returncode == 0, run.stderr
    begun = [{(tmp_path / f"attempt{attempt}.rank{rank}").read_text() for rank in range(RANKS)} for attempt in (0, 1)]
    # The step in which the rank died, or the next if rank 0 had its sum: the others lose at most that one.
    assert begun[0] == {"0"} and begun[1] in ({str(LETHAL_STEP)}, {str(LETHAL_STEP + 1)}), begun
    state = json.loads((tmp_path / "checkpoint.json").read_text())
    assert state == {"step": STEPS, "weight": trained_alone()}
