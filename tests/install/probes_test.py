#!/usr/bin/env python3
"""usage: probes_test.py LIBRARY: the library has its static probes, with the arguments that docs/monitoring.md
lists."""
import re
import subprocess
import sys

notes = subprocess.run(["readelf", "--notes", "--wide", sys.argv[1]], check=True, capture_output=True, text=True).stdout
probes = re.findall(r"Provider: whorl\s+Name: (\w+)\s+Location: .*\s+Arguments: (.*)", notes)
expected = {"operation__begin": 4, "operation__end": 2}
for name, count in expected.items():
    found = [len(re.findall(r"(-?[1248])@", arguments)) for one, arguments in probes if one == name]
    print(f"{name}: {len(found)} places")
    assert found and set(found) == {count}, (name, found)
assert {name for name, _ in probes} == set(expected), probes
