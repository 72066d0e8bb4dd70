#!/usr/bin/env python3
"""Runs one command in a virtual machine with two RDMA devices, rxe0 and rxe1 (software RoCE).

The machine needs neither hardware, nor KVM, nor root: qemu interprets Debian's kernel, whose root is this host's
file system beneath a layer in memory. So the command finds the same programs, libraries and working directory, and
what it writes is lost, except below the folder of --writable. Its output and exit code are the command's; 77: no
machine can be had here, 124: the time is up, 125: the machine failed."""
import argparse
import contextlib
import io
import os
import pathlib
import platform
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence

from kernel import Unavailable, kernel

HERE = pathlib.Path(__file__).resolve().parent
SKIPPED, TIMED_OUT, BROKEN = 77, 124, 125
PACKAGES = {"qemu-system-x86_64": "qemu-system-x86", "busybox": "busybox-static", "rdma": "iproute2",
            "dpkg-deb": "dpkg", "apt-get": "apt"}
# The time of a boot is 4 s on an idle machine. One that takes this long will not end.
BOOT_TIMEOUT_S = 120


def needs() -> None:
    """Raises Unavailable if the machine cannot be had."""
    if platform.machine() != "x86_64":
        raise Unavailable(f"the machine's kernel is for x86-64, this host is {platform.machine()}")
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    missing = [package for program, package in PACKAGES.items() if not shutil.which(program, path=path)]
    if missing:
        raise Unavailable(f"these Debian packages are not installed: {' '.join(missing)}")
    if b"/ld-linux" in pathlib.Path(str(shutil.which("busybox", path=path))).read_bytes()[:4096]:
        raise Unavailable("busybox needs libraries; the Debian package busybox-static does not")


class Archive:
    """An initial file system in the kernel's cpio format ("newc")."""

    def __init__(self) -> None:
        self.out = io.BytesIO()
        self.count = 0

    def add(self, name: str, data: bytes = b"", mode: int = 0o100644) -> None:
        self.count += 1
        fields = (self.count, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name) + 1, 0)
        self.out.write(b"070701" + b"".join(b"%08X" % field for field in fields) + name.encode() + b"\0")
        self.pad()
        self.out.write(data)
        self.pad()

    def folder(self, name: str) -> None:
        self.add(name, mode=0o040755)

    def pad(self) -> None:
        self.out.write(bytes(-self.out.tell() % 4))

    def bytes(self) -> bytes:
        self.add("TRAILER!!!", mode=0)
        return self.out.getvalue()


def initial_files(unpacked: pathlib.Path, command: Sequence[str], writable: str) -> bytes:
    environment = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in os.environ.items()
                          if name.isidentifier() and name not in ("OLDPWD", "SHLVL", "TMPDIR"))
    job = {"environment.sh": f"{environment}export PATH=\"$PATH:/usr/sbin:/sbin\"\ncd {shlex.quote(os.getcwd())}\n",
           "command.sh": f"exec {shlex.join(command)}\n", "writable": writable,
           "devices.sh": (HERE / "devices.sh").read_text()}
    files = Archive()
    for folder in ("bin", "dev", "job", "layer", "lower", "modules", "proc", "root", "sys"):
        files.folder(folder)
    files.add("init", (HERE / "guest_init.sh").read_bytes(), 0o100755)
    files.add("bin/busybox", pathlib.Path(str(shutil.which("busybox"))).read_bytes(), 0o100755)
    files.add("order", (unpacked / "order").read_bytes())
    for module in sorted((unpacked / "modules").iterdir()):
        files.add(f"modules/{module.name}", module.read_bytes())
    for name, text in job.items():
        files.add(f"job/{name}", text.encode())
    return files.bytes()


def machine(unpacked: pathlib.Path, scratch: pathlib.Path, writable: str, memory_mib: int) -> "list[str]":
    """Returns the command line of qemu."""
    # Addresses are not randomised (norandmaps), because the thread sanitizer cannot work with randomised ones.
    line = ["qemu-system-x86_64", "-no-user-config", "-nodefaults", "-display", "none", "-no-reboot",
            # Long copies by one instruction, and five levels of pages, are slow to interpret.
            "-accel", "tcg,thread=multi", "-cpu", "max,-erms,-fsrm,la57=off", "-m", str(memory_mib), "-smp", "2",
            "-kernel", str(unpacked / "kernel"), "-initrd", str(scratch / "initrd"),
            "-append", "console=ttyS0 loglevel=4 panic=-1 nokaslr norandmaps mitigations=off no_timer_check "
            "tsc=reliable maxcpus=1",
            "-fsdev", "local,id=host,path=/,security_model=none,readonly=on,multidevs=remap",
            "-device", "virtio-9p-pci,fsdev=host,mount_tag=host",
            "-serial", f"file:{scratch / 'console'}", "-serial", f"file:{scratch / 'code'}",
            "-device", "virtio-serial-pci", "-chardev", f"socket,id=output,path={scratch / 'output'},server=off",
            "-device", "virtserialport,chardev=output,nr=1"]
    if writable:
        line += ["-fsdev", f"local,id=writable,path={writable},security_model=none,multidevs=remap",
                 "-device", "virtio-9p-pci,fsdev=writable,mount_tag=writable"]
    return line


def copy_output(listener: socket.socket) -> None:
    connection, _ = listener.accept()
    with connection:
        while data := connection.recv(65536):
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()


def text_of(path: pathlib.Path) -> str:
    return path.read_text(errors="replace").replace("\r", "") if path.exists() else ""


@contextlib.contextmanager
def started(line: "list[str]") -> "Iterator[subprocess.Popen[bytes]]":
    qemu = subprocess.Popen(line, stdin=subprocess.DEVNULL)
    try:
        yield qemu
    finally:
        if qemu.poll() is None:
            qemu.kill()
        qemu.wait()


def run(command: Sequence[str], timeout_s: float, writable: str = "", memory_mib: int = 2048) -> int:
    """Runs `command` in a fresh machine and returns its exit code. A machine that does not boot is tried twice."""
    needs()
    unpacked = kernel()
    for attempt in (1, 2):
        with tempfile.TemporaryDirectory(prefix="whorl-rdma-") as name:
            scratch = pathlib.Path(name)
            (scratch / "initrd").write_bytes(initial_files(unpacked, command, writable))
            code = attend(machine(unpacked, scratch, writable, memory_mib), scratch, timeout_s)
            if code is not None:
                return code
            console = text_of(scratch / "console")[-3000:]
        print(f"rdma: the machine has not booted in {BOOT_TIMEOUT_S} s (attempt {attempt})", file=sys.stderr)
    print(console, file=sys.stderr)
    return BROKEN


def attend(line: "list[str]", scratch: pathlib.Path, timeout_s: float) -> "int | None":
    """Waits for the end of the machine and returns the exit code of its command; None: it has not booted."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(scratch / "output"))
        listener.listen(1)
        copier = threading.Thread(target=copy_output, args=(listener,), daemon=True)
        copier.start()
        began = time.monotonic()
        ready = False
        with started(line) as qemu:
            while qemu.poll() is None:
                time.sleep(0.05)
                ready = ready or "the guest is ready" in text_of(scratch / "console")
                if time.monotonic() - began > timeout_s:
                    print(f"rdma: the time limit of {timeout_s:.0f} s is over", file=sys.stderr)
                    return TIMED_OUT
                if not ready and time.monotonic() - began > BOOT_TIMEOUT_S:
                    return None
        copier.join(timeout=5)
        code = text_of(scratch / "code").strip()
        if not code.isdigit():
            print(text_of(scratch / "console")[-3000:], file=sys.stderr)
            print(f"rdma: the machine ended without an exit code (qemu's: {qemu.returncode})", file=sys.stderr)
            return BROKEN
        return int(code)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--timeout", type=float, default=600, metavar="SECONDS", help="limit for the whole run")
    parser.add_argument("--writable", default="", metavar="FOLDER", help="folder of this host that may be written to")
    parser.add_argument("--memory", type=int, default=2048, metavar="MIB", help="memory of the machine")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="command and its arguments")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # and so end the machine
    command = given.command[1:] if given.command[:1] == ["--"] else given.command
    if not command:
        parser.error("a command is missing")
    try:
        return run(command, given.timeout, os.path.realpath(given.writable) if given.writable else "",
                   given.memory)
    except Unavailable as reason:
        print(f"skipped: no virtual machine with RDMA devices: {reason}")
        return SKIPPED


if __name__ == "__main__":
    sys.exit(main())
