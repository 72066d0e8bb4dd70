#!/usr/bin/env python3
"""usage: launch_test.py MPIRUN PROBE: runs the probe on four ranks of this host under a real
launcher, first with all ranks present, then with one that stays away."""
import os
import shutil
import subprocess
import sys

RANKS = 4
TIMEOUT_S = 60


def launch(mpirun, *command):
    environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    # libpmix frees no memory at its end, and never answers an abandoned fence.
    environment["ASAN_OPTIONS"] = environment.get("ASAN_OPTIONS", "") + ":detect_leaks=0"
    for name in list(environment):
        if name.startswith(("PMI", "OMPI_COMM_", "SLURM_", "WHORL_")):
            del environment[name]
    options = ["--oversubscribe"] if "openmpi" in mpirun else []
    run = subprocess.run([mpirun, *options, "-np", str(RANKS), *command], env=environment,
                         stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                         stderr=subprocess.STDOUT, text=True, timeout=TIMEOUT_S)
    print(run.stdout, end="")
    return run.returncode, run.stdout.splitlines()


def main():
    mpirun, probe = sys.argv[1:]
    if shutil.which(mpirun) is None:
        print(f"{mpirun} is not installed")
        return 77
    source = "PMIx" if "openmpi" in mpirun else "PMI-1"
    problems = []
    status, lines = launch(mpirun, probe)
    wanted = {f"{source} rank {rank} of {RANKS}, local {rank} of {RANKS}" for rank in range(RANKS)}
    if status != 0 or not wanted <= set(lines):
        problems.append(f"exchange: status {status}, missing {sorted(wanted - set(lines))}")
    status, lines = launch(mpirun, probe, "absent")
    errors = [line for line in lines if line.startswith("as expected: ")]
    if status != 0 or len(errors) != RANKS - 1:
        problems.append(f"absent rank: status {status}, {len(errors)} ranks got an error")
    print("\n".join(problems))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
