#!/usr/bin/env python3
"""Tests and measures whorl on a machine with a GPU, from the programs that `perf/gpu_check.sh pack` has packed.

    check.py --pack FOLDER --out FOLDER [--seconds 570] [--figure-seconds 240] [--jobs 4] [--test-limit 60] [--smoke]
             [PART…]

Parts, by default all in this order:
  figures   perf/gpu/measure.py: nothing else runs meanwhile, but a compiler
  tools     the Python programs, and compute-sanitizer on the interpreter of schedules
  facts     driver_facts, by name
  tests     each test program, in several shards
All but the figures run side by side.

The output of each step is in a file of --out from its first byte on, and summary.json has all outcomes after
each step. A step that hangs costs its own limit; one whose process does not even end by SIGKILL is left behind.
Exit status: 0 if nothing failed, 1 otherwise, 77 where there is no device."""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import shutil
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE))

import steps  # noqa: E402

SKIPPED = 77
PARTS = ("figures", "tools", "facts", "tests")
LEAST_SECONDS = 5.0  # minimum time left with which a step begins
SHARDS = 2  # runs of each test program, each with a part of its tests
FACTS = ("P1", "P6", "P8", "P7", "P5", "P2", "P3", "P4")


@dataclass
class Step:
    title: str
    command: list[str]
    limit: float  # seconds
    environment: dict[str, str] = field(default_factory=dict)
    needs_extension: bool = False  # uses the backend of PyTorch that has been compiled meanwhile


class Check:
    def __init__(self, arguments: argparse.Namespace) -> None:
        self.pack = Path(arguments.pack).resolve()
        self.out = Path(arguments.out).resolve()
        self.out.mkdir(parents=True, exist_ok=True)
        self.smoke: bool = arguments.smoke
        self.jobs: int = arguments.jobs
        self.test_limit: float = arguments.test_limit
        self.figure_seconds: float = arguments.figure_seconds
        self.deadline = time.monotonic() + arguments.seconds
        self.begun = time.monotonic()
        self.entries: list[dict[str, object]] = []
        self.lock = Lock()
        self.background = ThreadPoolExecutor(1)
        self.extension: Future[str] | None = None
        # The libraries of the pack, for its programs; Python has a C++ library and an OpenSSL of its own.
        known = os.environ.get("LD_LIBRARY_PATH", "")
        self.native = {"LD_LIBRARY_PATH": os.pathsep.join(
            ([known] if known else []) + [str(self.pack / "lib")])}

    def left(self) -> float:
        return self.deadline - time.monotonic()

    def program(self, name: str) -> str:
        return str(self.pack / name)

    def note(self, title: str, outcome: str, code: int | None, seconds: float) -> None:
        with self.lock:
            self.entries.append({"step": title, "outcome": outcome, "status": code,
                                 "seconds": round(seconds, 1)})
            text = json.dumps(self.entries, indent=1) + "\n"
            (self.out / "summary.json").write_text(text, encoding="utf-8")

    def run(self, step: Step) -> str:
        """Runs a step, prints its outcome, and returns the outcome."""
        if step.needs_extension and self.extension is not None and self.extension.result() == "ok":
            step.environment["WHORL_GPU_TEST_PACKAGE"] = str(self.pack / "backend/bindings/torch")
        output = self.out / f"{step.title}.txt"
        if self.left() < LEAST_SECONDS:
            print(f"----  {step.title}: not run: time", flush=True)
            self.note(step.title, "not run: time", None, 0)
            return "not run: time"
        limit = min(step.limit, self.left())
        outcome = steps.run(step.command, limit, step.environment, output=output)
        lines = output.read_text(errors="replace").splitlines()
        if outcome.code == 0:
            result = "ok"
            print(f"ok    {step.title} ({outcome.seconds:.0f} s)", flush=True)
        elif outcome.code == SKIPPED:
            result = "skipped"
            print(f"skip  {step.title}: {lines[-1] if lines else ''}", flush=True)
        elif outcome.code is None and limit < step.limit:
            result = "not run to its end: time"
            print(f"----  {step.title}: {result}", flush=True)
        else:
            result = f"failed: {outcome.text()}"
            tail = "".join(f"\n        {line[:200]}" for line in lines[-15:])
            print(f"FAIL  {step.title}: {outcome.text()}{tail}", flush=True)
        self.note(step.title, result, outcome.code, outcome.seconds)
        return result

    def run_side_by_side(self, chosen: list[Step]) -> None:
        with ThreadPoolExecutor(self.jobs) as pool:
            list(pool.map(self.run, chosen))

    # --- Parts ---------------------------------------------------------------------------------

    def machine(self) -> bool:
        """Says what the machine is. Returns whether it has a device."""
        commands = {"nvidia_smi": ["nvidia-smi", "-q"], "device": [self.program("whorl-devices")],
                    "processor": ["lscpu"], "python": [sys.executable, "-m", "pip", "list"]}
        for name, command in commands.items():
            steps.run(command, 20, self.native, output=self.out / f"{name}.txt")
        print((self.out / "device.txt").read_text(errors="replace").rstrip(), flush=True)
        found = steps.run([self.program("gpu_bench"), "device", "--name", "device"], 60, self.native,
                          output=self.out / "bench_device.txt")
        if found.code == 0:
            return True
        reason = (self.out / "bench_device.txt").read_text(errors="replace").strip()
        print(f"Nothing to test or to measure: {reason or found.text()}", flush=True)
        self.note("device", "skipped", found.code, found.seconds)
        return False

    def figures(self) -> None:
        commit = self.pack / "commit"
        version = commit.read_text(encoding="utf-8").strip() if commit.exists() else "unknown"
        seconds = min(self.figure_seconds, self.left())
        command = [sys.executable, "-u", str(HERE / "measure.py"), "--bench", self.program("gpu_bench"),
                   "--devices", self.program("whorl-devices"), "--out", str(self.out), "--seconds",
                   f"{seconds:.0f}", "--note", f"whorl at commit {version}"]
        self.run(Step("measure", command + (["--smoke"] if self.smoke else []), seconds + 30,
                      self.native))

    def facts(self) -> list[Step]:
        return [Step(f"driver_facts_{name}", [self.program("driver_facts"), name],
                     150 if name in ("P3", "P4") else 60, self.native) for name in FACTS]

    def tests(self) -> list[Step]:
        limit = self.test_limit
        # More streams than queues of the device would wait for each other.
        chosen = [Step(f"{name}_{shard}", [self.program(name)], limit,
                       {**self.native, "CUDA_DEVICE_MAX_CONNECTIONS": "32", "GTEST_TOTAL_SHARDS": str(SHARDS),
                        "GTEST_SHARD_INDEX": str(shard)})
                  for name in sorted(one.name for one in self.pack.glob("*_test"))
                  for shard in range(SHARDS)]
        perf = [self.program("all_reduce_perf"), "--alloc", "device", "--mode", "warm", "-b", "4K",
                "-e", "64K" if self.smoke else "64M", "-f", "16", "-n", "10"]
        return [*chosen, Step("all_reduce_g4", [*perf, "--ranks", "4", "-g", "4"], limit, self.native),
                Step("all_reduce_processes", [*perf, "--ranks", "2"], limit, self.native)]

    def build_extension(self) -> None:
        """Compiles the backend of PyTorch while the device is measured, which needs few processors."""
        command = ["nice", "-n", "19", sys.executable, str(ROOT / "tests/gpu/backend_torch.py"), "build",
                   str(self.pack / "backend")]
        step = Step("backend_torch_build", command, 200, {
            "PYTHONUNBUFFERED": "1", "WHORL_GPU_LIBRARIES": str(self.pack / "python")})
        self.extension = self.background.submit(self.run, step)

    def tools(self) -> list[Step]:
        return [*self.python_programs(), *self.sanitizers()]

    def sanitizers(self) -> list[Step]:
        """Returns runs of the interpreter of schedules, whose messages and shared memory can race; the kernel
        for one device has no shared memory."""
        if shutil.which("compute-sanitizer") is None:
            print("skip  compute-sanitizer: it is not here; it comes with the CUDA toolkit")
            self.note("compute-sanitizer", "skipped", SKIPPED, 0)
            return []
        schedule = {**self.native, "WHORL_DEVICE_ALGO": "schedule"}
        bench = [self.program("gpu_bench"), "collectives", "--name", "sanitizer", "--rounds", "1", "--ms",
                 "1", "--memory", "256M", "--eager"]
        sanitizer = ["compute-sanitizer", "--error-exitcode", "9", "--tool"]
        chosen = [Step(f"{tool}_interpreter", [*sanitizer, tool, *bench, "-N", "4", "--sizes", "4K,1M"],
                       60, schedule) for tool in ("memcheck", "racecheck", "synccheck")]
        chosen += [Step("memcheck_one_kernel", [*sanitizer, "memcheck", *bench, "-N", "8", "--sizes",
                                                 "4K,1M", "-d", "float,f8e4m3,int8"], 60, self.native)]
        return chosen

    def python_programs(self) -> list[Step]:
        environment = {"PYTHONUNBUFFERED": "1", "WHORL_GPU_LIBRARIES": str(self.pack / "python")}
        if self.smoke:
            environment["WHORL_GPU_TEST_ROUNDS"] = "8"
        limits = {"backend_torch": 150, "nccl_torch": 120, "nccl_random": 90, "nccl_cupy": 90}
        return [Step(name, [sys.executable, str(ROOT / "tests" / "gpu" / f"{name}.py")], limit,
                     dict(environment), needs_extension=name == "backend_torch")
                for name, limit in limits.items()]

    # --- Begin and end -------------------------------------------------------------------------

    def all(self, parts: list[str]) -> int:
        if not self.machine():
            return SKIPPED
        hold_device()
        if "tools" in parts:
            self.build_extension()
        if "figures" in parts:
            print(f"figures ({self.left():.0f} s left)", flush=True)
            self.figures()
        others: dict[str, Callable[[], list[Step]]] = {
            "tools": self.tools, "facts": self.facts, "tests": self.tests}
        chosen = [part for part in parts if part in others]
        if chosen:
            print(f"{', '.join(chosen)} ({self.left():.0f} s left)", flush=True)
            self.run_side_by_side([step for part in chosen for step in others[part]()])
        failed = sum(str(one["outcome"]).startswith("failed") for one in self.entries)
        print(f"{failed} of {len(self.entries)} steps failed, in {time.monotonic() - self.begun:.0f} s; "
              f"everything is in {self.out}")
        return 1 if failed else 0


def hold_device() -> None:
    """Keeps the device initialised between the programs: the driver lets it go with its last user, and then the
    next program waits for seconds."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return
    context = ctypes.c_void_p()
    if driver.cuInit(0) == 0:
        driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)


def main() -> int:
    parser = argparse.ArgumentParser(description="Tests and measures whorl on a machine with a GPU.")
    parser.add_argument("--pack", required=True, help="folder of the unpacked programs")
    parser.add_argument("--out", required=True, help="folder for all output")
    parser.add_argument("--seconds", type=float, default=570, help="for everything (570)")
    parser.add_argument("--figure-seconds", type=float, default=240, help="of these, for figures (240)")
    parser.add_argument("--jobs", type=int, default=4, help="steps side by side, except measurements (4)")
    parser.add_argument("--test-limit", type=float, default=60, help="seconds of one shard of a test (60)")
    parser.add_argument("--smoke", action="store_true", help="small sizes: whether it works")
    parser.add_argument("part", nargs="*", help=", ".join(PARTS))
    arguments = parser.parse_args()
    unknown = [name for name in arguments.part if name not in PARTS]
    if unknown:
        parser.error(f"there is no part {unknown[0]}; there are {', '.join(PARTS)}")
    return Check(arguments).all(arguments.part or list(PARTS))


if __name__ == "__main__":
    sys.exit(main())
