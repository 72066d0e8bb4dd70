#!/usr/bin/env python3
"""Counts the test cases of one `meson test` run, from the logs that meson wrote.

usage: count_tests.py BUILD/meson-logs

GoogleTest programs count case by case, any other test as one case. A program that failed without
a failed case of its own (a crash, a timeout) adds one failure, so that no failure is lost.
Skipped and failed cases are listed first; the last line is `N passed, N failed, N skipped`.
"""
import json
import pathlib
import sys
import xml.etree.ElementTree as ET


def short(name):
    """Returns the name of a test without project and suites: meson writes `project:suites / name`."""
    return name.split(" / ")[-1].split(":")[-1]


def read_cases(junit):
    """Yields (program, case, outcome, reason) for every test case in meson's JUnit file."""
    for suite in ET.parse(junit).getroot().iter("testsuite"):
        for case in suite.iter("testcase"):
            _, _, rest = suite.get("name", "").partition(".")
            program, _, group = short(rest).partition(".")
            if group:  # project.program.Group, from GoogleTest
                name = f"{group}.{case.get('name')}"
            else:
                program = name = short(case.get("name", ""))
            skipped = case.find("skipped")
            if case.find("failure") is not None or case.find("error") is not None:
                yield program, name, "failed", ""
            elif skipped is not None:
                reason = skipped.get("message") or skipped.text or ""
                yield program, name, "skipped", " ".join(reason.split())
            elif case.get("status") == "notrun":
                yield program, name, "skipped", "disabled"
            else:
                yield program, name, "passed", ""


def read_programs(log):
    """Yields (program, result, output) for every program in meson's test log."""
    for line in log.read_text(errors="replace").splitlines():
        entry = json.loads(line)
        yield short(entry["name"]), entry["result"], (entry.get("stdout") or "") + (entry.get("stderr") or "")


def count(logs):
    """Returns (counts, lines to print) of the run whose logs lie in `logs`."""
    programs = {name: (result, text) for name, result, text in read_programs(logs / "testlog.json")}
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    lines, failed_programs = [], set()
    for program, name, outcome, reason in read_cases(logs / "testlog.junit.xml"):
        result, text = programs.get(program, ("", ""))
        if outcome == "passed" and name == program and result not in ("OK", "EXPECTEDFAIL"):
            continue  # a timeout: the JUnit file does not say so
        if outcome == "skipped" and not reason and text.strip():
            reason = text.strip().splitlines()[-1]
        counts[outcome] += 1
        if outcome == "failed":
            failed_programs.add(program)
        if outcome != "passed":
            words = [outcome, program, *([name] if name != program else []), *([reason] if reason else [])]
            lines.append(": ".join(words))
    for program, (result, _) in programs.items():
        if result not in ("OK", "SKIP", "EXPECTEDFAIL") and program not in failed_programs:
            counts["failed"] += 1
            lines.append(f"failed: {program}: the program ended with {result}")
    return counts, sorted(lines, reverse=True)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    logs = pathlib.Path(sys.argv[1])
    try:
        counts, lines = count(logs)
    except (OSError, ET.ParseError) as error:
        print(f"count_tests.py: no complete test run in {logs}: {error}", file=sys.stderr)
        print("0 passed, 0 failed, 0 skipped")
        return 1
    for line in lines:
        print(line)
    print("{passed} passed, {failed} failed, {skipped} skipped".format(**counts))
    return 1 if counts["failed"] or sum(counts.values()) == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
