#!/usr/bin/env python3
"""usage: profiler_test.py PLUGIN PROGRAM: the plug-in prints the operations of a perf program's ranks."""
import os
import re
import subprocess
import sys

plugin, program = sys.argv[1:]
command = [program, "--ranks", "2", "--sizes", "8,1M", "-n", "5", "-w", "0", "-c", "0", "--side", "out"]
environment = os.environ | {"WHORL_PROFILER_PLUGIN": os.path.abspath(plugin)}
# Every plug-in defines the same symbol, and the perf programs have one, too: for the address sanitizer a violation.
environment["ASAN_OPTIONS"] = os.environ.get("ASAN_OPTIONS", "") + ":detect_odr_violation=0"
done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
print(done.stdout, done.stderr)
assert done.returncode == 0
for rank in (0, 1):
    for size in (8, 1 << 20):
        line = (rf"communicator [0-9a-f]{{8}} rank {rank}: allreduce \w+ of {size} bytes \(float32\): "
                r"(\d+) times, [\d.]+ us each")
        found = re.search(line, done.stderr)
        assert found and int(found.group(1)) >= 5, line
    assert re.search(rf"rank {rank}: barrier \w+ of 0 bytes", done.stderr), rank
