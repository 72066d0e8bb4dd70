#!/usr/bin/env python3
"""Compares whorl over RDMA with perftest (ib_write_lat, ib_write_bw) on rxe0 and rxe1 in the virtual machine:
`tests/rdma/vm.py tests/rdma/compare.py BUILD`. The two run in turn; of each the best of all runs counts: the shortest
half round trip, the highest rate. Others say little there, since programs that spin take processors from the kernel's
part of software RoCE for whole time slices (4 ms)."""
import argparse
import subprocess
import sys
import time

LATENCY_BYTES = (8, 32, 128, 1024, 65536)
BANDWIDTH_BYTES = (8, 4096, 65536)
MESSAGES = {"latency": 400, "bandwidth": 200}
COLUMN = {"latency": 2, "bandwidth": 3}  # of perftest's line: the least time, the average rate
PROGRAM = {"latency": "ib_write_lat", "bandwidth": "ib_write_bw"}


def perftest(what: str, size: int) -> float:
    """Runs one of perftest's programs between the two devices."""
    common = ["timeout", "30", PROGRAM[what], "-x", "0", "-F", "-s", str(size), "-n", str(MESSAGES[what])]
    server = subprocess.Popen([*common, "-d", "rxe0"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    output = ""
    for _ in range(20):  # until the server listens
        time.sleep(0.3)
        client = subprocess.run([*common, "-d", "rxe1", "127.0.0.1"], capture_output=True, text=True)
        if client.returncode == 0:
            output = client.stdout
            break
    server.wait()
    for line in map(str.split, output.splitlines()):
        if line and line[0] == str(size):
            value = float(line[COLUMN[what]])
            return value * 1.048576 if what == "bandwidth" else value  # counts 2^20 bytes
    raise RuntimeError(f"{PROGRAM[what]} has no result for {size} bytes")


def whorl(build: str, what: str, size: int) -> float:
    line = [f"{build}/tests/rdma/rdma_pair", what, str(size), str(MESSAGES[what])]
    return float(subprocess.run(line, stdout=subprocess.PIPE, text=True, check=True).stdout)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("build", help="build directory")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--latency", type=int, nargs="*", default=LATENCY_BYTES, metavar="BYTES")
    parser.add_argument("--bandwidth", type=int, nargs="*", default=BANDWIDTH_BYTES, metavar="BYTES")
    given = parser.parse_args()
    cases = [("latency", size) for size in given.latency] + [("bandwidth", size) for size in given.bandwidth]
    print("| | bytes | perftest | whorl | whorl / perftest |\n|---|---|---|---|---|")
    for what, size in cases:
        theirs, ours = [], []
        for _ in range(given.rounds):
            theirs.append(perftest(what, size))
            ours.append(whorl(given.build, what, size))
        best = min if what == "latency" else max
        a, b = best(ours), best(theirs)
        unit = "µs" if what == "latency" else "MB/s"
        print(f"| {what}, {unit} | {size} | {b:.3g} | {a:.3g} | {a / b:.2f} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
