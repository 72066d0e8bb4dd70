"""Builds the extension against the installed torch, and finds or builds libwhorl (../libwhorl.py), which is
copied into the package.
"""

from __future__ import annotations

import os
import shlex
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
sys.path.insert(0, str(HERE.parent))
from libwhorl import LIBRARY, Package, find_or_build  # noqa: E402


def shared_cpp_library(compiler: str) -> list[str]:
    """Returns the argument for the linker that names the shared C++ library, so that it precedes a static one. Some
    Pythons link extensions by -static-libstdc++, and two copies of its locales in one process, torch's and the
    extension's, end the process at the first number that is printed."""
    command = [*shlex.split(compiler), "-print-file-name=libstdc++.so.6"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:  # torch says what is wrong with the compiler
        return []
    path = found.stdout.strip()
    return [path] if found.returncode == 0 and os.path.isabs(path) else []


class Build(BuildExtension):
    def build_extensions(self) -> None:
        library = find_or_build(Path(self.build_temp).resolve() / "whorl", "whorl-torch")
        folder = Path(self.get_ext_fullpath("whorl_torch._C")).resolve().parent
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(library.resolve(), folder / LIBRARY)
        for extension in self.extensions:
            extension.sources = write_units(Path(self.build_temp) / "units")
            extension.extra_link_args += [str(folder / LIBRARY), *shared_cpp_library(os.environ.get("CXX", "c++"))]
        super().build_extensions()

    def copy_extensions_to_source(self) -> None:  # an editable installation
        super().copy_extensions_to_source()
        folder = Path(self.get_ext_fullpath("whorl_torch._C")).resolve().parent
        shutil.copyfile(Path(self.build_lib) / "whorl_torch" / LIBRARY, folder / LIBRARY)


# Sources that are compiled together, because torch's headers take most of the time of each: those
# that include Python's headers, and the others. Names in anonymous namespaces are distinct in a unit.
SOURCES = HERE / "src"
WITH_PYTHON = ("module", "python_future")


def write_units(folder: Path) -> list[str]:
    """Writes the units into `folder`, and returns their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    sources = sorted(SOURCES.glob("*.cc"))
    made = []
    for name, with_python in (("python", True), ("backend", False)):
        unit = folder / f"{name}.cc"
        text = "".join(f'#include "{source.relative_to(ROOT)}"\n' for source in sources
                       if (source.stem in WITH_PYTHON) == with_python)
        if not unit.exists() or unit.read_text() != text:
            unit.write_text(text)
        made.append(str(unit))
    return made


setup(
    ext_modules=[
        CppExtension(
            "whorl_torch._C",
            [],  # build_extensions() writes them
            depends=[os.path.relpath(path, HERE)
                     for path in (*SOURCES.iterdir(), *(ROOT / "include").rglob("*.h"))],
            include_dirs=[str(ROOT), str(ROOT / "include")],
            extra_compile_args=["-std=c++20", "-O2", "-g0", "-Wall", "-Wextra",
                                "-Wno-unused-parameter", "-Wno-missing-field-initializers"],
            extra_link_args=["-Wl,-rpath,$ORIGIN"],
        )
    ],
    cmdclass={"build_ext": Build.with_options(use_ninja=True)},
    distclass=Package,
)
