"""The wheel, installed by pip into a new virtual environment: it trains, programs are built with it, and a torch of another
version is refused by name wherever one meets it. LibTorch is that of the build, linked into the environment.
Usage: wheel_test.py BUILD_DIR LIBTORCH_ROOT"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
BUILD, TORCH = (pathlib.Path(word).resolve() for word in sys.argv[1:3])
# Found by pip or CMake, it would hide that the wheel does not lead to the one of the environment.
CLEAN = {name: value for name, value in os.environ.items() if name not in ("LD_LIBRARY_PATH", "PYTHONPATH", "CMAKE_PREFIX_PATH", "Torch_DIR")}


def execute(*command, **options):
    options.setdefault("env", CLEAN)
    return subprocess.run([str(word) for word in command], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=900, **options)


class Wheel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(temporary.cleanup)
        cls.folder = pathlib.Path(temporary.name)
        cls.bin = cls.folder / "venv/bin"
        cls.made(sys.executable, SOURCE / "tools/make_wheel.py", BUILD, cls.folder)
        cls.made(sys.executable, "-m", "venv", cls.folder / "venv")
        cls.packages = next(cls.folder.glob("venv/lib*/python*/site-packages")).resolve()
        wheel = next(cls.folder.glob("lockstep-*.whl"))
        cls.made(cls.bin / "python", "-m", "pip", "install", "--no-index", "--no-deps", "--disable-pip-version-check", wheel)

    @classmethod
    def made(cls, *command):
        result = execute(*command)
        if result.returncode != 0:
            raise AssertionError(f"{command}: {result.stdout}")

    def setUp(self):
        self.use_torch(self.packages)

    def use_torch(self, folder):
        """Places the torch of the build, as pip would, into `folder` alone."""
        for path in (self.packages / "torch", self.folder / "elsewhere/torch"):
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)
        if folder is not None:
            folder.mkdir(exist_ok=True)
            (folder / "torch").symlink_to(TORCH)

    def use_other_torch(self):
        """A torch that has the files of version 2.9 that are looked at, and libraries without any function."""
        self.use_torch(None)
        torch = self.packages / "torch"
        (torch / "lib").mkdir(parents=True)
        (torch / "include/torch/headeronly").mkdir(parents=True)
        (torch / "__init__.py").touch()
        (torch / "version.py").write_text("__version__ = '2.9.1+cpu'\n")
        (torch / "include/torch/headeronly/version.h").write_text("#define TORCH_VERSION_MAJOR 2\n#define TORCH_VERSION_MINOR 9\n")
        for name in ("torch_cpu", "c10"):
            self.made("g++", "-shared", f"-Wl,-soname,lib{name}.so", "-x", "c++", os.devnull, "-o", torch / f"lib/lib{name}.so")

    def run_here(self, *command, **options):
        return execute(*command, cwd=self.folder, **options)

    def built_version(self):
        result = self.run_here(self.bin / "python", "-c", "import lockstep; print(lockstep.TORCH_VERSION)")
        self.assertEqual(result.returncode, 0, result.stdout)
        return result.stdout.strip()

    def assert_refused(self, result, *words):
        self.assertIn(result.returncode, (1, 2), result.stdout)
        for word in words:
            self.assertIn(word, result.stdout)

    def configure(self, build, prefix, *arguments):
        """As docs/installing.md says, where neither python3 nor the cache leads to LibTorch."""
        hidden = self.folder / "hidden"
        hidden.mkdir(exist_ok=True)
        (hidden / "python3").write_text("#!/bin/sh\nexit 1\n")
        (hidden / "python3").chmod(0o755)
        return self.run_here("cmake", "-S", SOURCE / "tests/packaging/consumer", "-B", build, "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={prefix}", *arguments,
                             env=CLEAN | {"PATH": f"{hidden}:{CLEAN['PATH']}", "HOME": str(hidden), "XDG_CACHE_HOME": ""})

    def test_pip_knows_which_torch_it_is_for(self):
        listed = self.run_here(self.bin / "python", "-m", "pip", "check", "--disable-pip-version-check")
        self.assertIn("lockstep 0.1.0 requires torch, which is not installed", listed.stdout)
        needs = next(self.packages.glob("lockstep-*.dist-info/METADATA")).read_text()
        self.assertIn(f"Requires-Dist: torch=={self.built_version()}.*\n", needs)

    def test_trains(self):
        result = self.run_here(self.bin / "lockstep", "demo")
        self.assertEqual(result.returncode, 0, result.stdout)
        self.assertIn("demo: test accuracy 0.9", result.stdout)
        self.assertIn("(2 ranks", result.stdout)

    def test_finds_a_torch_in_another_folder(self):
        self.use_torch(self.folder / "elsewhere")
        elsewhere = CLEAN | {"PYTHONPATH": str(self.folder / "elsewhere")}
        result = self.run_here(self.bin / "lockstep", "demo", "--print_config", env=elsewhere)
        self.assertEqual(result.returncode, 0, result.stdout)
        self.assertIn("\ntrainer:\n", result.stdout)
        prefix = self.run_here(self.bin / "python", "-m", "lockstep", "--cmake-prefix-path", env=elsewhere)
        self.assertEqual(prefix.stdout, f"{self.packages / 'lockstep'};{self.folder.resolve() / 'elsewhere/torch'}\n")

    def test_needs_nothing_of_the_build(self):
        root = self.packages / "lockstep"
        for file in (*root.glob("bin/*"), *root.glob("lib/*.so*")):
            listed = self.run_here("ldd", file).stdout
            self.assertNotIn("not found", listed, file)
            for line in listed.splitlines():
                self.assertNotIn(str(BUILD), line)
                self.assertNotIn(str(TORCH), line)
        for file in (*root.rglob("*.cmake"), *root.rglob("*.pc")):
            self.assertNotIn(str(TORCH), file.read_text(), file)

    def test_programs_are_built_with_it(self):
        build = self.folder / "consumer"
        prefix = self.run_here(self.bin / "python", "-m", "lockstep", "--cmake-prefix-path").stdout.strip()
        configured = self.configure(build, prefix)
        self.assertEqual(configured.returncode, 0, configured.stdout)
        self.assertIn(f"-- LibTorch: {self.packages / 'torch'}\n", configured.stdout)
        self.assertEqual((built := self.run_here("cmake", "--build", build)).returncode, 0, built.stdout)
        self.assertEqual(self.run_here(build / "consumer").stdout, "lockstep 0.1.0, 1 rank, sum 1\n")
        # The same program with a LibTorch that says that it is another one.
        (self.folder / "other.c").write_text("unsigned long aoti_torch_abi_version(void) { return 2ul << 56 | 9ul << 48; }\n")
        self.made("gcc", "-shared", "-fPIC", self.folder / "other.c", "-o", self.folder / "other.so")
        result = self.run_here(build / "consumer", env=CLEAN | {"LD_PRELOAD": str(self.folder / "other.so")})
        self.assert_refused(result, f"was built for another LibTorch; expected version {self.built_version()}; got 2.9")

    def test_another_torch_is_refused(self):
        version = self.built_version()
        self.use_other_torch()
        found = f"torch 2.9.1+cpu in {self.packages / 'torch'} does not fit; this lockstep was built for torch {version}"
        self.assert_refused(self.run_here(self.bin / "python", "-c", "import lockstep"), "ImportError", found)
        self.assert_refused(self.run_here(self.bin / "lockstep", "demo"), f"lockstep: [demo] {found}")
        self.assert_refused(self.run_here(self.packages / "lockstep/bin/lockstep", "demo"), "lockstep: [demo] LibTorch cannot be used",
                            f"expected LibTorch {version} in {self.packages / 'torch'}", "undefined symbol")
        self.assertEqual(self.run_here(self.bin / "lockstep", "--version").returncode, 0)

    def test_another_torch_is_refused_by_cmake(self):
        version, prefix = self.built_version(), self.packages / "lockstep"
        self.use_other_torch()
        result = self.configure(self.folder / "refused", prefix)
        passed_over = f"{self.packages / 'torch'} is version 2.9; this lockstep was built for {version}"
        self.assert_refused(result, passed_over)
        # One that was asked for is not passed over for another one that fits.
        asked_for = f"-DTorch_DIR={self.packages / 'torch/share/cmake/Torch'}"
        fits = f"{prefix};{self.packages};{TORCH}"
        self.assert_refused(self.configure(self.folder / "asked_for", fits, asked_for), "LibTorch of Torch_DIR:", passed_over)
        found = self.configure(self.folder / "found", fits)
        self.assertEqual(found.returncode, 0, found.stdout)
        self.assertIn(f"-- LibTorch passed over:\n  {passed_over}\n-- LibTorch: {TORCH}\n", found.stdout)

    def test_without_torch(self):
        version = self.built_version()
        self.use_torch(None)
        missing = f'torch is not installed; this lockstep was built for torch {version}: pip install "torch=={version}.*"'
        self.assert_refused(self.run_here(self.bin / "python", "-m", "lockstep", "--root"), missing)
        self.assert_refused(self.run_here(self.bin / "lockstep", "demo"), f"lockstep: [demo] {missing}")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
