#!/usr/bin/env python3
"""Rules of includes: each room may include only the rooms named here. docs/hacking.md has a row for
each room of the library, whose last column must say the same."""
import pathlib
import re
import sys

from sources import SUFFIXES, read, tracked


def rooms(text):
    """Returns the set of rooms that `text` names; a bare name is a folder of src/."""
    outside = {"include", "topology", "algorithms", "transports", "bindings", "perf", "examples", "tools"}
    return {name if name.split("/")[0] in outside else "src/" + name for name in text.split()}


# room: (rooms that it may include besides itself, other libraries that it may include)
ROOMS = {
    "include": (set(), set()),
    "src/base": (set(), {"fmt"}),
    "src/net": (rooms("base"), {"fmt", "openssl"}),
    "src/memory": (rooms("base"), {"fmt"}),
    "src/monitor": (rooms("base"), {"fmt", "nlohmann"}),
    "src/launchers": (rooms("base"), {"fmt", "pmix"}),
    "src/node": (rooms("base net"), {"fmt"}),
    "src/bootstrap": (rooms("base net launchers"), {"fmt"}),
    "src/kernels": (rooms("base"), {"fmt"}),
    "src/schedule": (rooms("base"), {"fmt", "nlohmann"}),
    "src/gpu": (rooms("base kernels"), {"fmt", "cuda"}),
    "topology": (rooms("base gpu"), {"fmt", "hwloc", "nlohmann", "pugixml", "yaml-cpp"}),
    "algorithms": (rooms("base schedule"), {"fmt"}),
    "transports": (rooms("base net memory node"), {"fmt", "infiniband", "ucp"}),
    "src/exec": (rooms("base kernels schedule"), {"fmt"}),
    "src/tuning": (rooms("base kernels algorithms transports"), {"fmt", "nlohmann"}),
    "src/engine": (rooms("base kernels schedule algorithms transports exec tuning monitor"), {"fmt"}),
    "src/device": (rooms("base kernels schedule algorithms memory node gpu exec tuning engine"),
                   {"fmt", "cuda"}),
    "src/comm": (rooms("base include net node memory kernels algorithms topology transports bootstrap "
                       "exec tuning engine device monitor"), {"fmt"}),
    "src/api": (rooms("base include memory bootstrap engine device comm"), {"fmt"}),
    "bindings": (rooms("include"), None),
    "perf": (rooms("include tools/cli"), None),
    "perf/micro": (rooms("perf include base kernels schedule algorithms transports exec"),
                   {"benchmark", "CLI"}),
    "perf/gpu": (rooms("perf include base kernels"), None),  # the arithmetic to compare with
    "examples": (rooms("include"), set()),
    "tools/cli": (rooms("include"), {"fmt", "CLI"}),
    "tools": (rooms("include tools/cli perf base net launchers monitor schedule algorithms gpu topology tuning comm "
                    "api"),
              {"fmt", "nlohmann", "CLI"}),
    "tests": (None, None),
    "tests/support/ptx": (set(), {"cuda"}),
}
# Single headers that a room may include in addition.
HEADERS = {"src/exec": {"transports/endpoint.h"}, "bindings": {"base/lasting.h"},
           "tests/support/ptx": {"tests/simulation/random.h"}}
LIBRARIES = {"fmt", "nlohmann", "openssl", "hwloc", "pugixml", "pmix", "CLI", "benchmark", "gtest", "gmock",
             "mpi", "infiniband", "ucp", "torch", "nccl", "yaml-cpp"}
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.M)


def room_of(path):
    """Returns the room of a file of the repository."""
    parts = str(path).split("/")
    one, two, three = ("/".join(parts[:n]) for n in (1, 2, 3))
    return three if three in ROOMS else two if one == "src" or two in ROOMS else one


def resolve(name, exists):
    """Returns the file of the repository that `#include "name"` means, or None."""
    for prefix in ("", "src/", "include/"):
        if exists(prefix + name):
            return prefix + name
    return None


def violations(path, text, exists):
    """Returns sentences about the includes of one file that its room does not allow."""
    room = room_of(path)
    seen, libraries = ROOMS.get(room, (None, None))
    for match in INCLUDE.finditer(text):
        quote, name = match.groups()
        where = f"{path}:{text.count(chr(10), 0, match.start(2)) + 1}"
        target = resolve(name, exists)
        if target is None:
            beside = str(path).rsplit("/", 1)[0] + "/" + name
            if quote == '"' and exists(beside) and room != "tests":
                yield (f"{where}: \"{name}\" is written relative to its own folder; the rule: "
                       f"includes are relative to src/ or to the root of the repository")
            library = re.split(r"[/.]", name)[0].split("_")[0]
            if libraries is not None and library in LIBRARIES - libraries:
                yield (f"{where}: <{name}> is a library that {room} may not use; the rule: "
                       f"{room} -> {', '.join(sorted(libraries)) or 'the standard library only'}")
            continue
        target_room = room_of(target)
        if target_room == room or name in HEADERS.get(room, ()):
            continue
        if seen is not None and target_room not in seen:
            rule = sorted(seen | HEADERS.get(room, set()))
            yield (f"{where}: {room} may not include \"{name}\" ({target_room}); the rule: "
                   f"{room} -> {', '.join(rule) or 'nothing else'}")


def allowed(room):
    """Returns what `room` may include besides fmt, as the table of docs/hacking.md says it."""
    seen, libraries = ROOMS[room]
    names = sorted(name.removeprefix("src/") for name in seen)
    names += sorted(f"`{header}`" for header in HEADERS.get(room, ()))
    return "; ".join(filter(None, [", ".join(names), ", ".join(sorted(libraries - {"fmt"}))])) or "nothing"


def wrong_rows(page):
    """Returns sentences about the rooms of the library whose row in `page` is missing or wrong."""
    rows = dict(re.findall(r"^\| `([^`]+)` \| [^|]* \| ([^|]*) \|$", page, re.M))
    for room, (seen, libraries) in ROOMS.items():
        if seen is None or libraries is None:
            continue
        if rows.get(room) != allowed(room):
            yield (f"docs/hacking.md: the row of `{room}` must end with | {allowed(room)} |, "
                   f"but it has {rows.get(room)}")


def main():
    files = tracked(SUFFIXES)
    known = {str(path) for path in files}
    problems = [line for path in files
                for line in violations(path, read(path), known.__contains__)]
    for path in files:
        if room_of(path) not in ROOMS:
            problems.append(f"{path}: no rule for this folder; add it to tests/lint/include_rules.py")
    problems += wrong_rows(read(pathlib.Path("docs/hacking.md")))
    print("\n".join(problems) or f"{len(files)} files keep the include rules")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
