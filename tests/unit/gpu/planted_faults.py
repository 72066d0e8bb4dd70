#!/usr/bin/env python3
"""Plants faults into the PTX of kernels: planted_faults.py LIST FOLDER [NAME...] runs the test programs in FOLDER with
each fault of the list (planted_faults.txt says how one is written), or with those named. Every fault must make a
test fail."""
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys

SECONDS = 120  # for one run
CLOCK = "30"  # kernels that wait in vain give up after two seconds instead of a minute
CHANGED = "WHORL_PTX_EDIT has changed the kernels"


def parse(text):
    """Returns the faults of a list as dictionaries."""
    faults = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        key, _, rest = line.partition(" ")
        if key == "fault":
            name, _, what = rest.partition(": ")
            faults.append({"name": name, "what": what})
        elif key == "in":
            faults[-1]["image"] = rest
        elif key == "found" and (found := re.fullmatch(r"by (\S+) (.+)", rest)):
            faults[-1]["program"], faults[-1]["filter"] = found.groups()
        elif key in "-+":
            faults[-1]["old" if key == "-" else "new"] = rest
        else:
            raise SystemExit(f"line {number}: \"{line}\" is no line of a fault")
    return faults


def complaint(fault, folder):
    """Returns what is wrong with the tests, or None if they have found the fault."""
    command = [folder / fault["program"], "--gtest_brief=1", "--gtest_throw_on_failure", "--gtest_fail_fast",
               f"--gtest_filter={fault['filter']}"]
    edit = "\n".join((fault["image"], fault["old"], fault["new"]))
    try:
        done = subprocess.run(command, env=os.environ | {"WHORL_PTX_EDIT": edit, "WHORL_PTX_CLOCK": CLOCK},
                              timeout=SECONDS, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True)
    except subprocess.TimeoutExpired:
        return f"the tests have not ended within {SECONDS} s"
    if CHANGED not in done.stdout:
        return "the tests have not run a kernel that it changes"
    return "no test has failed" if done.returncode == 0 else None


def main():
    faults = parse(pathlib.Path(sys.argv[1]).read_text())
    names = sys.argv[3:] or [fault["name"] for fault in faults]
    chosen = [fault for fault in faults if fault["name"] in names]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        complaints = list(pool.map(lambda fault: complaint(fault, pathlib.Path(sys.argv[2])), chosen))
    missed = [(fault, text) for fault, text in zip(chosen, complaints) if text]
    for fault, text in missed:
        print(f"{fault['name']} ({fault['what']}): {text}")
    print(f"{len(chosen) - len(missed)} of {len(chosen)} faults found")
    return 1 if missed or not chosen else 0


if __name__ == "__main__":
    sys.exit(main())
