"""Common functions of the scripts beside this file: they skip where there is no device, find the
libraries, and run their ranks as processes that share device 0."""

from __future__ import annotations

import argparse
import ctypes
import importlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import NoReturn

ROOT = Path(__file__).resolve().parents[2]
SKIPPED = 77  # meson's code
# Limit for one set of ranks, including imports, contexts and the compilation of CuPy's kernels.
SECONDS = 90.0
RANK_VARIABLES = ("WHORL_GPU_TEST_RANK", "WHORL_GPU_TEST_SIZE", "WHORL_GPU_TEST_PORT")


def skip(reason: str) -> NoReturn:
    print(f"skipped: {reason}")
    sys.exit(SKIPPED)


def need_device() -> None:
    """Skips unless the driver has a device."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        skip("this machine has no CUDA driver (libcuda.so.1)")
    count = ctypes.c_int(0)
    if driver.cuInit(0) != 0 or driver.cuDeviceGetCount(ctypes.byref(count)) != 0 or not count.value:
        skip("this machine has no CUDA device")


def need_module(name: str, why: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        skip(f"{why} needs {name}, which cannot be imported: {error}")


def need_torch(why: str) -> ModuleType:
    """Returns torch with CUDA and with torch.distributed, or skips."""
    torch = need_module("torch", why)
    if not torch.cuda.is_available():
        skip(f"{why} needs a PyTorch with CUDA; {torch.__version__} has none, or sees no device")
    if not torch.distributed.is_available():
        skip(f"{why} needs torch.distributed, which this PyTorch was built without")
    return torch


def libraries() -> list[Path]:
    """Returns the folders that may have libwhorl.so.0 and libnccl.so.2: WHORL_GPU_LIBRARIES (folders), the pack of
    perf/gpu_check.sh, the build."""
    named = os.environ.get("WHORL_GPU_LIBRARIES")
    if named:
        return [Path(one) for one in named.split(os.pathsep)]
    builds = [ROOT / "build" / "release"] + sorted(ROOT.glob("build*/*/"))
    return [ROOT / "build" / "gpu_check" / "python"] + [
        build / part for build in builds for part in ("src", "bindings/nccl")]


def need_library(name: str) -> Path:
    """Returns the first library of that name; `environment()` makes its dependencies findable, too."""
    for folder in libraries():
        if (folder / name).exists():
            return (folder / name).resolve()
    skip(f"there is no {name} in {', '.join(str(folder) for folder in libraries()[:3])} …: "
         "`perf/gpu_check.sh pack`, or build the library first")


def environment(preload: Path | None = None, **more: str) -> dict[str, str]:
    """Returns the environment of processes that load the libraries; `preload` precedes all others."""
    folders = [str(folder) for folder in libraries() if folder.exists()]
    try:
        ctypes.CDLL("libcrypto.so.3")  # the machine's own copy suits the rest of the process best
    except OSError:
        folders.append(str(ROOT / "build" / "gpu_check" / "crypto"))
    known = os.environ.get("LD_LIBRARY_PATH")
    result = dict(os.environ, OMP_NUM_THREADS="2", PYTHONUNBUFFERED="1", PYTHONFAULTHANDLER="1",
                  CUDA_DEVICE_MAX_CONNECTIONS="32", GLOO_SOCKET_IFNAME="lo", **more)
    result["LD_LIBRARY_PATH"] = os.pathsep.join(folders + ([known] if known else []))
    if preload is not None:
        result["LD_PRELOAD"] = str(preload)
    return result


def check_loaded(name: str) -> None:
    """Fails unless this process has loaded whorl's library of that name."""
    maps = Path("/proc/self/maps").read_text(encoding="utf-8")
    loaded = sorted({line.split()[-1] for line in maps.splitlines() if name in line})
    assert "libwhorl" in maps, f"libwhorl is not in this process; {name} is {loaded}"


def am_rank() -> bool:
    return RANK_VARIABLES[0] in os.environ


def rank_and_size() -> tuple[int, int, int]:
    """Returns rank, size and the port that the parent passes."""
    rank, size, port = (int(os.environ[name]) for name in RANK_VARIABLES)
    return rank, size, port


def run_ranks(size: int, arguments: list[str], port: int, surroundings: dict[str, str],
              seconds: float = SECONDS) -> tuple[bool, str]:
    """Runs this script again as each rank. Returns whether all succeeded, and rank 0's output. Prints
    the output of a rank that fails."""
    with tempfile.TemporaryDirectory() as folder:
        outputs = [Path(folder) / f"rank{rank}.txt" for rank in range(size)]
        processes = []
        for rank, output in enumerate(outputs):
            variables = dict(zip(RANK_VARIABLES, (str(rank), str(size), str(port))))
            with output.open("wb") as stream:
                processes.append(subprocess.Popen(
                    [sys.executable, sys.argv[0], *arguments], stdout=stream,
                    stderr=subprocess.STDOUT, env={**surroundings, **variables}))
        deadline = time.monotonic() + seconds
        failed = []
        for rank, process in enumerate(processes):
            # After a failure the others get 20 s.
            left = max(0.1, min(deadline - time.monotonic(), 20 if failed else seconds))
            try:
                code: int | str = process.wait(left)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                code = f"no end within {seconds:.0f} s"
            if code != 0:
                failed.append((rank, code))
        texts = [output.read_text(errors="replace") for output in outputs]
        for rank, code in failed:
            print(f"--- rank {rank} of {size}: {code}\n" + "\n".join(texts[rank].splitlines()[-25:]))
        return not failed, texts[0]


def run_parts(parts: list[str], sizes: tuple[int, ...], port: Callable[[], int],
              surroundings: dict[str, str], seconds: float = SECONDS) -> dict[str, bool]:
    """Runs the parts by one set of ranks for each size; after a failure, the rest by another set.
    Prints each outcome at once."""
    results = {}

    def note(name: str, good: bool) -> None:
        results[f"{name}, {size} ranks"] = say(f"{name}, {size} ranks", good)

    for size in sizes:
        left = list(parts)
        while left:
            good, output = run_ranks(size, left, port(), surroundings, seconds)
            done = [name for name in left if f"done {name}\n" in output]
            for name in done:
                note(name, True)
            left = [name for name in left if name not in done]
            if not good or left:
                note(left.pop(0) if left else "the end", False)
    return results


def do_parts(parts: dict[str, Callable[[int, int], None]]) -> None:
    """Runs the parts that this rank was started for."""
    rank, size, _ = rank_and_size()
    for name in choose(parts):
        parts[name](rank, size)
        print(f"done {name}", flush=True)


def say(name: str, good: bool) -> bool:
    print(f"{'ok  ' if good else 'FAIL'}  {name}", flush=True)
    return good


def finish(results: dict[str, bool]) -> NoReturn:
    """Ends the script; say() has printed each result."""
    sys.exit(0 if results and all(results.values()) else 1)


def choose(parts: dict[str, Callable[[int, int], None]]) -> list[str]:
    """Returns the parts that the script's arguments name; all, if none."""
    parser = argparse.ArgumentParser()
    parser.add_argument("part", nargs="*", help=", ".join(parts))
    asked = parser.parse_args().part
    unknown = [name for name in asked if name not in parts]
    if unknown:
        parser.error(f"there is no {unknown[0]}; there are {', '.join(parts)}")
    return asked or list(parts)
