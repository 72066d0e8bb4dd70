#!/usr/bin/env python3
"""Compares one endpoint over UCX (link_perf) with ucx_perftest's active messages on loopback: the two
take turns, and only figures of the same round are divided by each other."""
import argparse
import os
import pathlib
import socket
import statistics
import subprocess
import time

CASES = [("latency", 8), ("latency", 4096), ("bandwidth", 65536), ("bandwidth", 524288)]


def messages_of(kind: str, size: int, scale: float) -> int:
    """Returns a number of messages that takes a fraction of a second."""
    return max(int((20_000 if kind == "latency" else 400_000_000 / size) * scale), 100)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def perftest(kind: str, size: int, messages: int, env: dict[str, str], peer_errors: bool) -> float:
    """Returns microseconds or MB/s (10^6 bytes) of ucx_perftest."""
    test = "ucp_am_lat" if kind == "latency" else "ucp_am_bw"
    command = ["ucx_perftest", "-t", test, "-s", str(size), "-n", str(messages), "-p", str(free_port())]
    command += ["-e"] if peer_errors else []
    with subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            for _ in range(50):
                time.sleep(0.1)
                client = subprocess.run([command[0], "127.0.0.1", *command[1:]], env=env, text=True,
                                        capture_output=True, timeout=300, check=False)
                final = [line.split() for line in client.stdout.splitlines() if line.startswith("Final:")]
                if final:
                    # Final: messages, median, average, overall latency; two rates in MiB/s; two of messages
                    return float(final[0][4]) if kind == "latency" else float(final[0][6]) * 1.048576
        finally:
            server.kill()
    raise SystemExit(f"ucx_perftest printed no result: {client.stdout}{client.stderr}")


def link_perf(program: str, kind: str, size: int, messages: int, env: dict[str, str]) -> float:
    latency = ["--latency"] if kind == "latency" else []
    command = [program, "ucx", *latency, "-s", str(size), "-n", str(messages)]
    return float(subprocess.run(command, env=env, text=True, capture_output=True, check=True, timeout=300).stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program", help="build/release/perf/micro/link_perf")
    parser.add_argument("--tls", default="tcp", help="UCX_TLS")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--scale", type=float, default=1, help="factor on the number of messages")
    parser.add_argument("--peer-errors", action="store_true",
                        help="ucx_perftest handles errors of peers, as whorl does (its option -e)")
    options = parser.parse_args()
    env = os.environ | {"UCX_TLS": options.tls, "UCX_WARN_UNUSED_ENV_VARS": "n"}
    program = str(pathlib.Path(options.program).resolve())
    print(f"UCX_TLS={options.tls}, medians of {options.rounds} rounds, "
          f"ucx_perftest{' -e' if options.peer_errors else ''}; ratio: whorl's speed / ucx_perftest's "
          "(least … most)\n")
    print("| | size | whorl | ucx_perftest | ratio |\n|---|---|---|---|---|")
    for kind, size in CASES:
        messages = messages_of(kind, size, options.scale)
        ours, theirs = [], []
        for turn in range(options.rounds):
            first, second = ((ours, theirs), (theirs, ours))[turn % 2]
            for out in (first, second):
                out.append(link_perf(program, kind, size, messages, env) if out is ours
                           else perftest(kind, size, messages, env, options.peer_errors))
        ratios = [b / a if kind == "latency" else a / b for a, b in zip(ours, theirs)]
        unit = "µs" if kind == "latency" else "MB/s"
        print(f"| {kind} | {size} B | {statistics.median(ours):.3g} {unit} | {statistics.median(theirs):.3g} {unit} | "
              f"{statistics.median(ratios):.2f} ({min(ratios):.2f} … {max(ratios):.2f}) |", flush=True)


if __name__ == "__main__":
    main()
