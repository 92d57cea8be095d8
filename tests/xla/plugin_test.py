#!/usr/bin/env python3
"""Which PJRT plug-ins are taken, and what is said of those that are not."""
import os
import pathlib
import subprocess
import tempfile
import unittest

BINARIES = pathlib.Path(os.environ["LOCKSTEP_BINARY_DIR"])
PLUGIN = os.environ["LOCKSTEP_XLA_TEST_PLUGIN"]
FAKE = str(BINARIES / "tests" / "xla" / "fakes" / "libpjrt_fake.so")


class TestPlugins(unittest.TestCase):
    def setUp(self):
        self.assertTrue(pathlib.Path(PLUGIN).exists(), f"{PLUGIN} is not there: tools/xla.sh fetches it")
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def load(self, *arguments, **variables):
        environment = {name: value for name, value in os.environ.items() if name not in ("LOCKSTEP_PJRT_PLUGIN", "PJRT_DEVICE")}
        return subprocess.run([str(BINARIES / "bin" / "plugin_case"), *map(str, arguments)], env=environment | variables,
                              capture_output=True, text=True, timeout=60)

    def assert_refused(self, run, *parts):
        self.assertEqual(run.returncode, 2, run.stdout + run.stderr)
        self.assertEqual(run.stderr.count("\n"), 1, run.stderr)
        for part in parts:
            self.assertIn(str(part), run.stderr)

    def test_none_is_loaded_that_was_not_named(self):
        self.assertEqual(self.load().stdout, "no plug-in\n")

    def test_one_is_named_by_option_or_variable(self):
        for run in (self.load(PLUGIN, "cpu_device_count=2"), self.load("", "cpu_device_count=2", LOCKSTEP_PJRT_PLUGIN=PLUGIN),
                    self.load(PLUGIN, "cpu_device_count=2", LOCKSTEP_PJRT_PLUGIN=PLUGIN)):
            self.assertEqual((run.stdout, run.stderr), ("cpu 2 devices, PJRT 0.115\n", ""))

    def python_with(self, *files):
        """The variables of a process whose Python has these files in a folder of packages: it prints its folders."""
        packages, programs = self.folder / "packages", self.folder / "programs"
        programs.mkdir(exist_ok=True)
        for file in files:
            (packages / file).parent.mkdir(parents=True, exist_ok=True)
            (packages / file).symlink_to(PLUGIN)
        python = programs / "python3"
        python.write_text(f"#!/bin/sh\necho {self.folder}/none\necho {packages}\n")
        python.chmod(0o755)
        return {"PATH": f"{programs}:{os.environ['PATH']}"}

    def test_packages_are_found_by_the_kind_of_device(self):
        path = self.python_with("lammps_jax_pjrt_cpu/pjrt_c_api_cpu_plugin.so")
        for run in (self.load("", "cpu_device_count=2", PJRT_DEVICE="CPU", **path), self.load("cpu", "cpu_device_count=2", **path),
                    self.load("CPU", "cpu_device_count=2", PJRT_DEVICE="TPU", **path),
                    self.load("", "cpu_device_count=2", LOCKSTEP_PJRT_PLUGIN=PLUGIN, PJRT_DEVICE="TPU", **path)):
            self.assertEqual((run.stdout, run.stderr), ("cpu 2 devices, PJRT 0.115\n", ""))

    def test_packages_are_not_loaded_unless_their_kind_is_named(self):
        path = self.python_with("lammps_jax_pjrt_cpu/pjrt_c_api_cpu_plugin.so", "libtpu/libtpu.so")
        self.assertEqual(self.load(**path).stdout, "no plug-in\n")

    def test_kinds_of_devices_that_nobody_knows(self):
        self.assert_refused(self.load(PJRT_DEVICE="NEURON", **self.python_with()), "no PJRT plug-in is known", "CPU, CUDA or TPU", "PJRT_DEVICE NEURON")

    def test_packages_that_are_not_there(self):
        for kind, package in (("TPU", "libtpu"), ("CUDA", "jax-cuda13-pjrt or jax-cuda12-pjrt"), ("gpu", "jax-cuda13-pjrt"), ("CPU", "lammps-jax-pjrt-cpu")):
            self.assert_refused(self.load(PJRT_DEVICE=kind, **self.python_with()), "the Python on PATH has no PJRT plug-in", package, kind, "pip")

    def test_no_python(self):
        self.assert_refused(self.load(PJRT_DEVICE="TPU", PATH=str(self.folder)), "python3 on PATH", "PJRT_DEVICE TPU")

    def test_two_names(self):
        self.assert_refused(self.load(FAKE, LOCKSTEP_PJRT_PLUGIN=PLUGIN), "two PJRT plug-ins are named", FAKE, PLUGIN)

    def test_two_in_one_process(self):
        self.assert_refused(self.load(PLUGIN, "", PLUGIN, FAKE), "has a PJRT plug-in already", FAKE, PLUGIN)

    def test_missing(self):
        missing = self.folder / "missing.so"
        self.assert_refused(self.load(missing), "is not there", "no such file", missing, "tools/xla.sh")

    def test_a_folder(self):
        self.assert_refused(self.load(self.folder), "cannot be used", "not a file", self.folder)

    def test_of_another_kind(self):
        text = self.folder / "text.so"
        text.write_text("# not a library\n" * 100)
        self.assert_refused(self.load(text), "cannot be used", "a file of another kind", text)

    def test_a_program(self):
        self.assert_refused(self.load(self.changed(16, b"\x02")), "cannot be used", "another machine, or a program")

    def test_for_another_machine(self):
        self.assert_refused(self.load(self.changed(18, b"\x08\x00")), "cannot be used", "another machine")

    def changed(self, offset, value):
        data = bytearray(pathlib.Path(FAKE).read_bytes())
        data[offset:offset + len(value)] = value
        file = self.folder / "changed.so"
        file.write_bytes(data)
        return file

    def test_truncated(self):
        data = pathlib.Path(FAKE).read_bytes()
        file = self.folder / "truncated.so"
        for size in (20, 64, 1000, len(data) // 2, len(data) - 1):
            file.write_bytes(data[:size])
            self.assert_refused(self.load(file), "is incomplete", f"{size} bytes", file, "again")

    def test_another_library(self):
        other = BINARIES / "lib" / "liblockstep_core.so"
        self.assert_refused(self.load(other), "cannot be used", "without GetPjrtApi", other)

    def test_versions(self):
        self.assert_refused(self.load(FAKE, FAKE_PJRT="too old"), "too old", "version 0.81 or a later one", "version 0.40", FAKE)
        self.assert_refused(self.load(FAKE, FAKE_PJRT="next major"), "later interface", "of 0.x", "version 1.120", FAKE)
        self.assert_refused(self.load(FAKE, FAKE_PJRT="short table"), "lacks functions", "64 bytes", FAKE)
        self.assert_refused(self.load(FAKE, FAKE_PJRT="nothing"), "cannot be used", "gives nothing", FAKE)

    def test_one_that_does_not_start(self):
        self.assert_refused(self.load(FAKE, FAKE_PJRT="no start"), "does not start", "the driver is not there", FAKE)

    def test_no_device(self):
        self.assert_refused(self.load(FAKE), "has no device", "platform fake with 0 devices", FAKE)

    def test_options(self):
        self.assert_refused(self.load(FAKE, "count=3"), "options count=3", "Unexpected option name", "count", FAKE)
        self.assert_refused(self.load(PLUGIN, "no_such_option=3"), "options no_such_option=3", PLUGIN)
        self.assert_refused(self.load(PLUGIN, "cpu_device_count"), "NAME=VALUE", '"cpu_device_count"')

    def test_options_have_the_types_of_what_is_written(self):
        run = self.load(PLUGIN, "cpu_device_count=2,asynchronous=false")
        self.assertEqual((run.stdout, run.stderr), ("cpu 2 devices, PJRT 0.115\n", ""))
        for value, kind in (("1", 2), ("0.5", 4), ("no", 0)):  # whole number, number, text: alternatives of the plug-in's own
            self.assert_refused(self.load(PLUGIN, f"asynchronous={value}"), f"has type index {kind} but expected type index is 4")


if __name__ == "__main__":
    unittest.main()
