#!/usr/bin/env python3
"""Installs a build below a temporary folder, then builds and runs a C and a C++ program against it,
as a user would: by pkg-config or by CMake. Their paths contain no folder of the source tree."""
import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent


def skip(reason):
    print(reason)
    sys.exit(77)


def run(command, **options):
    print("+", " ".join(map(str, command)), flush=True)
    return subprocess.run(command, check=True, **options)


def install(build, root):
    """Installs below `root`; returns the folders of libraries there and the prefix."""
    run(["meson", "install", "-C", build, "--no-rebuild", "--quiet", "--destdir", root])
    options = json.loads(subprocess.run(["meson", "introspect", build, "--buildoptions"], check=True,
                                        capture_output=True, text=True).stdout)
    value = {option["name"]: option["value"] for option in options}
    if value.get("b_sanitize", "none") != "none":
        skip("programs built without the sanitizers cannot load a library built with them")
    prefix = root / value["prefix"].lstrip("/")
    return prefix, prefix / value["libdir"]


def with_pkg_config(work, root, libraries, environment):
    if shutil.which("pkg-config") is None:
        skip("pkg-config is not installed (apt-get install pkg-config)")
    flags = subprocess.run(["pkg-config", "--cflags", "--libs", "whorl"], check=True, text=True,
                           capture_output=True,
                           env={**environment, "PKG_CONFIG_SYSROOT_DIR": str(root),
                                "PKG_CONFIG_PATH": str(libraries / "pkgconfig")}).stdout.split()
    for compiler, source in (("cc", "program.c"), ("c++", "program.cc")):
        standard = "-std=c11" if compiler == "cc" else "-std=c++20"
        run([compiler, standard, "-Wall", "-Wextra", "-Werror", HERE / source,
             "-o", work / f"{source}.out", *flags])
        run([work / f"{source}.out"], env={**environment, "LD_LIBRARY_PATH": str(libraries)})


def with_cmake(work, prefix, environment):
    if shutil.which("cmake") is None:
        skip("cmake is not installed (apt-get install cmake)")
    for name in ("program.c", "program.cc", "CMakeLists.txt"):
        shutil.copy(HERE / name, work)
    run(["cmake", "-S", work, "-B", work / "out", f"-DCMAKE_PREFIX_PATH={prefix}"],
        env=environment, stdout=subprocess.DEVNULL)
    run(["cmake", "--build", work / "out"], env=environment, stdout=subprocess.DEVNULL)
    for program in ("program_c", "program_cc"):
        run([work / "out" / program], env=environment)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True)
    parser.add_argument("--with", dest="way", choices=["pkg-config", "cmake"], required=True)
    arguments = parser.parse_args()
    environment = {key: value for key, value in os.environ.items()
                   if key not in ("DESTDIR", "LD_LIBRARY_PATH", "CFLAGS", "CXXFLAGS", "LDFLAGS")}
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder) / "work"
        work.mkdir()
        root = pathlib.Path(folder) / "root"
        prefix, libraries = install(arguments.build, root)
        if arguments.way == "pkg-config":
            with_pkg_config(work, root, libraries, environment)
        else:
            with_cmake(work, prefix, environment)


if __name__ == "__main__":
    main()
