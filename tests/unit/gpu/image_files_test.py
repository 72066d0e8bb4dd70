#!/usr/bin/env python3
"""Checks that every image of kernels has machine code for the architectures of the build and the portable
form (PTX) for sm_80: image_files_test.py ARCHITECTURE,… FILE.fatbin…"""
import struct
import sys
from pathlib import Path

HEADER = struct.Struct("<IHHQ")  # magic number, version, bytes of this header, bytes after it
MAGIC = 0xBA55ED50
# Kind, version, bytes of the entry's header, bytes of its code; the architecture is at 28.
ENTRY = struct.Struct("<HHIQ")
KINDS = {1: "ptx", 2: "elf"}


def entries(image: bytes) -> list[str]:
    """What cuobjdump -lptx -lelf lists: elf80, elf90, ptx80."""
    magic, _, at, size = HEADER.unpack_from(image)
    if magic != MAGIC:
        raise ValueError(f"begins with {magic:#x}, not as an image of nvcc")
    found = []
    end = at + size
    while at < end:
        kind, _, header, code = ENTRY.unpack_from(image, at)
        (arch,) = struct.unpack_from("<I", image, at + 28)
        found.append(f"{KINDS.get(kind, kind)}{arch}")
        at += header + code
    return sorted(found)


def main() -> int:
    archs = [arch for arch in sys.argv[1].split(",") if arch]
    expected = sorted([f"elf{arch}" for arch in archs] + ["ptx80"])
    bad = 0
    for name in sys.argv[2:]:
        found = entries(Path(name).read_bytes())
        if found != expected:
            print(f"{name}: has {found}, should have {expected}")
            bad += 1
    print(f"{len(sys.argv) - 2} images, {bad} bad")
    return 1 if bad or len(sys.argv) < 3 else 0


if __name__ == "__main__":
    sys.exit(main())
