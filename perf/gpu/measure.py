#!/usr/bin/env python3
"""Measures whorl on one GPU: M1 to M10 of docs/gpu_tests.md, within a time.

    measure.py --bench build/release/perf/gpu/gpu_bench --out FOLDER [--seconds 300] [--only M1,M3]
               [--nccl PATH] [--devices PROGRAM] [--note TEXT] [--smoke]

Writes FOLDER/measure.json and FOLDER/measure.md, anew after each step. One step that fails, or takes too
long, does not stop the others; steps without time are marked. Exit status: 0 if every step that began ended well and
no result was wrong, whatever the speed; 1 otherwise; 77 where there is no device.

measure.json is one object:
  schema 1, command, begun, seconds, budget_s, notes
  device                          output of `gpu_bench device`
  devices_before, devices_after   output of `whorl-devices --json`
  steps   [{measurement, title, command, seconds, status}]
  rows    [{measurement, collective, ranks, bytes, type, …}], each with
            moved_bytes           bytes that any algorithm must read and write
            us, min_us          {variant: median, least microseconds of one operation}
            times_as_fast_as      {variant: median over the rounds of its time / whorl's}
            predicted_us, predicted_…_us      [model]; null: none
            target, verdict       "met", "missed" or null: none for this row
            wrong                 wrong elements of a sample; −1: not checked
          or with `skipped`, the reason: "not run: time", "failed: …", "memory: …", …"""

from __future__ import annotations

import argparse
import ctypes
import importlib.util
import json
import shlex
import sys
import tempfile
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import steps  # noqa: E402
import tables  # noqa: E402
from plan import Plan, Row, Step, predicted_other_us, predicted_us, target_of  # noqa: E402

SKIPPED = 77
LEAST_SECONDS = 4  # minimum time left with which a step begins
NCCL_OF_SEVERAL_RANKS = 23000


def rows_in(text: str) -> list[Row]:
    rows = []
    for line in text.splitlines():
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
            continue  # output of a library
        if isinstance(row, dict) and "measurement" in row:
            rows.append(row)
    return rows


def find_nccl() -> tuple[str, str, int]:
    """Returns the path of an NCCL that takes several ranks on a device, or why there is none, and its version."""
    candidates = []
    for package in ("nvidia.nccl", "torch"):
        try:
            spec = importlib.util.find_spec(package)
        except (ImportError, ValueError):
            continue
        for place in (spec.submodule_search_locations or []) if spec else []:
            candidates.append(Path(place) / "lib" / "libnccl.so.2")
    candidates += [Path(place) / "libnccl.so.2"
                   for place in ("/usr/lib/x86_64-linux-gnu", "/usr/local/lib")]
    best, best_version = "", 0
    for path in candidates:
        if not path.exists():
            continue
        version = ctypes.c_int(0)
        try:
            if ctypes.CDLL(str(path)).ncclGetVersion(ctypes.byref(version)) != 0:
                continue
        except (OSError, AttributeError):
            continue
        if version.value > best_version:
            best, best_version = str(path), version.value
    if not best:
        return "", "no NCCL: neither PyTorch's wheel nor the system has libnccl.so.2", 0
    if best_version < NCCL_OF_SEVERAL_RANKS:
        return "", (f"NCCL {name_of_version(best_version)} takes no two ranks on one device; 2.30 "
                    "does"), best_version
    return best, "", best_version


def name_of_version(number: int) -> str:
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"


class Measurement:
    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.begun = time.monotonic()
        self.result: dict[str, Any] = {
            "schema": 1, "command": shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]),
            "begun": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "budget_s": arguments.seconds, "notes": list(arguments.note), "steps": [], "rows": []}
        self.bad = False
        self.folder = Path(arguments.out)
        self.folder.mkdir(parents=True, exist_ok=True)

    def left(self) -> float:
        return float(self.arguments.seconds) - (time.monotonic() - self.begun)

    def run(self, command: list[str], limit: float,
            environment: dict[str, str]) -> tuple[str, str, steps.Outcome]:
        """Returns output and errors of a program, and its end."""
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            files = Path(folder) / "output", Path(folder) / "errors"
            outcome = steps.run(command, limit, environment, output=files[0], errors=files[1])
            out, errors = (file.read_text(errors="replace") for file in files)
        return out, errors, outcome

    def devices(self) -> Any:
        if not self.arguments.devices:
            return None
        out, _, _ = self.run([self.arguments.devices, "--json"], 20, {})
        try:
            return json.loads(out)
        except json.JSONDecodeError:
            return None

    def step(self, step: Step) -> None:
        entry = {"measurement": step.measurement, "title": step.title, "command": step.line(),
                 "seconds": 0.0}
        self.result["steps"].append(entry)
        reason = step.skipped
        if not reason and self.left() < LEAST_SECONDS:
            reason = "not run: time"
        if reason:
            entry["status"] = reason if reason.startswith("not run") else f"skipped: {reason}"
            self.result["rows"] += [{**key, **step.labels, "skipped": reason} for key in step.rows]
            return
        command = [self.arguments.bench, *step.arguments]
        if step.script:
            script = Path(__file__).resolve().parent / step.script
            command = [sys.executable, str(script), *step.arguments]
        limit = min(step.limit, self.left())
        out, errors, outcome = self.run(command, limit, step.environment)
        entry["seconds"] = round(outcome.seconds, 2)
        status = "ok"
        if outcome.code is None:
            status = "not run: time" if limit < step.limit else f"failed: {outcome.text()}"
        elif outcome.code != 0:
            last = errors.strip().splitlines()
            status = f"failed: {last[-1] if last else outcome.text()}"
        if status.startswith("failed"):
            self.bad = True
            entry["errors"] = errors[-2000:]
            print(f"FAIL  {step.measurement} {step.title}: {status}", flush=True)
        entry["status"] = status
        known = len(self.result["rows"])
        self.enter(step, rows_in(out), status)
        self.judge(self.result["rows"][known:])

    def enter(self, step: Step, rows: list[Row], status: str) -> None:
        """Enters the rows of a step, and a marked row for each that is missing."""
        everywhere = next((row["skipped"] for row in rows
                           if "skipped" in row and "bytes" not in row and "us" not in row), "")
        for row in rows:
            if "note" in row and "collective" not in row:
                note = f"{step.title}: {row['note']}"
                if note not in self.result["notes"]:
                    self.result["notes"].append(note)
            elif row.get("collective") == "ping-pong":
                self.result["rows"].append(row)
        for key in step.rows:
            found = next((row for row in rows if key.items() <= row.items()), None)
            if found is None:
                # gpu_bench rounds sizes down to whole vectors.
                about = {name: value for name, value in key.items() if name != "bytes"}
                found = next((row for row in rows if about.items() <= row.items() and
                              0 <= key.get("bytes", 0) - row.get("bytes", -1e9) < 1024), None)
            if found is not None:
                self.result["rows"].append({**found, **step.labels})
                continue
            reason = everywhere or (status if status != "ok" else "failed: no row came")
            self.bad = self.bad or reason.startswith("failed")
            self.result["rows"].append({**key, **step.labels, "skipped": reason})

    def judge(self, rows: list[Row]) -> None:
        """Adds predictions, targets and verdicts to new rows."""
        peak = self.result["device"].get("peak_bytes_per_s") or 0.0
        pings = [row["us"]["words, one way"] for row in self.result["rows"]
                 if row.get("collective") == "ping-pong" and "words, one way" in row.get("us", {})]
        ping = pings[0] if pings else None
        for row in rows:
            if row.get("collective") in ("ping-pong", "none") or "skipped" in row:
                continue
            if row["measurement"] != "M8":
                row["predicted_us"] = predicted_us(row, peak, ping)
                if row["collective"] == "sums of torch":
                    row["predicted_us"] = None
            for other in ("nccl", "ring", "torch"):
                if other in (row.get("us") or {}):
                    row[f"predicted_{other}_us"] = predicted_other_us(row, other, peak)
            target = target_of(row)
            row["target"] = target.text if target else None
            row["verdict"] = None if target is None else "met" if target.met else "missed"
            if row.get("wrong", 0) > 0 or (row["measurement"] == "M8" and row["verdict"] != "met"):
                self.bad = True
                print(f"FAIL  wrong results: {json.dumps(row)}", flush=True)

    def save(self) -> None:
        self.result["seconds"] = round(time.monotonic() - self.begun, 1)
        (self.folder / "measure.json").write_text(json.dumps(self.result, indent=1) + "\n",
                                                  encoding="utf-8")
        (self.folder / "measure.md").write_text(tables.report(self.result), encoding="utf-8")

    def all(self) -> int:
        out, errors, outcome = self.run([self.arguments.bench, "device", "--name", "device"], 60, {})
        found = rows_in(out)
        if outcome.code != 0 or not found:
            reason = errors.strip() or outcome.text()
            print(f"no device to measure on: {reason}")
            return SKIPPED
        self.result["device"] = found[0]
        self.result["devices_before"] = self.devices()
        nccl, missing, version = ((self.arguments.nccl, "", 0) if self.arguments.nccl else find_nccl())
        if version:
            self.result["notes"].append(f"The machine's NCCL is {name_of_version(version)}")
        plan = Plan(smoke=self.arguments.smoke, nccl=nccl, nccl_missing=missing)
        only = [one for one in self.arguments.only.split(",") if one]
        chosen = [one for one in plan.steps() if not only or one.measurement in only]
        for number, one in enumerate(chosen):
            if number == 0 or one.measurement != chosen[number - 1].measurement:
                print(f"{tables.TITLES[one.measurement]} ({self.left():.0f} s left)", flush=True)
            self.step(one)
            self.save()
        self.result["devices_after"] = self.devices()
        self.save()
        print("\n".join(tables.summary(self.result)))
        print(f"tables: {self.arguments.out}/measure.md")
        return 1 if self.bad else 0


def main() -> int:
    parser = argparse.ArgumentParser(description="Measures whorl on one GPU, within a time.")
    parser.add_argument("--bench", required=True, help="the program gpu_bench")
    parser.add_argument("--devices", default="", help="the program whorl-devices")
    parser.add_argument("--out", required=True, help="folder for measure.json and measure.md")
    parser.add_argument("--seconds", type=float, default=300, help="for everything (300)")
    parser.add_argument("--only", default="", help="these measurements: M1,M3")
    parser.add_argument("--nccl", default="", help="path of an NCCL for M2, whatever its version")
    parser.add_argument("--note", action="append", default=[], help="a line for the report's head")
    parser.add_argument("--smoke", action="store_true", help="small sizes: whether it works")
    return Measurement(parser.parse_args()).all()


if __name__ == "__main__":
    sys.exit(main())
