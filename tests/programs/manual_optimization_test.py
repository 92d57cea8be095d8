"""The GAN example: two optimizers under DDP."""
import csv
import json
import unittest

from harness import BINARY, SOURCE, ProgramTest

GAN = BINARY / "bin" / "example_03_manual_optimization_gan"


class ManualOptimizationTest(ProgramTest):
    def gan(self, name, *flags):
        data = self.folder / "data"
        if not data.exists():
            data.symlink_to(SOURCE / "data")
        run = self.folder / name
        result = self.run_program(GAN, "--trainer.max_epochs", "2", "--seed_everything", "1", "--run_dir", run,
                                  "--trainer.log_every_n_steps", "1", *flags)
        self.assertEqual(result.code, 0, result)
        return run

    def clipping(self, norm, **others):
        file = self.folder / f"clip_{norm}.json"
        file.write_text(json.dumps({"zero_optimization": {"stage": 2}, "gradient_clipping": norm, **others}))
        return file

    def test_every_step_clips_as_deepspeeds_file_says(self):
        steps = ["--trainer.devices", "2", "--trainer.max_epochs", "1", "--trainer.limit_train_batches", "3"]
        ddp = self.losses(self.gan("ddp", *steps, "--trainer.strategy", "ddp"))
        with_file = ["--trainer.strategy", "deepspeed", "--trainer.strategy.config"]
        self.assertEqual(self.losses(self.gan("wide", *steps, *with_file, self.clipping(1e9))), ddp)
        self.assertNotEqual(self.losses(self.gan("tight", *steps, *with_file, self.clipping(1e-6))), ddp)
        refused = self.run_program(GAN, "--run_dir", self.folder / "refused", *steps, *with_file, self.clipping(1.0, gradient_accumulation_steps=2))
        self.assert_refused(refused, 2, "gradient_accumulation_steps (", "manual optimisation")

    def losses(self, run):
        with open(run / "metrics.csv", newline="") as file:
            rows = list(csv.DictReader(file))
        return [(float(row["g_loss"]), float(row["d_loss"])) for row in rows if row["g_loss"]]

    def test_two_ranks_train_and_repeat(self):
        runs = [self.gan(name, "--trainer.devices", "2") for name in ("first", "again")]
        first = self.losses(runs[0])
        self.assertEqual(len(first), 2 * 15)
        self.assertLess(first[-1][1], first[0][1])  # the discriminator has learnt
        self.assertEqual(first, self.losses(runs[1]))
        weights = [(run / "checkpoints" / "last.ckpt" / "model.safetensors").read_bytes() for run in runs]
        self.assertEqual(weights[0], weights[1])

    def test_goes_on_from_a_checkpoint_with_both_optimizers(self):
        config = self.clipping(1.0)
        for strategy in ("ddp", "fsdp", "deepspeed"):
            with self.subTest(strategy):
                flags = ["--trainer.devices", "2", "--trainer.strategy", strategy]
                if strategy == "deepspeed":
                    flags += ["--trainer.strategy.config", config]
                whole = self.gan(f"whole_{strategy}", *flags)
                half = self.gan(f"half_{strategy}", *flags, "--trainer.max_epochs", "1")
                rest = self.gan(f"rest_{strategy}", *flags, "--ckpt_path", half / "checkpoints" / "last.ckpt")
                expected, found = ({path.name: path.read_bytes() for path in (run / "checkpoints" / "last.ckpt").glob("*.safetensors")}
                                   for run in (whole, rest))
                self.assertEqual(sorted(found), sorted(expected))
                self.assertGreaterEqual(len(expected), 3, "the model and two optimizers")
                for name, content in expected.items():
                    self.assertEqual(found[name], content, name)


if __name__ == "__main__":
    unittest.main()
