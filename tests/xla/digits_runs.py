"""Runs of the demo on devices of XLA and on the CPU, and their losses."""
import csv
import os
import pathlib
import subprocess
import tempfile
import unittest

BUILD = pathlib.Path(os.environ["LOCKSTEP_BINARY_DIR"])
SOURCE = pathlib.Path(__file__).parents[2]
PLUGIN = os.environ["LOCKSTEP_XLA_TEST_PLUGIN"]
HIDDEN = ("LOCKSTEP_PJRT", "LOCKSTEP_XLA", "PJRT_DEVICE")


class DigitsRuns(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.cache = self.folder / "cache"

    def environment(self, **variables):
        kept = {key: value for key, value in os.environ.items() if not key.startswith(HIDDEN)}
        return {**kept, "LOCKSTEP_XLA_CACHE": str(self.cache), **{key: str(value) for key, value in variables.items()}}

    def command(self, name, *flags):
        return [BUILD / "bin/digits", "--seed_everything", "1", "--run_dir", self.folder / name, *map(str, flags)]

    def start(self, name, *flags, **variables):
        return subprocess.run(self.command(name, *flags), cwd=SOURCE, capture_output=True, text=True, timeout=250,
                              env=self.environment(**variables))

    def losses(self, name, *flags, **variables):
        result = self.start(name, "--trainer.log_every_n_steps", 1, *flags, **variables)
        self.assertEqual(result.returncode, 0, result.stderr)
        with open(self.folder / name / "metrics.csv", newline="") as file:
            rows = list(csv.DictReader(file))
        return {(row["step"], key): float(value) for row in rows for key, value in row.items() if "loss" in key and value}

    def assert_equal_losses(self, got, expected, relative=1e-5):
        self.assertEqual(got.keys(), expected.keys())
        for key, value in expected.items():
            self.assertAlmostEqual(got[key], value, delta=relative * abs(value), msg=str(key))
