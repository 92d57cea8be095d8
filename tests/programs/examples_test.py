"""The examples, on two ranks."""
import csv
import unittest

from harness import BINARY, SOURCE, ProgramTest


class ExamplesTest(ProgramTest):
    def example(self, name, *flags):
        (self.folder / "data").symlink_to(SOURCE / "data")
        run = self.folder / "run"
        result = self.run_program(BINARY / "bin" / f"example_{name}", "--trainer.devices", "2", "--run_dir", run, *flags)
        self.assertEqual(result.code, 0, result)
        return run, result

    def column(self, run, name):
        with open(run / "metrics.csv", newline="") as file:
            return [float(row[name]) for row in csv.DictReader(file) if row.get(name)]

    def test_trainer(self):
        run, _ = self.example("01_trainer", "--seed_everything", "1")
        losses = self.column(run, "val_loss")
        self.assertEqual(len(losses), 3)
        self.assertLess(losses[-1], losses[0])

    def test_callbacks_and_logging(self):
        run, result = self.example("04_callbacks_and_logging", "--seed_everything", "1", "--trainer.max_epochs", "6")
        self.assertGreater(self.column(run, "val_accuracy")[-1], 0.9)
        rates = self.column(run, "lr-AdamW")
        self.assertEqual(len(rates), 6)
        self.assertAlmostEqual(rates[1], 0.9 * rates[0], places=9)
        self.assertTrue(all(norm > 0 for norm in self.column(run, "grad_norm")))
        self.assertTrue(list(run.rglob("events.out.tfevents.*")))
        kept = sorted(path.name for path in (run / "checkpoints").iterdir())
        self.assertEqual(sum(name.startswith("epoch=") for name in kept), 2, kept)
        best = next(line for line in result.out.splitlines() if line.startswith("best: "))
        self.assertIn(best.removeprefix("best: "), kept)


if __name__ == "__main__":
    unittest.main()
