"""`perf/torch/compare_torch.py` measures, verifies, records, and shows what it has recorded."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PROBE = ROOT / "build/release/perf/compare/core_probe"


def compare(*arguments: str) -> str:
    done = subprocess.run([sys.executable, str(ROOT / "perf/torch/compare_torch.py"), *arguments],
                          capture_output=True, text=True, timeout=150, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(not PROBE.exists(), reason="core_probe is not built: ./run compare-torch does that")
def test_measures_and_shows(tmp_path: Path) -> None:
    recorded, trace = tmp_path / "runs.json", tmp_path / "trace.json"
    text = compare("--operations", "all_reduce", "all_to_all_single", "send_recv", "barrier", "--sizes",
                   "8", "64K", "--dtypes", "bfloat16", "--workloads", "resnet18-exchange", "--rounds", "1",
                   "--budget", "0.001", "--json", str(recorded))
    assert "all_reduce, 2 ranks, bfloat16, async" in text or "lost" in text
    assert not json.loads(recorded.read_text(encoding="utf-8"))["problems"], "nothing was wrong or refused"
    assert compare("--from", str(recorded)) == text
    compare("--trace", str(trace), "--workloads", "resnet18-exchange", "--backends", "whorl")
    names = {event.get("name") for event in json.loads(trace.read_text(encoding="utf-8"))["traceEvents"]}
    assert "run of whorl:all_reduce in whorl" in names
