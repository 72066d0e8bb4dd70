"""Recipe of whorl for Spack 1.0 and later: `spack repo add packaging/spack && spack install whorl`.

The source is the repository in which this file lies, at the last commit of its branch main.
"""

from pathlib import Path

from spack.package import *
from spack_repo.builtin.build_systems.meson import MesonPackage


class Whorl(MesonPackage):
    """Collective communication for distributed machine learning, with NCCL's API for host memory: any number of
    ranks, shared memory within a host, TCP, RDMA and UCX between hosts."""

    git = Path(__file__).resolve().parents[4].as_uri()

    license("Apache-2.0")

    version("main", branch="main")

    variant("hwloc", default=True, description="Detect the processors and devices of a machine")
    variant("yaml", default=True, description="Read networks in Slurm's topology.yaml")
    variant("programs", default=True, description="Build whorl-info, whorl-perf and the other programs")
    variant("pmix", default=False, description="Meet by PMIx, as Open MPI and Slurm start programs")
    variant("ucx", default=False, description="Build the transport over UCX")
    variant("verbs", default=False, description="Build the transport over InfiniBand and RoCE")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("meson@1.0.1:", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("fmt@9.1:")
    depends_on("nlohmann-json@3.11:")
    depends_on("openssl@3:")
    depends_on("pugixml@1.13:")
    depends_on("cli11@2.1:", when="+programs")
    depends_on("hwloc@2.4:2", when="+hwloc")
    depends_on("pmix@4:", when="+pmix")
    depends_on("rdma-core", when="+verbs")
    depends_on("ucx@1.10:", when="+ucx")
    depends_on("yaml-cpp@0.7:", when="+yaml")

    requires("%gcc@12:", "%clang@14:", policy="one_of", msg="whorl is written in C++20")
    requires("platform=linux", msg="whorl runs on Linux only")

    def meson_args(self):
        switches = {"perf": "programs"}
        features = {name: switches.get(name, name) for name in ("hwloc", "yaml", "perf", "pmix", "ucx", "verbs")}
        options = [f"-D{option}={'enabled' if f'+{variant}' in self.spec else 'disabled'}"
                   for option, variant in features.items()]
        return [*options, "-Dtests=disabled", "-Dbenchmarks=disabled", "-Dcuda=disabled"]

    @run_after("install")
    @on_package_attributes(run_tests=True)
    def check_programs(self):
        if "+programs" in self.spec:
            Executable(self.prefix.bin.join("whorl-perf"))("all_reduce", "--ranks", "2", "-e", "64", "-n", "3")
