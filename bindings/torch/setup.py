"""Builds the extension against the installed torch, and finds or builds libwhorl.

libwhorl comes from WHORL_ROOT (an installation prefix or a build directory of this repository),
else from pkg-config, else it is built here with meson, with kernels for devices only if WHORL_WITH_CUDA=1.
It is copied into the package.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import setup

# An earlier build of this package, for another torch say, must not keep torch from being imported.
os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
from torch.utils.cpp_extension import BuildExtension, CppExtension  # noqa: E402

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
LIBRARY = "libwhorl.so.0"
PLACES = ("lib", "lib64", "lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu", "src", ".")


def under(prefix: Path) -> Path | None:
    """The library below an installation prefix or a build directory."""
    for place in PLACES:
        candidate = prefix / place / LIBRARY
        if candidate.exists():
            return candidate
    return None


def from_environment() -> Path | None:
    prefix = os.environ.get("WHORL_ROOT")
    if not prefix:
        return None
    library = under(Path(prefix))
    if library is None:
        sys.exit(f"WHORL_ROOT is {prefix}, but there is no {LIBRARY} in {', '.join(PLACES)} below it")
    return library


def from_pkg_config() -> Path | None:
    if not shutil.which("pkg-config"):
        return None
    answer = subprocess.run(
        ["pkg-config", "--variable=libdir", "whorl"], capture_output=True, text=True, check=False
    )
    library = Path(answer.stdout.strip()) / LIBRARY
    return library if answer.returncode == 0 and library.exists() else None


def built_here(folder: Path) -> Path:
    for tool in ("meson", "ninja"):
        if not shutil.which(tool):
            sys.exit(
                f"whorl-torch: no libwhorl was found and {tool}, which builds it, is missing; "
                "install it, or set WHORL_ROOT to an installation of whorl"
            )
    cuda = "enabled" if os.environ.get("WHORL_WITH_CUDA") == "1" else "disabled"
    command = (
        ["configure", str(folder)] if (folder / "build.ninja").exists()
        else ["setup", str(folder), str(ROOT), "--buildtype=release", "-Dtests=disabled", "-Dperf=disabled"]
    )
    subprocess.run(["meson", *command, f"-Dcuda={cuda}"], check=True)
    name = "src/libwhorl.so"
    targets = subprocess.run(
        ["ninja", "-C", str(folder), "-t", "targets", "all"],
        capture_output=True, text=True, check=True,
    ).stdout
    real = next(
        line.split(":")[0]
        for line in targets.splitlines()
        if line.startswith(name) and line.split(":")[1].strip() == "cpp_LINKER"
    )
    subprocess.run(["ninja", "-C", str(folder), real], check=True)
    library = under(folder)
    if library is None:
        sys.exit(f"whorl-torch: meson did not make {LIBRARY} in {folder}")
    return library


class Build(BuildExtension):
    def build_extensions(self) -> None:
        library = from_environment() or from_pkg_config()
        if library is None:
            library = built_here(Path(self.build_temp).resolve() / "whorl")
        folder = Path(self.get_ext_fullpath("whorl_torch._C")).resolve().parent
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(library.resolve(), folder / LIBRARY)
        for extension in self.extensions:
            extension.extra_link_args += [str(folder / LIBRARY)]
        super().build_extensions()

    def copy_extensions_to_source(self) -> None:  # an editable installation
        super().copy_extensions_to_source()
        folder = Path(self.get_ext_fullpath("whorl_torch._C")).resolve().parent
        shutil.copyfile(Path(self.build_lib) / "whorl_torch" / LIBRARY, folder / LIBRARY)


# Sources that are compiled together, because torch's headers take most of the time of each: those
# that include Python's headers, and the others. Names in anonymous namespaces are distinct in a unit.
SOURCES = HERE / "src"
WITH_PYTHON = ("module", "python_future")


def units() -> list[str]:
    """Writes the units into the build folder, and returns their paths."""
    folder = HERE / "build" / "units"
    folder.mkdir(parents=True, exist_ok=True)
    sources = sorted(SOURCES.glob("*.cc"))
    made = []
    for name, with_python in (("python", True), ("backend", False)):
        unit = folder / f"{name}.cc"
        text = "".join(f'#include "{source.relative_to(ROOT)}"\n' for source in sources
                       if (source.stem in WITH_PYTHON) == with_python)
        if not unit.exists() or unit.read_text() != text:
            unit.write_text(text)
        made.append(str(unit.relative_to(HERE)))
    return made


setup(
    ext_modules=[
        CppExtension(
            "whorl_torch._C",
            units(),
            depends=[os.path.relpath(path, HERE)
                     for path in (*SOURCES.iterdir(), *(ROOT / "include").rglob("*.h"))],
            include_dirs=[str(ROOT), str(ROOT / "include")],
            extra_compile_args=["-std=c++20", "-O2", "-g0", "-Wall", "-Wextra",
                                "-Wno-unused-parameter", "-Wno-missing-field-initializers"],
            extra_link_args=["-Wl,-rpath,$ORIGIN"],
        )
    ],
    cmdclass={"build_ext": Build.with_options(use_ninja=True)},
)
