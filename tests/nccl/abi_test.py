#!/usr/bin/env python3
"""usage: abi_test.py OURS [REFERENCE HEADER]: our declarations against NVIDIA's nccl.h.

OURS and REFERENCE are builds of abi_facts.cc, HEADER the reference's nccl.h."""
import pathlib
import re
import subprocess
import sys

SKIPPED = 77
# Facts that a later release than ours may change: numbers of values, and sizes of options.
MAY_GROW = {"value NCCL_VERSION_CODE", "value ncclNumResults", "size ncclConfig_t",
            "size ncclCommProperties"}


def facts(program: str) -> dict[str, str]:
    """Returns the program's facts by name."""
    text = subprocess.run([program], check=True, capture_output=True, text=True).stdout
    # The tags of options contain the release.
    text = re.sub(r"\d{2}(nccl[A-Za-z]*Config)_v\d{5}", r"\1", text)
    return dict(line.split("\t") for line in text.splitlines())


def compare(ours: dict[str, str], reference: dict[str, str], declared: set[str]) -> list[str]:
    """Returns sentences about the differences."""
    later = int(reference["value NCCL_VERSION_CODE"]) > int(ours["value NCCL_VERSION_CODE"])
    problems = []
    for name, value in reference.items():
        if ours.get(name) != value and not (later and name in MAY_GROW):
            problems.append(f"{name}: ours is {ours.get(name)}, the reference is {value}")
    for name in sorted(declared - {fact.split()[1] for fact in ours if fact.startswith("function")}):
        problems.append(f"{name} is declared in the reference and not in functions.def")
    return problems


def main() -> int:
    """Prints the differences."""
    if len(sys.argv) < 4:
        print("SKIPPED: there is no nccl.h with cuda_runtime.h here to compare with; NCCL_HOME and "
              "CUDA_HOME name their folders when the build directory is set up")
        return SKIPPED
    header = pathlib.Path(sys.argv[3]).read_text(encoding="utf-8")
    declared = set(re.findall(r"^\s*(?:ncclResult_t|void|const char\*)\s+(p?nccl\w+)\s*\(", header,
                              re.M))
    ours, reference = facts(sys.argv[1]), facts(sys.argv[2])
    problems = compare(ours, reference, declared)
    if len(declared) < 80 or len(reference) < 150:
        problems.append(f"only {len(declared)} functions and {len(reference)} facts were found")
    print("\n".join(problems) or f"{len(reference)} facts and {len(declared)} functions of release "
          f"{reference['value NCCL_VERSION_CODE']} are the same")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
