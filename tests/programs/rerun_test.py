"""`lockstep rerun`: a run is repeated from what its run directory holds."""
import json
import shutil
import unittest

from harness import BINARY, DIGITS, SOURCE, ProgramTest

COMMAND = BINARY / "bin" / "lockstep"
SAME = "the weights are the same, bit for bit"


class Rerun(ProgramTest):
    def train(self, name, *flags, command=(), **environment):
        run = self.folder / name
        result = self.run_program(*command, DIGITS, "--run_dir", run, "--data.file", SOURCE / "data" / "digits.csv.gz",
                                  "--trainer.max_epochs", 1, "--trainer.limit_train_batches", 8, *flags, **environment)
        self.assertEqual(result.code, 0, result)
        return run

    def rerun(self, run, *flags, **environment):
        return self.run_program(COMMAND, "rerun", run, *flags, **environment)

    def record(self, run):
        return json.loads((run / "run.json").read_text())

    def weights(self, run):
        return (run / "checkpoints" / "last.ckpt" / "model.safetensors").read_bytes()

    def assert_repeated(self, run, **environment):
        result = self.rerun(run, **environment)
        self.assertEqual(result.code, 0, result)
        self.assertIn(SAME, result.out)
        again = run.parent / (run.name + "-rerun")
        self.assertEqual(self.weights(run), self.weights(again))
        return again, result

    def test_what_a_run_was_is_told(self):
        run = self.train("run", "--trainer.devices", 2, LOCKSTEP_OPTIMIZER_LR="0.02", SECRET="no")
        record = self.record(run)
        self.assertEqual(record["versions"]["lockstep"], json.loads((run / "summary.json").read_text())["versions"]["lockstep"])
        self.assertEqual(record["program"]["executable"], str(DIGITS.resolve()))
        self.assertEqual(record["program"]["command"][1:3], ["--run_dir", str(run)])
        self.assertEqual(record["program"]["working_directory"], str(self.folder))
        self.assertEqual((record["environment"]["LOCKSTEP_OPTIMIZER_LR"], record["ranks"]["world_size"]), ("0.02", 2))
        self.assertNotIn("SECRET", record["environment"])
        self.assertIn("commit", record)
        self.assertEqual(record["files"]["data.file"]["path"], str(SOURCE / "data" / "digits.csv.gz"))

    def test_runs_of_every_kind_have_the_same_bits(self):
        (self.folder / "base.yaml").write_text("seed_everything: 7\noptimizer: {lr: 0.05}\n")
        runs = [self.train("ddp", "--trainer.devices", 2, "-c", self.folder / "base.yaml", "--save_weights", self.folder / "w.safetensors"),
                self.train("fsdp", "fit", "--trainer.devices", 2, "--trainer.strategy", "fsdp", "--seed_everything=3"),
                self.train("launched", command=(COMMAND, "run", "--nproc-per-node", 2)),
                self.train("variables", LOCKSTEP_OPTIMIZER_LR="0.02", LOCKSTEP_SEED_EVERYTHING="5")]
        (self.folder / "base.yaml").unlink()
        saved = (self.folder / "w.safetensors").stat().st_mtime_ns
        for run in runs:
            with self.subTest(run.name):
                again, _ = self.assert_repeated(run, LOCKSTEP_OPTIMIZER_LR="9")
                self.assertEqual(self.record(again)["ranks"]["world_size"], self.record(run)["ranks"]["world_size"])
        self.assertEqual(len({self.weights(run) for run in runs}), len(runs))
        self.assertEqual((self.folder / "w.safetensors").stat().st_mtime_ns, saved)
        self.assertTrue((self.folder / "ddp-rerun" / "w.safetensors").exists())

    def test_a_program_without_flags(self):
        self.assertEqual(self.run_program(BINARY / "bin" / "cluster_case", "own_ranks").code, 0)
        self.assert_repeated(self.folder / "runs" / "lockstep" / "version_0")

    def test_a_run_that_went_on(self):
        first = self.train("first")
        second = self.train("second", "--trainer.max_epochs", 2, "--ckpt_path", first / "checkpoints" / "last.ckpt")
        self.assert_repeated(second)
        self.train("first", "--trainer.max_epochs", 2, "--ckpt_path", "last")
        self.assert_refused(self.rerun(first), 2, "the first checkpoint of the run is another one now", "last.ckpt")
        shutil.rmtree(first / "checkpoints" / "last.ckpt")
        self.assert_refused(self.rerun(second), 2, "the first checkpoint of the run is gone", "last.ckpt")

    def test_what_cannot_be_repeated_is_named(self):
        self.assert_refused(self.rerun(self.folder), 2, "is no run directory", "run.json", "a folder without it")
        self.assert_refused(self.rerun(self.folder / "nowhere"), 2, "is no run directory", "no such folder")
        data = self.folder / "mine.csv.gz"
        shutil.copy(SOURCE / "data" / "digits.csv.gz", data)
        run = self.train("run", "--data.file", data)
        self.assert_refused(self.rerun(run, "--run-dir", run), 2, "--run-dir", "other than that of the run")
        moved = data.rename(self.folder / "elsewhere.csv.gz")
        self.assert_refused(self.rerun(run), 2, "data.file of the run is gone", data)
        shutil.copy(moved, data)
        record = self.record(run)
        record["program"]["xxh3_128"] = "0" * 32
        (run / "run.json").write_text(json.dumps(record))
        _, result = self.assert_repeated(run)
        self.assertIn("another build", result.err)
        self.assertIn("mine.csv.gz (data.file) has changed since", result.err)
        record["program"]["executable"] = str(self.folder / "gone")
        (run / "run.json").write_text(json.dumps(record))
        self.assert_refused(self.rerun(run), 2, "the program of the run is gone", "gone")
        (run / "run.json").write_text("{")
        self.assert_refused(self.rerun(run), 2, "run.json is malformed")

    def test_evaluation_is_repeated_with_its_checkpoint(self):
        first = self.train("first", "--trainer.devices", 2)
        last = first / "checkpoints" / "last.ckpt"
        run = self.train("tested", "test", "--ckpt_path", last)
        self.assertEqual((self.record(run)["stage"], self.record(run)["resumed_from"]["path"]), ("test", str(last)))
        self.assertIn(f"--ckpt_path {last}", self.rerun(run, "--print").out)
        result = self.rerun(run)
        self.assertEqual(result.code, 0, result)
        self.assertIn("the metrics are the same", result.out)
        metrics = [json.loads((self.folder / name / "summary.json").read_text())["metrics"] for name in ("tested", "tested-rerun")]
        self.assertEqual(*metrics)
        summary = json.loads((run / "summary.json").read_text())
        summary["metrics"][next(iter(summary["metrics"]))] += 1
        (run / "summary.json").write_text(json.dumps(summary))
        result = self.rerun(run)
        self.assertEqual(result.code, 1, result)
        self.assertIn("the metrics differ", result.out)

    def test_the_record_of_a_fit_is_kept(self):
        run = self.train("run", "--trainer.devices", 2)
        kept = {path.name: path.read_bytes() for path in run.iterdir() if path.suffix in (".yaml", ".json", ".csv")}
        self.assertLessEqual({"config.yaml", "run.json", "summary.json", "metrics.csv"}, kept.keys())
        refused = self.digits("test", "--run_dir", run, "--ckpt_path", "best")
        self.assert_refused(refused, 2, "best")
        for name in ("config.yaml", "run.json", "summary.json", "metrics.csv"):
            self.assertEqual((run / name).read_bytes(), kept[name], name)
        self.assertFalse((run / "config.1.yaml").exists())
        self.train("run", "test", "--ckpt_path", "last")
        for name in ("config.yaml", "run.json", "summary.json", "metrics.csv"):
            stem, extension = name.split(".")
            self.assertEqual((run / f"{stem}.1.{extension}").read_bytes(), kept[name], name)
        self.assertEqual(self.record(run)["stage"], "test")
        self.assertFalse((run / "failure.json").exists())
        result = self.rerun(run / "run.1.json")
        self.assertEqual(result.code, 0, result)
        self.assertIn(SAME, result.out)
        result = self.rerun(run)
        self.assertEqual(result.code, 0, result)
        self.assertIn("the metrics are the same", result.out)

    def test_prints_what_it_would_do(self):
        run = self.train("run")
        result = self.rerun(run, "--print")
        self.assertEqual(result.code, 0, result)
        self.assertIn(f"-c {run / 'config.yaml'} --run_dir {run}-rerun", result.out)
        self.assertFalse((self.folder / "run-rerun").exists())


if __name__ == "__main__":
    unittest.main()
