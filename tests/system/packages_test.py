"""What cpack makes, where nothing of the build is: Debian's packages, installed as the Dockerfile says, in a system on which nothing
was ever installed, which tools/system.sh makes; and the archive in a folder beside LibTorch."""
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
BINARY = pathlib.Path(os.environ["LOCKSTEP_BINARY_DIR"])
BARE = SOURCE / "build/system/bare.tar"
TORCH = pathlib.Path(re.search(r"^LOCKSTEP_TORCH_ROOT:PATH=(.*)$", (BINARY / "CMakeCache.txt").read_text(), re.M).group(1))
INSTALL = re.findall(r"^RUN (.*)$", (SOURCE / "Dockerfile").read_text(), re.M)[-1]
# Mounts are those of a namespace, which ends with the command.
IN_BARE_SYSTEM = """
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount -t tmpfs tmpfs "$root/dev/shm"
if [ -n "$torch" ]; then mkdir -p "$root/opt/torch"; mount --bind "$torch" "$root/opt/torch"; fi
exec chroot "$root" /bin/sh -ec "$command"
"""


def execute(*command, **options):
    return subprocess.run([str(word) for word in command], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=600, **options)


class Packages(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)

    def succeed(self, *command, **options):
        result = execute(*command, **options)
        self.assertEqual(result.returncode, 0, result.stdout)
        return result.stdout

    def pack(self, generator, folder):
        self.succeed("cpack", "-G", generator, "-B", folder, cwd=BINARY)
        return sorted(path for path in folder.iterdir() if path.is_file())

    def in_bare_system(self, command, torch=TORCH):
        variables = {"root": str(self.root), "torch": str(torch), "command": command, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}
        return execute("unshare", "--mount", "/bin/sh", "-ec", IN_BARE_SYSTEM, env=os.environ | variables)

    def test_debian(self):
        self.root = self.folder / "root"
        self.root.mkdir()
        self.succeed("tar", "-C", self.root, "-xf", BARE)
        self.pack("DEB", self.root / "packages")
        (self.root / "etc/resolv.conf").write_text(pathlib.Path("/etc/resolv.conf").read_text())

        # A system that is thrown away need not survive a power cut.
        (self.root / "etc/dpkg/dpkg.cfg.d/unsafe").write_text("force-unsafe-io\n")
        installed = self.in_bare_system(INSTALL)
        self.assertEqual(installed.returncode, 0, installed.stdout)
        without = self.in_bare_system("cd /tmp; lockstep demo", torch="")
        self.assertEqual(without.returncode, 2, without.stdout)
        self.assertRegex(without.stdout, r"LibTorch cannot be used; expected LibTorch 2\.\d+ in .* /opt/torch .*pip install")
        trained = self.in_bare_system("cd /tmp; lockstep demo")
        self.assertEqual(trained.returncode, 0, trained.stdout)
        self.assertRegex(trained.stdout, r"demo: test accuracy 0\.9.*\(2 ranks")

        consumer = self.root / "tmp/consumer"
        consumer.mkdir()
        for file in (SOURCE / "tests/packaging/consumer").iterdir():
            (consumer / file.name).write_bytes(file.read_bytes())
        built = self.in_bare_system("cd /tmp/consumer; cmake -B build -G Ninja; cmake --build build; build/consumer; pkg-config --variable=torch lockstep")
        self.assertEqual(built.returncode, 0, built.stdout)
        self.assertIn("-- LibTorch: /opt/torch\n", built.stdout)
        self.assertTrue(built.stdout.endswith("lockstep 0.1.0, 1 rank, sum 1\n/opt/torch\n"), built.stdout)

        removed = self.in_bare_system("dpkg --purge lockstep liblockstep-dev liblockstep0.1; find /usr -name '*lockstep*'")
        self.assertEqual(removed.returncode, 0, removed.stdout)
        self.assertNotIn("\n/usr", removed.stdout)

    def test_archive(self):
        archive, = self.pack("TZST", self.folder / "packed")
        # Of any name, and moved once more after it was unpacked.
        self.succeed("cmake", "-E", "tar", "xf", archive, cwd=self.folder)
        next(self.folder.glob("lockstep-*")).rename(self.folder / "anywhere")
        (self.folder / "torch").symlink_to(TORCH)
        clean = {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}
        trained = self.succeed(self.folder / "anywhere/bin/lockstep", "demo", cwd=self.folder, env=clean)
        self.assertRegex(trained, r"demo: test accuracy 0\.9.*\(2 ranks")
        for file in (*self.folder.glob("anywhere/bin/*"), *self.folder.glob("anywhere/lib/*.so")):
            self.assertNotIn(str(TORCH), self.succeed("readelf", "-d", file))
            self.assertNotIn(str(BINARY), self.succeed("ldd", file, env=clean))


if __name__ == "__main__":
    unittest.main()
