"""Programs whose code gives what only code can, and those that have several Trainers."""
import csv
import json
import unittest

from harness import BINARY, ProgramTest

CASE = BINARY / "bin" / "trainers_case"


class TrainersTest(ProgramTest):
    def case(self, *flags):
        return self.run_program(CASE, *flags, "--trainer.enable_progress_bar", "false")

    def succeed(self, *flags):
        result = self.case(*flags)
        self.assertEqual(result.code, 0, result)
        return result.out

    def summary(self, folder):
        return json.loads((folder / "summary.json").read_text())


class OwnParts(TrainersTest):
    """A configuration that was printed, or saved, gives the same run."""

    def assert_used(self, own):
        self.assertEqual(len((own / "metrics.jsonl").read_text().splitlines()), 1)
        self.assertIn("used", (own / "hook").read_text())
        self.assertIn("training_step", (own / "fit-times-0.txt").read_text())

    def run_own(self, name, *flags):
        own, run = self.folder / name, self.folder / f"run_{name}"
        self.succeed("--trainer.devices", 2, "--run_dir", run, *flags, "--case.own", own)
        return own, run

    def test_they_stay_where_a_configuration_is_given_back(self):
        own, run = self.run_own("first")
        self.assert_used(own)
        printed = self.succeed("--trainer.devices", 2, "--print_config")
        self.assertIn("logger: \"own,csv\"", printed)
        self.assertIn("profiler: own", printed)
        (self.folder / "printed.yaml").write_text(printed)
        for name, config in (("printed", self.folder / "printed.yaml"), ("saved", run / "config.yaml")):
            with self.subTest(name):
                own, again = self.run_own(name, "-c", config)
                self.assert_used(own)
                self.assertTrue((again / "metrics.csv").exists())

    def test_others_are_chosen_in_their_place(self):
        own, run = self.run_own("other", "--trainer.logger", "jsonl", "--trainer.profiler", "none")
        self.assertFalse((own / "metrics.jsonl").exists())
        self.assertFalse((own / "fit-times-0.txt").exists())
        self.assertTrue((run / "metrics.jsonl").exists())

    def test_a_word_for_nothing_is_refused(self):
        for flag in ("trainer.logger", "trainer.profiler"):
            with self.subTest(flag):
                self.assert_refused(self.case("two", f"--{flag}", "own"), 2, flag, "own", "program's code", "none")
        for strategy in ("ddp", "fsdp", "deepspeed"):
            with self.subTest(strategy):
                self.assert_refused(self.case("two", "--trainer.strategy", strategy, "--trainer.strategy.cluster_environment", "own"), 2,
                                    "cluster_environment", "own", "program's code", "none")


class SeveralTrainers(TrainersTest):
    def assert_runs(self, first, second, ranks):
        for folder, epochs, rows in ((first, 1, 4), (second, 3, 8)):
            with self.subTest(folder.name):
                self.assertEqual((self.summary(folder)["status"], self.summary(folder)["epochs"]), ("success", epochs))
                with (folder / "metrics.csv").open() as file:
                    steps = [row["step"] for row in csv.DictReader(file) if row["loss_step"]]
                self.assertEqual(len(steps), rows // ranks)
                self.assertEqual(sorted(json.loads((folder / "ranks.json").read_text())), [str(rank) for rank in range(ranks)])
                self.assertTrue((folder / "logs" / "rank_0.log").parent.exists())
                self.assertTrue((folder / "checkpoints" / "last.ckpt" / "manifest.json").exists())
                self.assertTrue((folder / "config.yaml").exists())
        self.assertFalse((first / "metrics.1.csv").exists())

    def test_each_has_a_version(self):
        self.succeed("two")
        runs = self.folder / "runs" / "trainers_case"
        self.assert_runs(runs / "version_0", runs / "version_1", 1)
        self.succeed("two", "--trainer.devices", 2)
        self.assert_runs(runs / "version_2", runs / "version_3", 2)
        self.assertEqual(len(list(runs.iterdir())), 4)

    def test_the_folder_that_was_named_is_the_first_ones(self):
        run = self.folder / "run"
        self.succeed("two", "--run_dir", run, "--trainer.devices", 2)
        self.assert_runs(run, run / "trainer_2", 2)
        self.succeed("two", "--run_dir", run, "--trainer.devices", 2)  # again, in the same places
        self.assertFalse((run / "trainer_3").exists())
        self.assertTrue((run / "trainer_2" / "metrics.1.csv").exists())

    def test_ranks_of_a_launcher_agree_on_it(self):
        run = self.folder / "run"
        result = self.run_program(BINARY / "bin" / "lockstep", "run", "--nproc-per-node", 2, "--run-dir", run, CASE, "two", "--run_dir", run,
                                  "--trainer.enable_progress_bar", "false")
        self.assertEqual(result.code, 0, result)
        self.assert_runs(run, run / "trainer_2", 2)


class WhatIsThrown(TrainersTest):
    def test_all_of_it_leaves_a_report(self):
        for ranks in (1, 2):
            with self.subTest(ranks):
                run = self.folder / f"run{ranks}"
                result = self.case("throw", "--run_dir", run, "--trainer.devices", ranks)
                self.assert_refused(result, 1, "no std::exception")
                self.assertEqual(self.summary(run)["status"], "failed")
                self.assertIn("no std::exception", json.loads((run / "failure.json").read_text())["message"])


if __name__ == "__main__":
    unittest.main()
