"""`python -m whorl.perf`: its table, its exit status, and its command line."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import subprocess
import sys

import pytest

import whorl
from ranks import run
from whorl import perf

SMALL = ["-b", "64", "-e", "4K", "-f", "8", "-n", "2", "-w", "1"]


def tables(comm: whorl.Communicator) -> dict[str, str]:
    """Returns the table of each collective."""
    texts = {}
    for name in perf.COLLECTIVES:
        with contextlib.redirect_stdout(io.StringIO()) as text:
            assert perf.report(comm, perf.parse([name, *SMALL])) == 0
        texts[name] = text.getvalue()
    return texts


def test_collectives() -> None:
    texts = run(2, tables)[0]
    for name, text in texts.items():
        rows = [line.split() for line in text.splitlines() if not line.startswith("#")]
        assert [row[0] for row in rows] == ["64", "512", "4096"], name
        for row in rows:
            assert len(row) == 13
            time, algbw, busbw = (float(cell) for cell in (row[5:8] if row[5] != "N/A" else row[9:12]))
            assert time > 0 and abs(busbw - algbw * perf.COLLECTIVES[name].factor(2)) <= 0.011


def test_the_program() -> None:
    answer = subprocess.run([sys.executable, "-m", "whorl.perf", "--ranks", "2", *SMALL, "-d", "half", "-o", "max"],
                            capture_output=True, text=True, timeout=60, check=False)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert "2 ranks on 1 host" in answer.stdout and "# Out of bounds values : 0 OK" in answer.stdout
    assert answer.stdout.splitlines()[-2].split()[:5] == ["4096", "2048", "float16", "max", "-1"]


def test_failures_are_one_sentence() -> None:
    command = [sys.executable, "-m", "whorl.perf", "--ranks", "2"]
    with open("/dev/full", "w", encoding="utf-8") as full:
        answer = subprocess.run([*command, *SMALL], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60,
                                check=False)
    said = "python -m whorl.perf: cannot write the output: No space left on device\n"
    assert (answer.returncode, answer.stderr) == (1, said)
    lasting = [*command, "-n", "2000"]
    with subprocess.Popen(lasting, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as closed:
        assert closed.stdout is not None and closed.stderr is not None
        assert closed.stdout.readline().startswith("#")
        closed.stdout.close()
        assert (closed.stderr.read(), closed.wait(60)) == ("", 1)
    with subprocess.Popen([*command, "-n", "1000000"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          start_new_session=True) as stopped:
        assert stopped.stdout is not None and stopped.stderr is not None
        assert stopped.stdout.readline().startswith("#")
        os.killpg(stopped.pid, signal.SIGINT)
        assert (stopped.stderr.read(), stopped.wait(60)) == ("", 130)
    answer = subprocess.run([*command[:-1], "100000"], capture_output=True, text=True, timeout=60, check=False)
    assert answer.returncode == 2 and "'100000' is more than 1024" in answer.stderr


def test_wrong_results_are_counted(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(perf, "reduced", lambda size, count, dtype, op: perf.values(0, count, dtype) + 1)
    with whorl.init() as comm:
        assert perf.report(comm, perf.parse(["-b", "8", "-e", "8"])) > 0
    assert "FAILED" in capsys.readouterr().out


@pytest.mark.parametrize("name, ranks", [("int8", 254), ("float16", 4096), ("bfloat16", 512), ("float8_e5m2", 16)])
def test_sums_that_are_not_exact(name: str, ranks: int) -> None:
    if name not in ("int8", "float16"):
        pytest.importorskip("ml_dtypes")
    options = perf.parse(["-d", name])
    assert perf.inexact(ranks, options) == ""
    assert f"sums of {ranks + 1} ranks are not exact in {name}" in perf.inexact(ranks + 1, options)
    assert perf.inexact(ranks + 1, perf.parse(["-d", name, "-o", "max"])) == ""
    assert perf.inexact(ranks + 1, perf.parse(["all_gather", "-d", name])) == ""


def test_both_spellings_of_collectives() -> None:
    assert [perf.parse([word]).collective for word in ("allreduce", "all_reduce", "reduce_scatter", "reducescatter")
            ] == ["all_reduce", "all_reduce", "reduce_scatter", "reduce_scatter"]


@pytest.mark.parametrize("arguments", [["banana"], ["-b", "8X"], ["-b", "0"], ["-b", "8", "-e", "4"], ["-d", "U1"],
                                       ["-d", "complex64"], ["--ranks", "0"], ["-f", "1"], ["-d", "bool", "-o", "avg"]])
def test_wrong_command_lines(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        perf.parse(arguments)
    assert stop.value.code == 2
