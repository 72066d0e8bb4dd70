"""Recipe of whorl for Conan 2: `conan create packaging/conan --build=missing`, from the root of the repository."""

import os
import re

from conan import ConanFile
from conan.errors import ConanInvalidConfiguration
from conan.tools.build import check_min_cppstd
from conan.tools.files import copy, load, rmdir
from conan.tools.gnu import PkgConfigDeps
from conan.tools.layout import basic_layout
from conan.tools.meson import Meson, MesonToolchain

ROOT = os.path.join("..", "..")


class Whorl(ConanFile):
    name = "whorl"
    package_type = "library"
    description = "Collective communication for distributed machine learning, with NCCL's API for host memory"
    license = "Apache-2.0"
    topics = ("collective-communication", "allreduce", "nccl", "machine-learning")
    settings = "os", "arch", "compiler", "build_type"
    options = {"shared": [True, False], "fPIC": [True, False], "hwloc": [True, False], "yaml": [True, False],
               "programs": [True, False]}
    default_options = {"shared": True, "fPIC": True, "hwloc": True, "yaml": True, "programs": False}

    def set_version(self):
        text = load(self, os.path.join(self.recipe_folder, ROOT, "meson.build"))
        self.version = re.search(r"version: '([\d.]+)'", text).group(1)

    def export_sources(self):
        copy(self, "*", src=os.path.join(self.recipe_folder, ROOT), dst=self.export_sources_folder,
             excludes=("build/*", ".git/*", "*/__pycache__/*"))

    def configure(self):
        if self.options.shared:
            self.options.rm_safe("fPIC")

    def validate(self):
        check_min_cppstd(self, 20)
        if self.settings.os != "Linux":
            raise ConanInvalidConfiguration("whorl runs on Linux only")

    def layout(self):
        basic_layout(self)

    def requirements(self):
        self.requires("fmt/[>=9.1 <12]")
        self.requires("openssl/[>=3.0 <4]")
        self.requires("nlohmann_json/[>=3.11 <4]")
        self.requires("pugixml/[>=1.13 <2]")
        if self.options.hwloc:
            self.requires("hwloc/[>=2.4 <3]")
        if self.options.yaml:
            self.requires("yaml-cpp/[>=0.7 <1]")
        if self.options.programs:
            self.requires("cli11/[>=2.1 <3]")

    def build_requirements(self):
        self.tool_requires("meson/[>=1.0.1 <2]")
        self.tool_requires("pkgconf/[>=1.8 <3]")

    def generate(self):
        PkgConfigDeps(self).generate()
        toolchain = MesonToolchain(self)

        def feature(wanted):
            return "enabled" if wanted else "disabled"

        toolchain.project_options.update({
            "default_library": "shared" if self.options.shared else "static",
            "hwloc": feature(self.options.hwloc), "yaml": feature(self.options.yaml),
            "perf": feature(self.options.programs), "tests": "disabled", "benchmarks": "disabled",
            # What lies beside the packages of Conan is not asked for.
            "cuda": "disabled", "pmix": "disabled", "ucx": "disabled", "verbs": "disabled"})
        toolchain.generate()

    def build(self):
        meson = Meson(self)
        meson.configure()
        meson.build()

    def package(self):
        Meson(self).install()
        copy(self, "LICENSE", src=self.source_folder, dst=os.path.join(self.package_folder, "licenses"))
        # Conan writes such files itself.
        rmdir(self, os.path.join(self.package_folder, "lib", "pkgconfig"))
        rmdir(self, os.path.join(self.package_folder, "lib", "cmake"))

    def package_info(self):
        self.cpp_info.libs = ["whorl"]
        self.cpp_info.set_property("pkg_config_name", "whorl")
        self.cpp_info.set_property("cmake_file_name", "whorl")
        self.cpp_info.set_property("cmake_target_name", "whorl::whorl")
        self.cpp_info.system_libs = ["dl", "m", "pthread"]
        if not self.options.shared:
            self.cpp_info.system_libs.append("stdc++")
