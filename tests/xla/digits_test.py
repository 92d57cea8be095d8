#!/usr/bin/env python3
"""The demo on a device of XLA, beside the same on the CPU."""
import json
import unittest

from digits_runs import PLUGIN, DigitsRuns


class TestDigits(DigitsRuns):
    def command(self, name, *flags):
        return super().command(name, "--trainer.devices", 1, *flags)

    def test_has_the_losses_of_the_cpu(self):
        steps = ("--trainer.max_steps", 50)
        expected = self.losses("cpu", *steps, "--trainer.accelerator", "cpu")
        got = self.losses("xla", *steps, "--trainer.accelerator", "xla", LOCKSTEP_PJRT_PLUGIN=PLUGIN)
        self.assertGreaterEqual(len(expected), 50)
        self.assertEqual(got.keys(), expected.keys())
        for key, value in expected.items():
            self.assertAlmostEqual(got[key], value, delta=1e-5 * abs(value), msg=str(key))

    def test_captures_its_steps(self):
        steps = ("--trainer.max_steps", 50)
        expected = self.losses("cpu", *steps, "--trainer.accelerator", "cpu")
        got = self.losses("captured", *steps, "--trainer.accelerator", "xla", "--trainer.cuda_graphs", "true", LOCKSTEP_PJRT_PLUGIN=PLUGIN)
        for key, value in expected.items():
            self.assertAlmostEqual(got[key], value, delta=1e-5 * abs(value), msg=str(key))
        counts = json.loads((self.folder / "captured/summary.json").read_text())["xla"]
        self.assertGreaterEqual(counts["steps_replayed"], 40)
        self.assertGreater(counts["programs_compiled"] + counts["programs_from_files"], 0)
        self.assertGreater(counts["compile_seconds"], 0)
        self.assertNotIn("xla", json.loads((self.folder / "cpu/summary.json").read_text()))

    def test_goes_on_from_a_checkpoint_of_the_other(self):
        expected = self.losses("whole", "--trainer.max_steps", 20, "--trainer.accelerator", "cpu")
        for first, second in (("cpu", "xla"), ("xla", "cpu")):
            with self.subTest(first):
                self.losses("first_" + first, "--trainer.max_steps", 10, "--trainer.accelerator", first, LOCKSTEP_PJRT_PLUGIN=PLUGIN)
                got = self.losses("then_" + second, "--trainer.max_steps", 20, "--trainer.accelerator", second, "--ckpt_path",
                                  self.folder / ("first_" + first) / "checkpoints/last.ckpt", LOCKSTEP_PJRT_PLUGIN=PLUGIN)
                self.assertGreaterEqual(len(got), 10)
                for key, value in got.items():
                    if key in expected:
                        self.assertAlmostEqual(value, expected[key], delta=1e-5 * abs(expected[key]), msg=str(key))

    def test_is_refused_without_a_plugin(self):
        for accelerator in ("xla", "tpu"):
            result = self.start("none", "--trainer.accelerator", accelerator)
            self.assertEqual(result.returncode, 2, result.stderr)
            self.assertIn("LOCKSTEP_PJRT_PLUGIN", result.stderr)

    def test_is_refused_with_too_few_devices_or_another_library(self):
        for variables, words in (({"LOCKSTEP_PJRT_DEVICES": "3", "LOCKSTEP_PJRT_OPTIONS": "cpu_device_count=2"}, ("fewer devices", "at most 2")),
                                 ({"LOCKSTEP_PJRT_PLUGIN": "/none.so"}, ("PJRT plug-in is not there", "/none.so")),
                                 ({"LOCKSTEP_XLA_LIBRARY": "/none.so"}, ("lockstep's library for XLA is not there", "make xla")),
                                 ({"LOCKSTEP_XLA_LIBRARY": PLUGIN}, ("not lockstep's library for XLA",)),
                                 ({"LOCKSTEP_XLA_FALLBACK": "none"}, ("LOCKSTEP_XLA_FALLBACK", "cpu or error"))):
            with self.subTest(variables):
                result = self.start("refused", "--trainer.accelerator", "xla", **{"LOCKSTEP_PJRT_PLUGIN": PLUGIN, **variables})
                self.assertEqual(result.returncode, 2, result.stderr)
                for word in words:
                    self.assertIn(word, result.stderr)


if __name__ == "__main__":
    unittest.main()
