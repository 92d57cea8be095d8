"""Callbacks that a file, a flag or a variable names: a fit does what they say, and its configuration repeats it."""
import json
import unittest

from harness import BINARY, DIGITS, SOURCE, ProgramTest

COMMAND = BINARY / "bin" / "lockstep"
SAME = "the weights are the same, bit for bit"

FILE = """
seed_everything: 3
trainer:
  max_epochs: 12
  devices: 2
  strategy: ddp
  log_every_n_steps: 10
  callbacks:
    - class_path: lightning.pytorch.callbacks.EarlyStopping
      init_args:
        monitor: val_loss
        patience: 2
        min_delta: 10
    - class_path: ModelCheckpoint
      init_args: {monitor: val_loss, save_top_k: 2, filename: "named-{epoch}"}
    - LearningRateMonitor
"""
STOPS_AT_ONCE = "{class_path: EarlyStopping, init_args: {monitor: val_loss, stopping_threshold: 100}}"


class NamedCallbacks(ProgramTest):
    def write(self, text, name="run.yaml"):
        (self.folder / name).write_text(text)
        return self.folder / name

    def succeed(self, *flags, **environment):
        result = self.digits(*flags, **environment)
        self.assertEqual(result.code, 0, result)
        return result

    def summary(self, run="run"):
        return json.loads((self.folder / run / "summary.json").read_text())

    def epochs(self, run="run"):
        """Those that were trained, before it was resumed, too: 45 batches of 32, or 23 of each of two ranks."""
        summary = self.summary(run)
        return summary["steps"] // (45 if summary["world_size"] == 1 else 23)

    def checkpoints(self, run="run"):
        return sorted(path.name for path in (self.folder / run / "checkpoints").iterdir())

    def test_a_file_names_three(self):
        result = self.succeed("-c", self.write(FILE))
        # The first value is the best; the two that follow are no better by min_delta.
        self.assertEqual(self.epochs(), 3, result)
        self.assertIn("val_loss", result.err + result.out)
        kept = self.checkpoints()
        self.assertEqual(len([name for name in kept if name.startswith("named-epoch=")]), 2, kept)
        self.assertIn("last.ckpt", kept)
        self.assertIn("lr-", (self.folder / "run" / "metrics.csv").read_text().splitlines()[0])

        with self.subTest("the configuration that was saved repeats the run"):
            saved = self.folder / "run" / "config.yaml"
            self.succeed("-c", saved, "--run_dir", self.folder / "again")
            self.assertEqual(self.weights("run"), self.weights("again"))
            self.assertEqual(*[[line for line in (self.folder / run / "config.yaml").read_text().splitlines()
                                if not line.startswith("run_dir:")] for run in ("again", "run")])
            self.assertEqual(self.checkpoints("again"), kept)
        with self.subTest("rerun"):
            result = self.run_program(COMMAND, "rerun", self.folder / "run")
            self.assertEqual(result.code, 0, result)
            self.assertIn(SAME, result.out)
        with self.subTest("a run that goes on with the file knows that it was stopped"):
            last = self.folder / "run" / "checkpoints" / "last.ckpt"
            self.succeed("-c", self.folder / "run.yaml", "--ckpt_path", last, "--run_dir", self.folder / "resumed")
            self.assertEqual(self.epochs("resumed"), 3)
            more = self.write(FILE.replace("patience: 2", "patience: 4"), "more.yaml")
            self.succeed("-c", more, "--ckpt_path", last, "--run_dir", self.folder / "longer")
            self.assertEqual(self.epochs("longer"), 5)
            result = self.run_program(COMMAND, "inspect", self.folder / "run", "--diff", self.folder / "longer")
            self.assertIn("trainer.callbacks[0].init_args.patience", result.out + result.err)

    def weights(self, run):
        return (self.folder / run / "checkpoints" / "last.ckpt" / "model.safetensors").read_bytes()

    def test_flags_and_variables_name_them_as_well(self):
        for name, flags, environment in (
                ("text", ["--trainer.callbacks", f"[{STOPS_AT_ONCE}]"], {}),
                ("one", ["--trainer.callbacks", STOPS_AT_ONCE], {}),
                ("words", ["--trainer.callbacks=EarlyStopping", "--trainer.callbacks.monitor=val_loss",
                           "--trainer.callbacks.init_args.stopping_threshold", "100"], {}),
                ("variable", [], {"LOCKSTEP_TRAINER_CALLBACKS": STOPS_AT_ONCE})):
            with self.subTest(name):
                self.succeed("--run_dir", self.folder / name, *flags, **environment)
                self.assertEqual(self.epochs(name), 1)

    def test_a_plus_adds_to_those_of_a_file(self):
        file = self.write("trainer: {max_epochs: 2, callbacks: [LearningRateMonitor]}\nseed_everything: 1\n")
        flags = ["-c", file, "--trainer.callbacks+", "EarlyStopping", "--trainer.callbacks.monitor", "val_loss",
                 "--trainer.callbacks.stopping_threshold", "100"]
        result = self.succeed(*flags, "--print_config")
        self.assertLess(result.out.index("LearningRateMonitor"), result.out.index("EarlyStopping"))
        self.succeed(*flags, LOCKSTEP_TRAINER_CALLBACKS="[ModelSummary]")
        config = (self.folder / "run" / "config.yaml").read_text()
        self.assertEqual([config.count(f"class_path: {name}") for name in ("LearningRateMonitor", "ModelSummary", "EarlyStopping")], [0, 1, 1])
        result = self.run_program(COMMAND, "rerun", self.folder / "run")
        self.assertEqual(result.code, 0, result)
        self.assertIn(SAME, result.out)
        self.assertEqual((self.folder / "run-rerun" / "config.yaml").read_text().count("class_path"), 2)

    def test_wrong_ones_are_named_before_anything_starts(self):
        for callbacks, words in (
                ("[{class_path: EarlyStoping}]", ["trainer.callbacks[0]", "run.yaml:2:28", "did you mean EarlyStopping?"]),
                ("[{class_path: my.module.Pace}]", ["my.module.Pace", "run.yaml:2:28", "register_callback"]),
                ("[Timer, {class_path: EarlyStopping, init_args: {monitor: x, patience: often}}]",
                 ["trainer.callbacks[1].init_args.patience", "expected an integer", "often", "run.yaml:2:84"]),
                ("[{class_path: EarlyStopping, init_args: {monitor: x, patienc: 3}}]", ["init_args.patienc", "init_args.patience?", "run.yaml:2:67"]),
                ("[{class_path: EarlyStopping, dict_kwargs: {a: 1}}]", ["dict_kwargs", "init_args"]),
                ("[EarlyStopping]", ["EarlyStopping: monitor", "run.yaml:2:15"]),
                ("[LambdaCallback]", ["LambdaCallback", "not available"])):
            with self.subTest(callbacks):
                file = self.write(f"trainer:\n  callbacks: {callbacks}\n")
                self.assert_refused(self.digits("-c", file, "--trainer.devices", 2), 2, *words)
                self.assertFalse((self.folder / "run").exists())
        self.assert_refused(self.digits("--trainer.callbacks.patience", 3), 2, "--trainer.callbacks.patience", "no --trainer.callbacks before it")
        both = self.write("trainer: {enable_checkpointing: false, callbacks: [ModelCheckpoint]}")
        self.assert_refused(self.digits("-c", both), 2, "enable_checkpointing = false with a ModelCheckpoint")

    def test_a_run_that_is_refused_leaves_no_folder(self):
        wrong = self.write("trainer: {enable_checkpointing: false, callbacks: [ModelCheckpoint]}")
        data = ["--data.file", SOURCE / "data" / "digits.csv.gz"]
        runs = self.folder / "runs" / "digits"
        for devices in (1, 2):
            with self.subTest(devices=devices):
                result = self.run_program(DIGITS, "fit", *data, "-c", wrong, "--trainer.devices", devices)
                self.assert_refused(result, 2, "enable_checkpointing = false with a ModelCheckpoint")
                self.assertEqual(list(runs.iterdir()), [])
        with self.subTest("a folder that the user named tells why"):
            self.assert_refused(self.digits("-c", wrong), 2, "enable_checkpointing = false")
            self.assertIn("enable_checkpointing", (self.folder / "run" / "failure.json").read_text())

    def test_a_run_that_is_refused_leaves_the_record_of_an_earlier_one(self):
        few = ["--trainer.max_epochs", 1, "--trainer.limit_train_batches", 1, "--trainer.limit_val_batches", 1]
        wrong = self.write("trainer: {enable_checkpointing: false, callbacks: [ModelCheckpoint]}")
        for devices in (1, 2):
            with self.subTest(devices=devices):
                run = self.folder / str(devices)
                flags = ["--run_dir", run, *few, "--trainer.devices", devices]
                self.succeed(*flags)
                files = {path.name: path.read_bytes() for path in run.iterdir() if path.is_file()}
                self.assertIn("ranks.json", files)
                self.assert_refused(self.digits(*flags, "-c", wrong), 2, "enable_checkpointing = false")
                self.assertEqual({path.name: path.read_bytes() for path in run.iterdir() if path.is_file()}, files)


if __name__ == "__main__":
    unittest.main()
