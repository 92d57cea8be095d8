"""What Docker, vcpkg and Conan are told agrees with the build, as far as that shows without them: versions, folders, dependencies."""
import fnmatch
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
VERSION = re.search(r"project\(lockstep VERSION (\S+)", (SOURCE / "CMakeLists.txt").read_text()).group(1)
TORCH = re.search(r"^torch_version=(\S+)", (SOURCE / "tools/setup.sh").read_text(), re.M).group(1)
# vcpkg's name of each library that CMakeLists.txt looks for, and of what else src/ includes.
PORTS = {"CLI11": "cli11", "nlohmann_json": "nlohmann-json", "yaml-cpp": "yaml-cpp", "fmt": "fmt", "spdlog": "spdlog", "ZLIB": "zlib",
         "OpenSSL": "openssl", "PNG": "libpng", "JPEG": "libjpeg-turbo"}


class Recipes(unittest.TestCase):
    def test_vcpkg(self):
        port = SOURCE / "packaging/vcpkg/lockstep"
        manifest = json.loads((port / "vcpkg.json").read_text())
        self.assertEqual((manifest["name"], manifest["version"]), (port.name, VERSION))
        names = [dependency if isinstance(dependency, str) else dependency["name"] for dependency in manifest["dependencies"]]
        self.assertEqual(names, sorted(names))
        found = set(re.findall(r"find_package\((\S+?)[ )]", (SOURCE / "CMakeLists.txt").read_text())) - {"Threads"}
        self.assertEqual({PORTS[name] for name in found}, set(names) - {"liburing", "xxhash", "vcpkg-cmake", "vcpkg-cmake-config"})
        # Every option is one of the build, and CMake reads the file.
        text = (port / "portfile.cmake").read_text()
        for option in re.findall(r"-D(\w+)=", text):
            self.assertIn(f"option({option} ", (SOURCE / "CMakeLists.txt").read_text())
        functions = sorted(set(re.findall(r"^(vcpkg_\w+)\(", text, re.M)))
        stubs = "".join(f"function({name})\nendfunction()\n" for name in functions) + "set(CURRENT_PACKAGES_DIR /nonexistent)\n"
        check = 'if(NOT EXISTS "${SOURCE_PATH}/src")\nmessage(FATAL_ERROR "${SOURCE_PATH}")\nendif()\n'
        with tempfile.NamedTemporaryFile("w", suffix=".cmake") as script:
            script.write(f'{stubs}include("{port}/portfile.cmake")\n{check}')
            script.flush()
            read = subprocess.run(["cmake", "-P", script.name], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.assertEqual(read.returncode, 0, read.stdout)

    def test_conan(self):
        recipe = SOURCE / "packaging/conan/conanfile.py"
        compile(recipe.read_text(), recipe, "exec")
        for pattern in re.findall(r'"([^"]+)"', re.search(r"for pattern in \((.*?)\)", recipe.read_text()).group(1)):
            self.assertTrue(list(SOURCE.glob(pattern)), pattern)

    def test_docker(self):
        text = (SOURCE / "Dockerfile").read_text()
        # LibTorch is taken from where set-up keeps it.
        moved = re.search(r"XDG_CACHE_HOME=(\S+) make packages && mv \1/(\S+) (\S+)$", text, re.M)
        self.assertTrue(fnmatch.fnmatch(f"lockstep/torch-{TORCH}/torch", moved.group(2)), text)
        self.assertIn('cache="${XDG_CACHE_HOME:-$HOME/.cache}/lockstep"', (SOURCE / "tools/setup.sh").read_text())
        self.assertIn(f"COPY --from=build {moved.group(3)} /opt/torch\n", text)
        for target in re.findall(r"(?<!\w)make (\w+)", "\n".join(re.findall(r"^RUN (.*)$", text, re.M))):
            self.assertRegex((SOURCE / "Makefile").read_text(), rf"(?m)^{target}:")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
