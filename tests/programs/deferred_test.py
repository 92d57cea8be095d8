"""Models that are built in configure_model under fsdp: weights as ever, memory for shards and one parameter."""
import unittest

from harness import BINARY, ProgramTest

CASE = BINARY / "bin" / "deferred_case"
RANKS = 2
LAYER_MIB = 4  # a matrix of 1024 x 1024
LARGE = ["--case.layers", 32, "--case.width", 1024]
SHARDS_MIB = 32 * LAYER_MIB / RANKS
ENOUGH_MIB = 1.1 * (SHARDS_MIB + LAYER_MIB)
FILE_MIB = 32 * LAYER_MIB  # mapped: its pages are counted, and can be dropped
BUFFERS_MIB = 24


class Deferred(ProgramTest):
    def fit(self, name, *flags, strategy="fsdp", **options):
        weights = self.folder / f"{name}.safetensors"
        chosen = [word for key, value in options.items() for word in (f"--trainer.strategy.{key}", value)]
        result = self.run_program(CASE, "fit", "--run_dir", self.folder / name, "--save_weights", weights, "--trainer.devices", RANKS,
                                  "--trainer.strategy", strategy, *chosen, "--case.record", self.folder / f"{name}_peak", *flags)
        self.assertEqual(result.code, 0, result)
        return weights.read_bytes()

    def peak_mib(self, name):
        peaks = [float((self.folder / f"{name}_peak.{rank}").read_text()) for rank in range(RANKS)]
        self.assertGreater(min(peaks), SHARDS_MIB)
        return max(peaks)

    def checkpoint_of(self, name):
        return self.folder / name / "checkpoints" / "last.ckpt"

    def test_weights_are_those_of_a_model_built_as_ever(self):
        for precision in ("32-true", "bf16-true", "bf16-mixed"):
            with self.subTest(precision):
                flags = ["--trainer.precision", precision]
                expected = self.fit(f"ever_{precision}", *flags, "--case.in_constructor", "true")
                self.assertEqual(self.fit(f"deferred_{precision}", *flags), expected)

    def test_the_peak_is_the_shards_and_one_parameter(self):
        self.fit("new", *LARGE, state_dict_type="sharded")
        self.assertLess(self.peak_mib("new"), ENOUGH_MIB)
        self.fit("whole", *LARGE)
        ways = {"sharded": ["--ckpt_path", self.checkpoint_of("new")], "full": ["--ckpt_path", self.checkpoint_of("whole")],
                "weights": ["--init_weights", self.folder / "whole.safetensors"]}
        for name, flags in ways.items():
            with self.subTest(name):
                self.fit(name, *LARGE, "--trainer.max_steps", 3, *flags)
                self.assertLess(self.peak_mib(name), ENOUGH_MIB + FILE_MIB + BUFFERS_MIB)

    def test_what_is_loaded_is_what_was_saved(self):
        expected = self.fit("straight", "--trainer.max_steps", 4)
        self.fit("half")
        self.fit("half_sharded", state_dict_type="sharded")
        for name in ("half", "half_sharded"):
            self.assertEqual(self.fit(f"{name}_on", "--trainer.max_steps", 4, "--ckpt_path", self.checkpoint_of(name)), expected)
        loaded = self.fit("loaded", "--trainer.max_steps", 0, "--init_weights", self.folder / "straight.safetensors")
        self.assertEqual(loaded, expected)

    def test_ddp_and_a_single_device_build_as_ever(self):
        expected = self.fit("fsdp")
        self.assertEqual(self.fit("ddp", strategy="ddp"), expected)


if __name__ == "__main__":
    unittest.main()
