#!/usr/bin/env python3
"""usage: backend_torch.py [PART…] | build FOLDER: the backend `whorl` of torch.distributed with tensors of CUDA: the
cases of torch_cases.py, and the order of operations and streams. Builds the extension against the installed torch,
with the library of the pack or of the build; `build` does only that, in a new folder, for a later run with
WHORL_GPU_TEST_PACKAGE=FOLDER/bindings/torch."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from datetime import timedelta
from pathlib import Path

import machine

VARIABLE = "WHORL_GPU_TEST_PACKAGE"  # folder of whorl_torch


def extension(root: Path) -> Path:
    """Builds whorl_torch for this torch below an empty folder, and returns its own folder."""
    library = machine.need_library("libwhorl.so.0")
    if not shutil.which(os.environ.get("CXX", "c++")):
        machine.skip("the extension has to be compiled here, and there is no C++ compiler")
    if not (Path(sysconfig.get_path("include")) / "Python.h").exists():
        machine.skip("the extension has to be compiled here, and this Python has no headers (Python.h)")
    machine.need_module("setuptools", "the extension")
    for part in ("bindings/torch", "include"):
        shutil.copytree(machine.ROOT / part, root / part,
                        ignore=shutil.ignore_patterns("build", "*.so*", "__pycache__"))
    shutil.copy(machine.ROOT / "bindings/libwhorl.py", root / "bindings")
    # setup.py looks for the library in `lib` below a prefix.
    (root / "lib").mkdir()
    shutil.copy(library, root / "lib" / "libwhorl.so.0")
    # Without ninja torch compiles the files one after the other; pip puts it beside the interpreter.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    if shutil.which("ninja", path=path) is None:
        machine.skip("the extension has to be compiled here, and there is no ninja")
    began = time.monotonic()
    built = subprocess.run(
        [sys.executable, "setup.py", "-q", "build_ext", "--inplace"], cwd=root / "bindings/torch",
        env=dict(machine.environment(), WHORL_ROOT=str(root), PATH=path,
                 MAX_JOBS=str(os.cpu_count() or 2)),
        capture_output=True, text=True, check=False)
    if built.returncode != 0:
        print(built.stdout[-6000:], built.stderr[-6000:])
        sys.exit("FAIL  the extension does not compile with this torch")
    print(f"ok    the extension, built in {time.monotonic() - began:.0f} s")
    return root / "bindings/torch"


def stream_order(rank: int, size: int) -> None:
    """Issues an operation while the caller's stream is busy, and uses the result after wait()."""
    import torch
    import torch.distributed as dist

    from torch_cases import DEVICE, same

    total = float(sum(range(1, size + 1)))
    tensor = torch.ones(2_000_000, device=DEVICE)
    dist.all_reduce(tensor)  # makes the communicator
    torch.cuda.synchronize()
    cycles = 1_000_000_000  # about half a second
    for stream in (torch.cuda.default_stream(), torch.cuda.Stream()):
        with torch.cuda.stream(stream):
            torch.cuda._sleep(cycles)
            tensor.fill_(rank + 1)
            began = time.monotonic()
            work = dist.all_reduce(tensor, async_op=True)
            issued = time.monotonic() - began
            assert not work.is_completed(), "the operation did not wait for the caller's stream"
            work.wait()
            assert issued + 0.2 > time.monotonic() - began, "wait() waited for the device"
            doubled = tensor * 2
            stream.synchronize()
            assert work.is_completed()
            same(doubled, torch.full_like(doubled, 2 * total))
    # One stream issues, another waits.
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        torch.cuda._sleep(cycles)
        other = torch.full((100_000,), float(rank + 1), device=DEVICE)
        work = dist.all_reduce(other, async_op=True)
    work.wait()
    seen = other.clone()  # in the default stream
    torch.cuda.synchronize()
    same(seen, torch.full_like(seen, total))
    # The tensor is dropped while the operation is in progress, and its memory allocated again.
    torch.cuda._sleep(cycles)
    gathered = [torch.empty((500_000 * size,), device=DEVICE) for _ in range(8)]
    for step in range(8):
        temporary = torch.full((500_000,), float(rank + step), device=DEVICE)
        dist.all_gather_into_tensor(gathered[step], temporary, async_op=True)
        del temporary
        torch.full((500_000,), -1.0, device=DEVICE)
    torch.cuda.synchronize()
    for step in range(8):
        for j, part in enumerate(gathered[step].chunk(size)):
            same(part, torch.full_like(part, float(j + step)))
    # A timeout given to wait() applies to the device.
    torch.cuda._sleep(cycles)
    tensor.fill_(1)
    work = dist.all_reduce(tensor, async_op=True)
    try:
        work.wait(timedelta(milliseconds=20))
        raise AssertionError("wait() with a timeout did not wait for the device")
    except RuntimeError as error:
        assert "was not complete after" in str(error), error
    work.wait(timedelta(seconds=30))
    assert work.is_completed()


def futures(rank: int, size: int) -> None:
    import torch
    import torch.distributed as dist

    from torch_cases import DEVICE, same

    torch.cuda._sleep(200_000_000)
    tensor = torch.full((70_000,), float(rank), device=DEVICE)
    future = dist.all_reduce(tensor, async_op=True).get_future()
    tripled = future.then(lambda done: [done.value()[0] * 3]).wait()[0]
    same(tripled, torch.full_like(tripled, 3.0 * sum(range(size))))
    works = [dist.all_reduce(torch.full((1000,), float(j), device=DEVICE), async_op=True)
             for j in range(20)]
    done = torch.futures.collect_all([work.get_future() for work in works]).wait()
    for j, one in enumerate(done):
        # The future of all operations has no devices: it orders no stream.
        same(one.wait()[0], torch.full((1000,), float(j * size), device=DEVICE))


def groups(rank: int, size: int) -> None:
    """Tests several groups at a time, tensors of both kinds of memory, and the end of a group."""
    import torch
    import torch.distributed as dist

    from torch_cases import DEVICE, same

    all_groups = [dist.new_group() for _ in range(4)]
    streams = [torch.cuda.Stream() for _ in all_groups]
    tensors = []
    for turn in range(5):
        for number, (group, stream) in enumerate(zip(all_groups, streams)):
            with torch.cuda.stream(stream):
                tensor = torch.full((30_000,), float(rank + number + turn), device=DEVICE)
                dist.all_reduce(tensor, group=group)
                tensors.append((tensor, float(sum(j + number + turn for j in range(size))), stream))
    for tensor, expected, stream in tensors:
        stream.synchronize()
        same(tensor, torch.full_like(tensor, expected))
    mixed = torch.full((5000,), float(rank), device=DEVICE if rank == 0 else "cpu")
    dist.all_reduce(mixed)
    torch.cuda.synchronize()
    assert mixed.cpu().eq(sum(range(size))).all()
    peer = rank ^ 1
    if peer < size:
        sent = dist.isend(torch.full((40,), float(rank), device=DEVICE), peer)  # both first
        received = torch.zeros(40, device="cpu" if rank == 0 else DEVICE)
        dist.recv(received, peer)
        sent.wait()
        assert received.cpu().eq(peer).all()
    for group in all_groups:
        dist.destroy_process_group(group)
    backend = dist.new_group(backend="cpu:gloo,cuda:whorl")
    both = [torch.ones(3), torch.ones(3, device=DEVICE)]
    for tensor in both:
        dist.all_reduce(tensor, group=backend)
        assert tensor.cpu().eq(size).all()


def cases() -> dict:
    import torch_cases

    return {**torch_cases.CASES, "stream_order": stream_order, "futures": futures, "groups": groups}


def main() -> None:
    if machine.am_rank():
        sys.path.insert(0, os.environ[VARIABLE])
        rank, size, port = machine.rank_and_size()
        import torch.distributed as dist

        import torch_cases
        import whorl_torch  # noqa: F401  # registers the backend

        torch_cases.begin("whorl", rank, size, port)
        machine.do_parts(cases())
        dist.destroy_process_group()
        return
    machine.need_device()
    os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
    machine.need_torch("the backend whorl")
    if sys.argv[1:2] == ["build"]:
        extension(Path(sys.argv[2]).resolve())
        return
    parts = machine.choose(cases())
    named = os.environ.get(VARIABLE)
    folder = Path(named) if named else extension(Path(tempfile.mkdtemp(prefix="whorl-torch-")))
    import torch_cases

    results = machine.run_parts(
        parts, (2, 4), torch_cases.new_store,
        machine.environment(**{VARIABLE: str(folder), "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}))
    machine.finish(results)


if __name__ == "__main__":
    main()
