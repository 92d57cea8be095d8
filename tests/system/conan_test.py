"""The Conan recipe, run by Conan: `conan create` builds the package of a copy of these sources, and the program of
packaging/conan/test_package with it. tools/system.sh installs Conan; ccache knows the objects of the build."""
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
BINARY = pathlib.Path(os.environ["LOCKSTEP_BINARY_DIR"])
CONAN = SOURCE / "build/system/conan/bin/conan"
VERSION = re.search(r"project\(lockstep VERSION (\S+)", (SOURCE / "CMakeLists.txt").read_text()).group(1)
TORCH = re.search(r"^LOCKSTEP_TORCH_ROOT:PATH=(.*)$", (BINARY / "CMakeCache.txt").read_text(), re.M).group(1)


class Conan(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.environment = os.environ | {"CONAN_HOME": temporary.name, "CMAKE_PREFIX_PATH": TORCH}

    def conan(self, *words):
        result = subprocess.run([CONAN, *words], cwd=SOURCE, env=self.environment, text=True, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, timeout=1500)
        self.assertEqual(result.returncode, 0, result.stdout[-8000:])
        return result.stdout

    def test_create(self):
        self.conan("profile", "detect")
        before = set((SOURCE / "packaging/conan/test_package").iterdir())
        output = self.conan("create", "packaging/conan", "-c", "tools.cmake.cmake_layout:test_folder=$TMP")
        self.assertIn(f"lockstep {VERSION}, 1 rank, sum 1\n", output)
        self.assertEqual(set((SOURCE / "packaging/conan/test_package").iterdir()), before)
        reference = re.search(rf"lockstep/{VERSION}#\w+:\w+", output).group()
        package = pathlib.Path(self.conan("cache", "path", reference).splitlines()[-1])
        for file in ("bin/lockstep", "lib/liblockstep.so", "include/lockstep/lockstep.h", "licenses/LICENSE"):
            self.assertTrue((package / file).exists(), file)


if __name__ == "__main__":
    unittest.main()
