#!/usr/bin/env python3
"""usage: sum_test.py PROGRAM README: runs the program alone, under each MPI launcher that is
installed and with torchrun's variables, and checks that the README shows this very program."""
import os
import pathlib
import shutil
import socket
import subprocess
import sys

program, readme = sys.argv[1], pathlib.Path(sys.argv[2])
environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
failures = []


def expect(name, lines, ranks):
    wanted = sorted(
        f"rank {rank}: {ranks} ranks, their numbers add up to {ranks * (ranks - 1) // 2}"
        for rank in range(ranks))
    if sorted(lines) != wanted:
        failures.append(f"{name}: got {lines}")
    else:
        print(f"{name}: {ranks} ranks")


def output(command, **variables):
    process = subprocess.Popen(command, env={**environment, **variables}, text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return process


def lines_of(process):
    try:
        return process.communicate(timeout=60)[0].split("\n")[:-1]
    except subprocess.TimeoutExpired:
        process.kill()
        return ["no end after 60 s"]


expect("alone", lines_of(output([program])), 1)
for launcher, options in {"mpirun.openmpi": ["--oversubscribe"], "mpirun.mpich": []}.items():
    if shutil.which(launcher):
        expect(launcher, lines_of(output([launcher, *options, "-np", "4", program])), 4)
    else:
        print(f"{launcher}: not installed")
with socket.create_server(("127.0.0.1", 0)) as server:  # a port that nobody else uses
    port = str(server.getsockname()[1])
ranks = [output([program], RANK=str(rank), WORLD_SIZE="3", MASTER_ADDR="127.0.0.1",
                MASTER_PORT=port) for rank in range(3)]
expect("torchrun's variables", [line for process in ranks for line in lines_of(process)], 3)

source = pathlib.Path(__file__).with_name("sum.c").read_text(encoding="utf-8")
if source not in readme.read_text(encoding="utf-8"):
    failures.append("README.md does not show examples/sum/sum.c as it is")
sys.exit("\n".join(failures) or 0)
