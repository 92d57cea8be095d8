"""lockstep for Conan 2. `conan create packaging/conan` builds it from this checkout, `conan export-pkg packaging/conan` packs what build/release
holds. LibTorch is not among Conan's packages: it is found as docs/building.md says, or by CMAKE_PREFIX_PATH in the environment. Other
libraries are those of the system, which tools/setup.sh installs.
"""
import pathlib
import re

from conan import ConanFile
from conan.tools.files import copy

ROOT = pathlib.Path("..", "..")


class Lockstep(ConanFile):
    name = "lockstep"
    description = "Distributed training for C++ programs on LibTorch"
    license = "Apache-2.0"
    topics = ("machine-learning", "distributed-training", "libtorch")
    package_type = "shared-library"
    settings = "os", "arch", "compiler", "build_type"

    def set_version(self):
        text = pathlib.Path(self.recipe_folder, ROOT, "CMakeLists.txt").read_text()
        self.version = re.search(r"project\(lockstep VERSION (\S+)", text).group(1)

    def export_sources(self):
        for pattern in ("CMakeLists.txt", "LICENSE", "apps/*", "cmake/*", "data/*", "include/*", "src/*", "third_party/*"):
            copy(self, pattern, pathlib.Path(self.recipe_folder, ROOT), self.export_sources_folder)

    def layout(self):
        self.folders.root = str(ROOT)
        self.folders.build = "build/release"
        self.folders.generators = "build/conan"

    def build(self):
        parts = " ".join(f"-DLOCKSTEP_BUILD_{part}=OFF" for part in ("TESTS", "EXAMPLES", "BENCHMARKS"))
        self.run(f'cmake -S "{self.source_folder}" -B "{self.build_folder}" -G Ninja -DCMAKE_BUILD_TYPE={self.settings.build_type} {parts}')
        self.run(f'cmake --build "{self.build_folder}" --target installable')

    def package(self):
        self.run(f'cmake --install "{self.build_folder}" --prefix "{self.package_folder}" --strip')
        copy(self, "LICENSE", self.source_folder, pathlib.Path(self.package_folder, "licenses"))

    def package_info(self):
        self.cpp_info.libs = ["lockstep", "lockstep_core"]
        # The package's own files for find_package(lockstep) know where LibTorch is.
        self.cpp_info.set_property("cmake_find_mode", "none")
        self.cpp_info.builddirs = ["lib/cmake/lockstep"]
