"""Every precision by its name, on one rank and on two: what it trains to, and what it keeps."""
import json
import struct
import unittest

from harness import ProgramTest

# name -> what Lightning calls it now, element type of the weights
PRECISIONS = {
    "32-true": ("32-true", "F32"), "32": ("32-true", "F32"),
    "64-true": ("64-true", "F64"), "64": ("64-true", "F64"),
    "16-mixed": ("16-mixed", "F32"), "16": ("16-mixed", "F32"),
    "bf16-mixed": ("bf16-mixed", "F32"), "bf16": ("bf16-mixed", "F32"),
    "16-true": ("16-true", "F16"), "bf16-true": ("bf16-true", "BF16"),
}
OLD_NAMES = ("16", "bf16")


class Precision(ProgramTest):
    def train(self, precision, ranks, *flags):
        world = ["--trainer.devices", ranks, *(["--trainer.strategy", "ddp"] if ranks > 1 else [])]
        result = self.digits("--trainer.max_epochs", 4, "--optimizer.lr", 0.01, "--seed_everything", 1, *world,
                             "--trainer.precision", precision, "--save_weights", self.folder / "weights", *flags)
        self.assertEqual(result.code, 0, result)
        return result, json.loads((self.folder / "run" / "summary.json").read_text())

    def element_types(self):
        data = (self.folder / "weights").read_bytes()
        header = json.loads(data[8:8 + struct.unpack("<Q", data[:8])[0]])
        return {entry["dtype"] for name, entry in header.items() if name != "__metadata__"}

    def check_all(self, ranks):
        for precision, (name, dtype) in PRECISIONS.items():
            with self.subTest(precision):
                result, summary = self.train(precision, ranks)
                self.assertEqual((summary["precision"], summary["world_size"]), (name, ranks))
                self.assertGreater(summary["metrics"]["val_accuracy"], 0.85)
                self.assertEqual(self.element_types(), {dtype})
                self.assertEqual(f'write "{name}"' in result.err, precision in OLD_NAMES, result)

    def test_one_rank(self):
        self.check_all(1)

    def test_two_ranks(self):
        self.check_all(2)

    def test_numbers_in_a_file(self):
        (self.folder / "run.yaml").write_text("trainer:\n  precision:\n    name: 16\n    init_scale: 8\n")
        result = self.digits("--config", self.folder / "run.yaml", "--print_config")
        self.assertEqual(result.code, 0, result)
        self.assertIn("16-mixed", result.out)
        self.assertIn("init_scale: 8", result.out)

    def test_others_are_refused(self):
        self.assert_refused(self.digits("--trainer.precision", "8"), 2, "trainer.precision", "8", *PRECISIONS)
        for name in ("transformer-engine", "transformer-engine-float16"):
            self.assert_refused(self.digits("--trainer.precision", name), 2, name, "docs/status.md")
        self.assert_refused(self.digits("--trainer.precision", "16-mixed", "--trainer.precision.backoff_factor", 2), 2, "backoff_factor")
        self.assert_refused(self.digits("--trainer.precision", "bf16-mixed", "--trainer.precision.init_scale", 2), 2, "init_scale")

    def test_the_scale_is_of_ranks_together(self):
        for ranks in (1, 2):
            _, summary = self.train("16-mixed", ranks, "--trainer.precision.init_scale", 2.0**40)
            self.assertGreater(summary["metrics"]["val_accuracy"], 0.8)


if __name__ == "__main__":
    unittest.main()
