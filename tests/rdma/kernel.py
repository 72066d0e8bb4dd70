"""The kernel of the virtual machine: Debian's own, unpacked into a cache and never installed."""
import contextlib
import fcntl
import gzip
import lzma
import os
import pathlib
import shutil
import subprocess
import tempfile
from collections.abc import Iterator

# Modules that the guest loads, each after those that it depends on. The second group is absent from some
# kernels, or built in.
MODULES = ("virtio_pci", "virtio_console", "9pnet_virtio", "9p", "overlay", "rdma_rxe", "rdma_ucm", "ib_umad",
           "veth", "sch_netem")
MODULES_IF_ANY = ("crc32_generic",)  # rdma_rxe asks for this checksum by name when a device is added


class Unavailable(Exception):
    """The reason why a virtual machine cannot be had on this host."""


def cache_folder() -> pathlib.Path:
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return pathlib.Path(base) / "whorl" / "rdma-kernel"


@contextlib.contextmanager
def locked(folder: pathlib.Path) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def kernel() -> pathlib.Path:
    """Returns the folder with `kernel`, `order` (names of modules in the order of loading) and `modules/`, which
    the first call downloads."""
    cache = cache_folder()
    with locked(cache):
        ready = cache / "unpacked"
        if not ready.exists():
            with tempfile.TemporaryDirectory(dir=cache) as scratch:
                made = pathlib.Path(scratch) / "made"
                unpack(download(pathlib.Path(scratch)), pathlib.Path(scratch), made)
                made.rename(ready)
        return ready


def output(*command: str, cwd: "pathlib.Path | None" = None) -> str:
    try:
        done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=True)
    except FileNotFoundError as missing:
        raise Unavailable(f"{command[0]} is not installed") from missing
    except subprocess.CalledProcessError as failed:
        raise Unavailable(f"`{' '.join(command)}` failed: {failed.stderr.strip()[-300:]}") from failed
    return done.stdout


def download(folder: pathlib.Path) -> pathlib.Path:
    """Downloads the package of the newest kernel that apt knows."""
    packages = [line.split()[-1] for line in output("apt-cache", "depends", "linux-image-amd64").splitlines()
                if "Depends: linux-image-" in line]
    if not packages:
        raise Unavailable("apt knows no linux-image-amd64; `apt-get update` as root may help")
    output("apt-get", "-qq", "download", packages[0], cwd=folder)
    return next(folder.glob("linux-image-*.deb"))


def unpack(package: pathlib.Path, scratch: pathlib.Path, made: pathlib.Path) -> None:
    root = scratch / "root"
    output("dpkg-deb", "-x", str(package), str(root))
    tree = next((root / "lib/modules").iterdir())
    (made / "modules").mkdir(parents=True)
    order = []  # type: list[str]
    for name in MODULES_IF_ANY + MODULES:
        add_module(tree, name, name in MODULES_IF_ANY, made / "modules", order)
    (made / "order").write_text("".join(name + "\n" for name in order))
    image = next((root / "boot").glob("vmlinuz-*"))
    (made / "kernel").write_bytes(uncompressed(image.read_bytes()))


def add_module(tree: pathlib.Path, name: str, optional: bool, folder: pathlib.Path, order: "list[str]") -> None:
    """Writes a module and, before it, those that it depends on, to `folder` and their names to `order`."""
    if name in order:
        return
    spellings = {name, name.replace("_", "-")}
    files = [path for spelling in spellings for path in tree.rglob(f"{spelling}.ko*")]
    if not files:
        built_in = {pathlib.PurePath(line).stem.replace("-", "_")
                    for line in (tree / "modules.builtin").read_text().splitlines()}
        if optional or name in built_in:
            return
        raise Unavailable(f"Debian's kernel {tree.name} has no module {name}")
    data = files[0].read_bytes()
    if files[0].suffix == ".xz":
        data = lzma.decompress(data)
    for field in data.split(b"\0"):
        if field.startswith(b"depends="):
            for needed in filter(None, field[8:].decode().split(",")):
                add_module(tree, needed, False, folder, order)
            break
    (folder / f"{name}.ko").write_bytes(data)
    order.append(name)


def uncompressed(image: bytes) -> bytes:
    """Takes the ELF kernel out of a bzImage, which boots without decompression in the guest; returns the image
    itself where its format is another one. Offsets are those of the kernel's boot protocol."""
    setup_sectors = image[0x1f1] or 4
    begin = (setup_sectors + 1) * 512 + int.from_bytes(image[0x248:0x24c], "little")
    payload = image[begin:begin + int.from_bytes(image[0x24c:0x250], "little")]
    with contextlib.suppress(lzma.LZMAError, OSError, EOFError):
        if payload.startswith(b"\xfd7zXZ"):
            elf = lzma.LZMADecompressor().decompress(payload)
        elif payload.startswith(b"\x1f\x8b"):
            elf = gzip.decompress(payload)
        elif payload.startswith(b"\x28\xb5\x2f\xfd") and shutil.which("zstd"):
            elf = subprocess.run(["zstd", "-qdc"], input=payload, capture_output=True).stdout
        else:
            return image
        if elf.startswith(b"\x7fELF"):
            return elf
    return image
