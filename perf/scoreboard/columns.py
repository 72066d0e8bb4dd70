"""Columns of the table: how each library's ranks are started, and with which settings."""
import os
import pathlib
import random
import socket
import subprocess
import sys

import faults
import own_system

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "compare"))
import libraries
import machine
from machine import Failure


def free_port():
    """Returns a port of loopback at which nothing listens."""
    while True:
        port = random.randrange(20000, 30000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port


class Column:
    """One library over one way to carry messages."""
    program = ""    # beginning of the program's name
    package = ""
    launcher = None
    has_deadline = False
    has_port = False  # whether ranks meet at a TCP port of rank 0, which can be disturbed

    def __init__(self, name, where, folder):
        self.name, self.where = name, where
        self.path = folder / f"{self.program}_faulty_rank"

    def check(self):
        if self.launcher and not machine.has(self.launcher):
            raise Failure(f"{self.launcher} is not installed (package {self.package})")
        if not self.path.exists():
            raise Failure(f"{self.path} has not been built; it needs package {self.package} and then the target "
                          "scoreboard_programs")

    def about(self):
        return ""

    def words(self, case, folder):
        words = [self.path, "--fault", case.fault.word, "--culprit", faults.CULPRIT, "--count", case.count, "--journal",
                 folder]
        return words + (["--timeout", faults.DEADLINE_MS] if self.has_deadline else [])

    @staticmethod
    def process(words, folder, name, variables):
        """Starts a process, in a session of its own, whose output goes to the file `name`."""
        with open(folder / name, "wb") as output:
            return subprocess.Popen([str(word) for word in words], env={**os.environ, **variables},
                                    stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True)


class OwnLauncher(Column):
    """Library whose ranks the driver starts itself."""
    has_deadline = True

    def start(self, case, folder, variables, between=None):
        """Returns the processes of the ranks. Calls `between(process of rank 0)` before it starts the others."""
        words, job = self.words(case, folder), self.variables(case, folder)
        started = []
        for rank in range(case.ranks):
            one = {**variables, **job, **self.of_rank(rank, case)}
            started.append(self.process(words, folder, f"output-{rank}", one))
            if rank == 0 and between:
                between(started[0])
        return started


class Whorl(OwnLauncher):
    program, package = "whorl", "libcli11-dev"

    def __init__(self, name, where, folder, has_port):
        super().__init__(name, where, folder)
        self.has_port = has_port

    def about(self):
        over = "TCP over loopback (WHORL_TRANSPORTS=tcp)" if self.where == "tcp" else "shared memory"
        return f"{over}; timeoutMs {faults.DEADLINE_MS}, otherwise defaults; ranks meet at 127.0.0.1"

    def variables(self, case, folder):
        outer = case.fault.kind == faults.INTRUSION  # on loopback, ranks meet at a unix socket
        found = {"WHORL_ADDRESS": f"{own_system.ADDRESS if outer else '127.0.0.1'}:{free_port()}"}
        if self.where == "tcp":
            found["WHORL_TRANSPORTS"] = "tcp"
        if outer:
            secret = folder / "secret"
            secret.touch(mode=0o600)
            secret.write_text("the secret of the scoreboard's ranks")
            found["WHORL_SECRET_FILE"] = str(secret)
        return found

    def of_rank(self, rank, case):
        return {"WHORL_RANK": str(rank), "WHORL_NRANKS": str(case.ranks)}


class Gloo(OwnLauncher):
    program, package, has_port = "gloo", "libgloo-dev", True

    def about(self):
        return (f"{libraries.Gloo(self.path.parent).version()}; TCP over loopback, which is all that it has; ranks "
                f"find each other by files; setTimeout {faults.DEADLINE_MS} ms; default algorithms")

    def variables(self, case, folder):
        store = folder / "store"
        store.mkdir()
        return {"GLOO_STORE": str(store)}

    def of_rank(self, rank, case):
        return {"RANK": str(rank), "WORLD_SIZE": str(case.ranks)}


class Mpi(Column):
    """Library whose launcher starts the ranks, and ends a job of which a process ends badly."""

    def start(self, case, folder, variables, between=None):
        launch, more = self.launch(case)
        return [self.process([*launch, *self.words(case, folder)], folder, "output", {**variables, **more})]


class OpenMpi(Mpi):
    program, package, launcher = "openmpi", "openmpi-bin libopenmpi-dev", "mpirun.openmpi"

    def btl(self):
        return {"tcp": "tcp,self", "shm": "vader,self"}[self.where]

    def about(self):
        version = machine.first_line(machine.output_of(self.launcher, "--version"))
        return f"{version}; btl {self.btl()}; MPI_ERRORS_RETURN; unbound, mpi_yield_when_idle"

    def launch(self, case):
        return [self.launcher, "-n", case.ranks, "--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle",
                "1", "--mca", "pml", "ob1", "--mca", "btl", self.btl()], libraries.AS_ROOT


class Mpich(Mpi):
    program, package, launcher = "mpich", "mpich libmpich-dev", "mpirun.mpich"

    def about(self):
        over = "UCX_TLS=tcp,self" if self.where == "tcp" else "UCX chooses among posix, cma and self"
        return f"{libraries.Mpich(self.path.parent).version()}; {over}; MPI_ERRORS_RETURN; unbound"

    def launch(self, case):
        over = {"MPIR_CVAR_NOLOCAL": "1", "UCX_TLS": "tcp,self"} if self.where == "tcp" else {}
        return [self.launcher, "-n", case.ranks, "-bind-to", "none"], over


def all_of(folder, outer):
    """Returns every column, in the order of the table. `outer`: whether own_system.ADDRESS is there."""
    return [Whorl("whorl", "shm", folder, outer), Whorl("whorl-tcp", "tcp", folder, outer),
            Gloo("gloo", "tcp", folder), OpenMpi("openmpi", "shm", folder),
            OpenMpi("openmpi-tcp", "tcp", folder), Mpich("mpich", "shm", folder),
            Mpich("mpich-tcp", "tcp", folder)]


def is_whorl(name):
    return name.startswith("whorl")
