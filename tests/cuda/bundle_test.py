#!/usr/bin/env python3
"""What tools/gpu_bundle.sh packs starts in an empty folder, and tools/gpu_check.sh says what is missing where there is no GPU."""
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ["LOCKSTEP_BINARY_DIR"])
TORCH = pathlib.Path(os.environ["LOCKSTEP_TORCH_ROOT"]) / "lib"
FAKES = BUILD / "tests/cuda/fakes"
# What every Linux that PyTorch runs on has.
OF_THE_SYSTEM = re.compile(r"(ld-linux-x86-64|libc|libm|libdl|librt|libpthread|libgcc_s|libstdc\+\+|libz|libcrypto|libgomp|linux-vdso)\.so")


class Bundle(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.file = cls.folder / "bundle.tar.xz"
        subprocess.run([SOURCE / "tools/gpu_bundle.sh"], check=True, stdout=subprocess.DEVNULL,
                       env={**os.environ, "BUILD": str(BUILD), "BUNDLE": str(cls.file), "XZ_OPT": "-0"})
        cls.torch = cls.folder / "torch"
        (cls.torch / "lib").mkdir(parents=True)
        for library in [*TORCH.glob("*.so*"), FAKES / "libtorch_cuda.so"]:
            if not (cls.torch / "lib" / library.name).exists():
                (cls.torch / "lib" / library.name).symlink_to(library)
        cls.unpacked = cls.folder / "unpacked"
        cls.unpacked.mkdir()
        subprocess.run(["tar", "-C", cls.unpacked, "-xJf", cls.file], check=True)
        cls.environment = {"LD_LIBRARY_PATH": f"{cls.torch / 'lib'}:{cls.unpacked / 'lib'}", "PATH": os.environ["PATH"]}

    def test_may_travel(self):
        self.assertLessEqual(self.file.stat().st_size, 64 << 20)

    def test_has_all_libraries_that_it_needs(self):
        for program in sorted((self.unpacked / "bin").iterdir()):
            listed = subprocess.run(["ldd", program], capture_output=True, text=True, check=True, env=self.environment).stdout
            for line in listed.splitlines():
                name, _, place = line.strip().partition(" => ")
                self.assertNotIn("not found", place, line)
                is_ours = place.startswith((str(self.unpacked), str(self.torch)))
                self.assertTrue(is_ours or OF_THE_SYSTEM.match(pathlib.Path(name.split()[0]).name), f"{program.name}: {line}")

    def test_without_a_gpu_every_program_starts_and_says_what_is_missing(self):
        result = subprocess.run([SOURCE / "tools/gpu_check.sh", self.file], capture_output=True, text=True, timeout=240,
                                env={"TORCH": str(self.torch), "PATH": os.environ["PATH"]})
        said = result.stdout + result.stderr
        self.assertEqual(result.returncode, 2, said)
        for program in ("gpu_case", "cuda_contract_tests", "digits", "example_05_fsdp_transformer", "example_11_models_from_elsewhere", "sim_case"):
            self.assertRegex(said, rf"(?m)^ok    starts: {program}")
        self.assertIn("there is no driver of NVIDIA", said)
        self.assertIn("nothing was run: no GPU", said)
        self.assertNotIn("FAIL", said)

    def test_the_table_of_goals_has_what_was_measured(self):
        lines = self.folder / "results.jsonl"
        lines.write_text('{"check": "speed of sum_rows of 8 rows", "ok": true, "of_a_copy": 0.91}\n'
                         '{"check": "step of a small network as a graph", "ok": true, "us": 40, "us_of_cpu": 35.2}\n'
                         '{"peer": "step of a small network", "us": 240}\nno json\n')
        table = subprocess.run([SOURCE / "tools/gpu_table.py", lines], capture_output=True, text=True, check=True).stdout
        self.assertIn("| sum_rows of 8 rows | bytes per second of a copy | 85 % | 91% | met |", table)
        self.assertIn("| step of a small network, as a graph | PyTorch eager | 5x | 6.0x | met |", table)
        self.assertIn("| 30 us | 35 us | missed |", table)
        self.assertIn("| quantize to 8 bits | bytes per second of a copy | 85 % | not run |  |", table)


if __name__ == "__main__":
    unittest.main()
