#!/usr/bin/env python3
"""usage: changes_test.py CC...: abi.py finds changes of the headers that break programs, and passes others."""
import pathlib
import shutil
import sys
import tempfile

from abi import INCLUDE, build, differences, write

GROWN = ("} whorlConfig_t;", "uint64_t end; } whorlConfig_t;")
# What changes: the header, a text in it and what replaces that text, another text and its replacement, …
BREAKS = {
    "function removed": ("whorl.h", "WHORL_API whorlResult_t whorlBarrier(", "static whorlResult_t whorlBarrier("),
    "argument of another type": ("whorl.h", "whorlBcast(void* buff, size_t", "whorlBcast(void* buff, int"),
    "handle of another type": ("types.h", "typedef struct whorlEvent*", "typedef int"),
    "struct of the caller's grown": ("whorl.h", "} whorlOob_t;", "void* end; } whorlOob_t;"),
    "array longer": ("types.h", "WHORL_UNIQUE_ID_BYTES 128", "WHORL_UNIQUE_ID_BYTES 256"),
    "member inserted": ("types.h", "int minCTAs;", "int more; int minCTAs;"),
    "member inserted, and one added": ("types.h", "int minCTAs;", "int more; int minCTAs;", *GROWN),
    "member of another type": ("types.h", "int minCTAs;", "unsigned minCTAs;"),
    "member of another type, and one added": ("types.h", "int minCTAs;", "float minCTAs;", *GROWN),
    "member removed": ("types.h", "const char* commName;", ""),
    "value of an enumerator": ("types.h", "whorlFloat16 = 6", "whorlFloat16 = 60"),
    "value of a synonym": ("types.h", "whorlHalf = 6", "whorlHalf = 7"),
    "enumerator removed": ("types.h", "whorlBool = 14,", ""),
    "value of a macro": ("types.h", "WHORL_SHRINK_ABORT 1", "WHORL_SHRINK_ABORT 0"),
    "macro removed": ("types.h", "#define WHORL_SPLIT_NOCOLOR", "#define WHORL_NOCOLOR"),
    "event of profilers": ("profiler.h", "int root;", "int more[2]; int root;"),
    "function of profilers": ("profiler.h", "(*startEvent)(void* context, void**", "(*startEvent)(void* context, int"),
    "constant of profilers": ("profiler.h", "whorlProfileP2p = 1 << 2", "whorlProfileP2p = 1 << 3"),
}
PASSES = {
    "nothing": ("types.h",),
    "function added": ("whorl.h", "WHORL_API", "WHORL_API int whorlMore(int);\nWHORL_API"),
    "argument renamed": ("whorl.h", "whorlBcast(void* buff", "whorlBcast(void* data"),
    "datatype added": ("types.h", "whorlNumTypes = 15", "whorlMore = 15, whorlNumTypes = 16"),
    "macro added": ("types.h", "#define WHORL_SHRINK_ABORT", "#define WHORL_SHRINK_MORE 2\n#define WHORL_SHRINK_ABORT"),
    "configuration grown": ("types.h", *GROWN),
    "event of profilers grown": ("profiler.h", "} whorlProfilerEvent_v1_t;", "void* end; } whorlProfilerEvent_v1_t;"),
    "new release": ("types.h", "WHORL_RELEASE_MINOR 1", "WHORL_RELEASE_MINOR 9"),
}


def changed(folder, header, *edits):
    """Returns what abi.py finds after edits of a header."""
    include = folder / "include"
    shutil.copytree(INCLUDE, include, dirs_exist_ok=True)
    path = include / "whorl" / header
    text = path.read_text(encoding="utf-8")
    for old, new in zip(edits[::2], edits[1::2]):
        assert old in text, f"{header} has no longer \"{old}\""
        text = text.replace(old, new, 1)
    path.write_text(text, encoding="utf-8")
    return differences(folder / "before.abi", build(sys.argv[1:], include, folder))


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        write(folder / "before.abi", build(sys.argv[1:], INCLUDE, folder))
        wrong = [f"not found: {what}" for what, edits in BREAKS.items() if not changed(folder, *edits)]
        found = {what: changed(folder, *edits) for what, edits in PASSES.items()}
    wrong += [f"{what}, taken for a change that breaks programs:\n{text}" for what, text in found.items() if text]
    print("\n".join(wrong) or f"{len(BREAKS)} changes found, {len(PASSES)} passed")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
