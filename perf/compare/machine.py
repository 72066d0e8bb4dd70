"""Cores of this machine, the distance between them, and functions that run programs."""
import os
import shutil
import signal
import statistics
import subprocess
import tempfile
import time

# Limits of the exchange. Below the first: two threads of one core. Below the second: one core
# complex (50-60 ns as a rule). Above: two complexes (200-255 ns).
SAME_CORE_NS, NEAR_NS = 22, 120
# Factor by which the exchange's time may differ between two probes that agree.
STEADY = 2
# Ratio of the median to the low exchange above which others use the cores.
BUSY = 2


class Failure(Exception):
    """Error whose sentence says why a library has no result."""


def cores():
    return len(os.sched_getaffinity(0))


def describe():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        models = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
    return f"{models[0] if models else 'unknown processor'}, {cores()} cores, {os.uname().release}"


def first_line(text):
    lines = (line.strip() for line in text.splitlines())
    return next((line for line in lines if line.strip("-=# ")), "it printed nothing")


def output_of(*argv):
    try:
        return subprocess.run(argv, capture_output=True, text=True, timeout=20, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""


# --- the distance of the cores -------------------------------------------------------------------

def probe(program):
    """Returns the (low, median) flag exchange of two cores in ns; None where there is one core."""
    if cores() < 2:
        return None
    try:
        done = subprocess.run([program], capture_output=True, text=True, timeout=20, check=True)
        low, median = map(float, done.stdout.split())
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise Failure(f"{program} did not work: {error}") from None
    return low, median


def kind(ns):
    return "same core" if ns < SAME_CORE_NS else "near" if ns < NEAR_NS else "far"


def state_between(before, after):
    """Returns the distance of the cores between two probes; "changed" if the probes differ."""
    if before is None:
        return "one core"
    low = before[0], after[0]
    same = kind(low[0]) == kind(low[1]) and max(low) < STEADY * min(low)
    return kind(low[0]) if same else "changed"


def busy(*probes):
    return any(one is not None and one[1] > BUSY * one[0] for one in probes)


def exchange_ns(runs):
    """Returns the flag exchange during these runs, the median of all probes; None without probes."""
    lows = [ns for run in runs for ns in run["exchange_ns"] if ns is not None]
    return statistics.median(lows) if lows else None


# --- running programs ----------------------------------------------------------------------------

def run_all(commands, limit_s):
    """Runs the (argv, environment) pairs at the same time. Failure if one fails or is late."""
    with tempfile.TemporaryFile("w+") as output:
        processes, late = [], False
        try:
            for argv, extra in commands:
                processes.append(subprocess.Popen(
                    [str(arg) for arg in argv], env={**os.environ, **extra},
                    stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=output,
                    start_new_session=True))
            deadline = time.monotonic() + limit_s
            for process in processes:
                process.wait(max(deadline - time.monotonic(), 0.1))
        except subprocess.TimeoutExpired:
            late = True
        except OSError as error:
            raise Failure(f"could not be started: {error}") from None
        finally:
            stop(processes)
        output.seek(0)
        said = first_line(output.read())
    if late:
        raise Failure(f"did not end within {limit_s:.0f} s")
    for process in processes:
        if process.returncode in (-signal.SIGALRM, 128 + signal.SIGALRM):
            raise Failure("ran into its own time limit")
        if process.returncode != 0:
            raise Failure(f"ended with status {process.returncode}: {said}")


def stop(processes):
    """Ends processes that still run: by SIGTERM, so that a launcher ends its ranks, then by SIGKILL."""
    running = [process for process in processes if process.poll() is None]
    for process in running:
        process.terminate()
    for process in running:
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # its own group: start_new_session
            process.wait()


def has(program):
    return shutil.which(program) is not None
