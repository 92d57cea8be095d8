"""The examples, on two ranks."""
import csv
import math
import unittest

from harness import BINARY, SOURCE, ProgramTest

TRANSFORMER_STRATEGIES = ("ddp", "fsdp")


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

    def test_trainer_tunes_itself(self):
        run, result = self.example("01_trainer", "tune", "--tune.scale_batch_size.max_val", "64", "--tune.lr_find.num_training", "30")
        self.assertIn("--train.batch_size         64", result.out)
        self.assertIn("--train.lr ", result.out)
        self.assertIn("batch_size: 64", (run / "config.yaml").read_text())

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

    def test_callbacks_in_a_run_that_is_cut_before_its_first_validation(self):
        _, result = self.example("04_callbacks_and_logging", "--trainer.max_steps", "5")
        self.assertEqual(result.err.count("no validation has ended yet"), 2, result)

    def transformer(self, *flags):
        return self.run_program(BINARY / "bin/example_05_fsdp_transformer", *flags, "--model.size", "tiny", "--data.text",
                                SOURCE / "LICENSE", "--data.batch_size", "16", "--optimizer.warmup_steps", "5", "--optimizer.lr",
                                "0.01", "--seed_everything", "1")

    def test_transformer(self):
        for strategy in TRANSFORMER_STRATEGIES:
            with self.subTest(strategy):
                run = self.folder / strategy
                result = self.transformer("--trainer.devices", "2", "--trainer.strategy", strategy, "--run_dir", run,
                                          "--trainer.max_epochs", "4")
                self.assertEqual(result.code, 0, result)
                self.check_learnt(run)
                written = result.out[result.out.index("The "):]
                self.assertGreater(len(written), 300)

                again = self.transformer("predict", "--ckpt_path", run / "checkpoints/last.ckpt")
                self.assertEqual(again.out[again.out.index("The "):], written)

    def test_transformer_has_the_same_weights_under_every_strategy(self):
        strategies = {"ddp": ["ddp"], "fsdp_cpu_offload": ["fsdp_cpu_offload", "--trainer.strategy.offload_dir", self.folder]}
        for sharding in ("FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD"):
            strategies[sharding] = ["fsdp", "--trainer.strategy.sharding_strategy", sharding]
        for stage in (1, 2, 3):
            strategies[f"stage_{stage}"] = [f"deepspeed_stage_{stage}"]
        weights = {}
        for name, flags in strategies.items():
            path = self.folder / f"{name}.safetensors"
            result = self.transformer("--trainer.devices", "2", "--run_dir", self.folder / name, "--trainer.max_steps", "8",
                                      "--trainer.limit_val_batches", "0", "--sample.tokens", "0", "--save_weights", path,
                                      "--trainer.strategy", *flags)
            self.assertEqual(result.code, 0, result)
            weights[name] = path.read_bytes()
        for name, found in weights.items():
            self.assertEqual(found, weights["ddp"], name)

    def check_learnt(self, run):
        losses = self.column(run, "val_loss")
        self.assertEqual(len(losses), 4)
        self.assertLess(losses[-1], losses[0])
        self.assertLess(losses[-1], 3.2)  # 5.5 when all bytes are equally likely
        for loss, perplexity in zip(losses, self.column(run, "perplexity")):
            self.assertAlmostEqual(math.log(perplexity), loss, places=5)
        self.assertTrue(all(rate > 0 for rate in self.column(run, "train/items_per_sec")))

    def test_transformer_with_learnt_tokens(self):
        prompt = "Größe: 1,5  m\n\tTHE Licence's 日本 end"
        result = self.transformer("--trainer.max_steps", "2", "--data.vocab_size", "300", "--sample.prompt", prompt,
                                  "--sample.tokens", "1")
        self.assertIn(prompt, result.out)

    def test_transformer_refusals(self):
        for flags, code, words in ((("--model.heads", "3"), 2, ("model.width", "model.heads = 3", "32")),
                                   (("--data.text", "nowhere"), 2, ("data.text", "nowhere")),
                                   (("--model.context", "20000"), 1, ("data.text", "--model.context")),
                                   (("--data.vocab_size", "255"), 2, ("data.vocab_size", "255"))):
            with self.subTest(flags):
                self.assert_refused(self.transformer(*flags), code, *words)


if __name__ == "__main__":
    unittest.main()
