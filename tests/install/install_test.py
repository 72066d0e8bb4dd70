#!/usr/bin/env python3
"""Installs a build below a temporary folder, then builds and runs a C and a C++ program against it,
as a user would: by pkg-config, also statically, or by CMake; or checks programs and their pages. Their paths contain no
folder of the source tree."""
import argparse
import json
import os
import pathlib
import re
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


def build_options(build):
    """Returns the values of Meson's options in a build."""
    options = json.loads(subprocess.run(["meson", "introspect", build, "--buildoptions"], check=True,
                                        capture_output=True, text=True).stdout)
    return {option["name"]: option["value"] for option in options}


def install(build, root):
    """Installs below `root`; returns the folders of libraries there and the prefix."""
    run(["meson", "install", "-C", build, "--no-rebuild", "--quiet", "--destdir", root])
    value = build_options(build)
    if value.get("b_sanitize", "none") not in ("none", []):  # a list from Meson 1.8 on
        skip("programs built without the sanitizers cannot load a library built with them")
    prefix = root / value["prefix"].lstrip("/")
    return prefix, prefix / value["libdir"]


def readme_program():
    """Returns the first program of README.md."""
    text = (HERE.parents[1] / "README.md").read_text(encoding="utf-8")
    return re.search(r"```c\n(.*?)```", text, re.S).group(1)


def with_pkg_config(work, root, libraries, environment, static=False):
    if shutil.which("pkg-config") is None:
        skip("pkg-config is not installed (apt-get install pkg-config)")
    if static:
        if not (libraries / "libwhorl.a").exists():
            skip("this build has no archive (-Ddefault_library=shared)")
        for library in libraries.glob("libwhorl.so*"):
            library.unlink()
    flags = subprocess.run(["pkg-config", "--cflags", "--libs", *(["--static"] if static else []), "whorl"],
                           check=True, text=True, capture_output=True,
                           env={**environment, "PKG_CONFIG_SYSROOT_DIR": str(root),
                                "PKG_CONFIG_PATH": str(libraries / "pkgconfig")}).stdout.split()
    sources = [HERE / "program.c", HERE / "program.cc", work / "readme.c"]
    sources[2].write_text(readme_program(), encoding="utf-8")
    for source in sources:
        compiler, standard = ("cc", "-std=c11") if source.suffix == ".c" else ("c++", "-std=c++20")
        program = work / f"{source.name}.out"
        run([compiler, standard, "-Wall", "-Wextra", "-Werror", source, "-o", program, *flags])
        printed = run([program], env={**environment, "LD_LIBRARY_PATH": str(libraries)},
                      stdout=subprocess.PIPE, text=True).stdout
        print(printed, end="")
        if source.name == "readme.c" and "rank 0: 1 ranks, their numbers add up to 0" not in printed:
            sys.exit("the program of README.md prints something else")


def check_folders(build, prefix, libraries):
    """Requires libraries to be in a folder that ld.so and pkg-config of Debian search, also where
    dpkg-architecture is not installed, unless the build names another, the licence, and no names of other programs."""
    chosen = (build / "meson-private/cmd_line.txt").read_text(encoding="utf-8")
    if libraries != prefix / "lib" and "libdir" not in chosen:
        sys.exit(f"libraries go to {libraries} by default")
    if not (libraries / "libwhorl.so").exists() and not (libraries / "libwhorl.a").exists():
        sys.exit(f"there is no library in {libraries}")
    if not (prefix / "share/doc/whorl/LICENSE").exists():
        sys.exit("the licence is not installed")
    foreign = [one.name for one in (prefix / "bin").iterdir() if not one.name.startswith("whorl-")]
    if foreign:
        sys.exit(f"names of other programs in bin: {foreign}")


def render(page):
    """Requires `man` to show a page without a warning."""
    shown = subprocess.run(["man", "--warnings", "-l", page], capture_output=True, text=True,
                           env={**os.environ, "MANWIDTH": "100", "LC_ALL": "C.UTF-8"}, check=True)
    if shown.stderr or "SYNOPSIS" not in shown.stdout:
        sys.exit(f"{page.name}: {shown.stderr or 'an empty page'}")


def complete(script, name, *words):
    """Returns what bash offers after the words of a command line, the last of which is begun."""
    code = (f"source {script}; COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); _{name.replace('-', '_')};"
            'printf "%s\\n" "${COMPREPLY[@]}"')
    return subprocess.run(["bash", "-c", code, "bash", name, *words], check=True, capture_output=True,
                          text=True).stdout.split()


def with_pages(prefix):
    programs = sorted(one.name for one in (prefix / "bin").iterdir())
    if not programs:
        skip("no program is built: CLI11 is missing (apt-get install libcli11-dev)")
    for name in programs:
        shown = subprocess.run([prefix / "bin" / name, "--help"], check=True, capture_output=True, text=True).stdout
        script = prefix / "share/bash-completion/completions" / name
        page = (prefix / "share/man/man1" / f"{name}.1").read_text(encoding="utf-8").replace("\\-", "-")
        for option in set(re.findall(r"^ +(?:-\w,)?(--[\w-]+)", shown, re.M)):
            if option not in page:
                sys.exit(f"the manual page of {name} lacks {option}")
            if option not in complete(script, name, option):
                sys.exit(f"the completion of {name} lacks {option}: {complete(script, name, option)}")
    if "whorl-perf" in programs:
        if complete(prefix / "share/bash-completion/completions/whorl-perf", "whorl-perf", "all_r") != ["all_reduce"]:
            sys.exit("collectives are not completed")
        run([prefix / "bin/whorl-perf", "all_reduce", "--ranks", "2", "-e", "64", "-n", "3"], stdout=subprocess.DEVNULL)
    if shutil.which("man") is None:
        skip("man is not installed (apt-get install man-db), pages are not rendered")
    for name in programs:
        render(prefix / "share/man/man1" / f"{name}.1")


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
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--with", dest="way", choices=["pkg-config", "static", "cmake", "pages"], required=True)
    arguments = parser.parse_args()
    environment = {key: value for key, value in os.environ.items()
                   if key not in ("DESTDIR", "LD_LIBRARY_PATH", "CFLAGS", "CXXFLAGS", "LDFLAGS")}
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder) / "work"
        work.mkdir()
        root = pathlib.Path(folder) / "root"
        prefix, libraries = install(arguments.build, root)
        check_folders(arguments.build, prefix, libraries)
        if arguments.way == "pages":
            with_pages(prefix)
        elif arguments.way in ("pkg-config", "static"):
            with_pkg_config(work, root, libraries, environment, static=arguments.way == "static")
        else:
            with_cmake(work, prefix, environment)


if __name__ == "__main__":
    main()
