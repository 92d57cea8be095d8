"""Runs that go on from a checkpoint: which one they take, in what world, and what they keep."""
import os
import re
import shutil
import time
import unittest

from harness import BINARY, DIGITS, SOURCE
from resume_runs import BATCHES, CASE, CONFIGURATIONS, DDP, DEEPSPEED, EPOCHS, FSDP, SINGLE, ResumeTest


class Resume(ResumeTest):
    def test_another_world_sees_the_samples_in_the_same_order(self):
        undisturbed = self.train_and_record("saving", *DDP, *self.save_at("batch_end:7"))
        self.assertEqual(len(undisturbed), EPOCHS * BATCHES)
        path = self.folder / "batch_end:7.ckpt"
        self.assertEqual(self.train_and_record("one", *SINGLE, "--ckpt_path", path), undisturbed[8:])
        four = ["--trainer.strategy", "ddp", "--trainer.devices", 4, "--case.batch_size", 2]
        self.assertEqual(self.train_and_record("four", *four, "--ckpt_path", path), undisturbed[8:])
        refused = self.run_program(CASE, "fit", "--case.batch_size", 5, "--ckpt_path", path, cwd=self.folder)
        self.assertEqual(refused.code, 1, refused)
        self.assertIn("no batch begins where the checkpoint was taken, at sample 64", refused.err)

    def test_another_world_does_not_repeat_what_is_done(self):
        windows = ["--trainer.accumulate_grad_batches", 4]
        moments = ["batch_end:8", "batch_end:10", "validation_end:0", "epoch_end:0"]
        undisturbed = self.train_and_record("saving", *DDP, *windows, *self.save_at(*moments))
        whole = self.summary_of("saving")
        for moment, seen in zip(moments, (8, 11, 11, 11)):  # a window that was open is begun anew
            with self.subTest(moment):
                path = self.folder / f"{moment}.ckpt"
                self.assertEqual(self.train_and_record(moment, *SINGLE, *windows, "--ckpt_path", path), undisturbed[seen:])
                for key in ("steps", "samples", "epochs"):
                    self.assertEqual(self.summary_of(moment)[key], whole[key], key)
        uneven = ["--trainer.strategy", "ddp", "--trainer.devices", 3, *windows]  # 12 samples do not divide 88
        self.train("uneven", *uneven, "--ckpt_path", self.folder / "epoch_end:0.ckpt")

    def test_another_world_goes_on_with_a_sampler_that_divides_the_data(self):
        own = ["--case.own_sampler", "true"]
        undisturbed = self.train_and_record("saving", *DDP, *own, *self.save_at("batch_end:4", "epoch_end:0"))
        for moment, seen in (("batch_end:4", 5), ("epoch_end:0", BATCHES)):
            path = self.folder / f"{moment}.ckpt"
            self.assertEqual(self.train_and_record(moment, *SINGLE, *own, "--ckpt_path", path), undisturbed[seen:])
        three = ["--trainer.strategy", "ddp", "--trainer.devices", 3]  # 88 samples do not divide: 30 for each
        self.train("three", *three, *own, "--ckpt_path", self.folder / "epoch_end:0.ckpt")
        refused = self.run_program(CASE, "fit", *own, "--case.num_samples", 84, "--ckpt_path", self.folder / "epoch_end:0.ckpt", cwd=self.folder)
        self.assertEqual(refused.code, 1, refused)
        self.assertIn("the training data are not those of checkpoint", refused.err)
        self.assertIn("expected 44 samples on each rank of 2; got 84 samples on each rank of 1", refused.err)

    def test_windows_of_another_length_follow_the_one_that_was_open(self):
        flags = ["--seed_everything", 5, *SINGLE, "--trainer.accumulate_grad_batches"]
        self.train("saving", *flags, 4, *self.save_at("batch_end:5"))
        path = self.folder / "batch_end:5.ckpt"
        for length, steps in ((2, 2 + 2 + 2 * 6), (3, 2 + 1 + 2 * 4)):
            with self.subTest(length):
                self.train("resumed", *flags, length, "--ckpt_path", path)
                self.assertEqual(self.summary_of("resumed")["steps"], steps)

    def check_goes_on(self, undisturbed, flags, *paths):
        for path in paths:
            with self.subTest(path.name):
                resumed, _ = self.train("resumed", *flags, "--ckpt_path", path)
                self.assertEqual(resumed, undisturbed)

    def check_run_that_ended(self, flags):
        flags = ["--seed_everything", 5, *flags]
        undisturbed, _ = self.train("whole", *flags)
        after = self.folder / "after.ckpt"
        ended = [*flags, "--trainer.max_steps", 7, "--case.save_after", after]
        self.train("ended", *ended, *self.save_at("epoch_end:0", "train_end:0"))
        last = "checkpoints/last.ckpt"
        self.check_goes_on(undisturbed, flags, self.folder / "epoch_end:0.ckpt", self.folder / "train_end:0.ckpt",
                           after, self.folder / "ended" / last)
        self.train("again", *ended, "--ckpt_path", self.folder / "ended" / last)  # nothing is left to do
        self.check_goes_on(undisturbed, flags, self.folder / "again" / last, after)

    def test_a_run_that_ended_goes_on(self):
        self.check_run_that_ended(SINGLE)

    def test_a_run_of_ranks_that_ended_goes_on(self):
        self.check_run_that_ended(CONFIGURATIONS["ddp_power_sgd"])

    def test_runs_that_ended_with_other_weights_go_on(self):
        for callback in ("ema", "swa"):
            with self.subTest(callback):
                self.check_run_that_ended(CONFIGURATIONS[f"ddp_{callback}"])

    def test_a_run_that_just_went_on_can_be_saved(self):
        flags = ["--seed_everything", 5, *DDP, "--trainer.accumulate_grad_batches", 3]
        undisturbed, _ = self.train("whole", *flags, *self.save_at("batch_end:4"))
        first = self.folder / "batch_end:4.ckpt"
        self.train("second", *flags, "--ckpt_path", first, *self.save_at("train_start:1"))
        self.check_goes_on(undisturbed, flags, self.folder / "train_start:1.ckpt")

    def test_a_stop_is_not_forgotten(self):
        for world in (SINGLE, DDP):
            with self.subTest(world):
                flags = ["--seed_everything", 5, *world, "--case.stop_at", "batch_end:2", "--trainer.min_epochs", 2,
                         "--trainer.log_every_n_steps", 1]
                undisturbed, _ = self.train("whole", *flags, *self.save_at("batch_end:2", "batch_end:13"))
                self.assertEqual(self.summary_of("whole")["epochs"], 2)
                self.check_goes_on(undisturbed, flags, self.folder / "batch_end:2.ckpt", self.folder / "batch_end:13.ckpt")

    def test_last_is_that_of_the_run_directory(self):
        for version, steps in (("version_0", 3), ("version_1", 5)):
            self.train(version, *SINGLE, "--trainer.max_steps", steps)
        self.train("version_0", *SINGLE, "--ckpt_path", "last", "--trainer.max_steps", 3)
        self.assertEqual(self.summary_of("version_0")["steps"], 3)
        self.train("version_2", *SINGLE, "--ckpt_path", "last", "--trainer.max_steps", 5)
        self.assertEqual(self.summary_of("version_2")["steps"], 5)

    def test_the_checkpoint_is_saved_where_weights_cannot_be(self):
        for world in (SINGLE, DDP):
            with self.subTest(world):
                run, folder = self.folder / f"run_{len(world)}", self.folder / f"weights_{len(world)}"
                folder.mkdir()
                process = self.start(CASE, "fit", *world, "--run_dir", run, "--trainer.max_epochs", 300,
                                     "--save_weights", folder / "w.safetensors")
                self.wait_for(run / "hparams.yaml")  # later than what is checked before training
                folder.rmdir()
                result = self.finish(process)
                self.assertEqual(result.code, 1, result)
                self.assertIn("w.safetensors", result.err)
                self.assertEqual(self.run_program(BINARY / "bin" / "lockstep", "inspect", run / "checkpoints/last.ckpt").code, 0)

    def test_auto_passes_over_weights_only(self):
        flags = ["--seed_everything", 5, *SINGLE]
        undisturbed, _ = self.train("whole", *flags)
        best = ["--case.save_weights_after", self.folder / "run/checkpoints/best.ckpt"]
        self.train("run", *flags, "--trainer.max_steps", 7, *best)
        resumed, result = self.train("run", *flags, "--resume", "auto")
        self.assertEqual(resumed, undisturbed)
        self.assertIn("best.ckpt", result.err)

    def test_fewer_epochs_than_are_done_are_refused(self):
        self.train("run", *SINGLE)
        result = self.run_program(CASE, "fit", *SINGLE, "--run_dir", self.folder / "run", "--resume", "auto",
                                  "--trainer.max_epochs", 2)
        self.assertEqual(result.code, 2, result)
        self.assertIn("the checkpoint is of epoch 3; expected max_epochs of at least that; got 2", result.err)

    def test_what_an_earlier_run_measured_is_kept(self):
        self.train("run", *SINGLE, "--trainer.max_steps", 3, "--trainer.log_every_n_steps", 1)
        earlier = (self.folder / "run/metrics.csv").read_text()
        self.train("run", *SINGLE, "--resume", "auto", "--trainer.max_steps", 5)
        self.assertEqual((self.folder / "run/metrics.1.csv").read_text(), earlier)

    def test_weights_are_saved_where_the_checkpoint_cannot_be(self):
        for late in ("false", "true"):
            with self.subTest(async_checkpoint=late):
                run, weights = self.folder / f"run_{late}", self.folder / f"{late}.safetensors"
                process = self.start(CASE, "fit", *SINGLE, "--run_dir", run, "--save_weights", weights, "--trainer.async_checkpoint", late,
                                     "--trainer.max_epochs", 300)
                self.wait_for(run / "hparams.yaml")  # later than what is checked before training
                (run / "checkpoints").mkdir(exist_ok=True)
                (run / "checkpoints/last.ckpt").write_text("mine")
                result = self.finish(process)
                self.assertEqual(result.code, 1, result)
                self.assertIn("last.ckpt", result.err)
                self.assertTrue(weights.exists())
                self.assertEqual((run / "checkpoints/last.ckpt").read_text(), "mine")
                self.assertEqual(self.summary_of(f"run_{late}")["status"], "failed")

    def test_auto_takes_the_last_one_though_the_clock_was_set_back(self):
        self.train("run", *SINGLE, "--trainer.max_steps", 3)
        checkpoints = self.folder / "run/checkpoints"
        shutil.copytree(checkpoints / "last.ckpt", checkpoints / "before.ckpt")
        time_of = lambda name: (checkpoints / name / "manifest.json").stat().st_mtime_ns
        future = time.time_ns() + 3600 * 10**9
        os.utime(checkpoints / "before.ckpt/manifest.json", ns=(future, future))
        self.train("run", *SINGLE, "--ckpt_path", checkpoints / "last.ckpt", "--trainer.max_steps", 5)
        self.assertGreater(time_of("last.ckpt"), time_of("before.ckpt"))
        self.train("run", *SINGLE, "--resume", "auto", "--trainer.max_steps", 6)
        self.assertEqual(self.summary_of("run")["this_leg"]["steps"], 1)
        # A launcher of before the change has restarted its ranks.
        start = future + 3600 * 10**9
        result = self.run_program(CASE, "fit", *SINGLE, "--run_dir", self.folder / "run", "--ckpt_path", checkpoints / "last.ckpt",
                                  "--trainer.max_steps", 7, LOCKSTEP_LAUNCHER_START_NS=str(start))
        self.assertEqual(result.code, 0, result)
        self.assertGreater(time_of("last.ckpt"), start)

    def test_auto_takes_the_newest_complete_one(self):
        flags = ["--seed_everything", 5, *SINGLE]
        undisturbed, _ = self.train("whole", *flags)
        _, first = self.train("run", *flags, "--resume", "auto", "--trainer.max_steps", 7)
        _, second = self.train("run", *flags, "--resume", "auto", "--trainer.max_steps", 15)
        shutil.copytree(self.folder / "run/checkpoints/last.ckpt", self.folder / "run/checkpoints/newer.ckpt")
        damaged = self.folder / "run/checkpoints/newer.ckpt/model.safetensors"
        data = bytearray(damaged.read_bytes())
        data[-1] ^= 1
        damaged.write_bytes(data)
        (self.folder / "run/checkpoints/newer.ckpt/manifest.json").touch()
        resumed, third = self.train("run", *flags, "--resume", "auto")
        self.assertEqual(resumed, undisturbed)
        self.assertIn("not resuming from", third.err)
        self.assertIn("newer.ckpt/model.safetensors: tensor model/", third.err)

    def test_buffers_go_to_another_precision_and_strategy(self):
        """Ranks have copies of BatchNorm's buffers of their own, which are cast as the weights are."""
        bf16 = ["--trainer.precision", "bf16-true"]
        ema = ["--case.callback", "ema", "--trainer.strategy.broadcast_buffers", "false"]
        ways = [([*DEEPSPEED, 2, *bf16], DDP), (DDP, [*DDP, *bf16]), ([*DDP, *bf16], FSDP), (DDP, [*DEEPSPEED, 3, *bf16]),
                ([*DDP, *ema], [*DDP, *ema, *bf16]), ([*DDP, "--case.callback", "pruning"], [*DDP, "--case.callback", "pruning", *bf16])]
        for number, (first, then) in enumerate(ways):
            with self.subTest(first=first, then=then):
                self.train(f"first_{number}", *first, "--trainer.max_epochs", 1)
                self.train(f"then_{number}", *then, "--trainer.max_epochs", 2, "--ckpt_path", self.folder / f"first_{number}/checkpoints/last.ckpt")
                self.assertEqual(self.summary_of(f"then_{number}")["epochs"], 2)

    def test_a_limit_that_ends_fit_is_said_once(self):
        limit = "`Trainer.fit` stopped: `max_epochs=1` reached."
        _, first = self.train("run", *DDP, "--trainer.max_epochs", 1)
        _, again = self.train("run", *DDP, "--trainer.max_epochs", 1, "--ckpt_path", "last")
        _, steps = self.train("steps", *SINGLE, "--trainer.max_steps", 3)
        for result in (first, again):
            self.assertEqual(result.err.count(limit), 1, result)
        self.assertIn("going on from", again.err)
        self.assertEqual(steps.err.count("`Trainer.fit` stopped: `max_steps=3` reached."), 1, steps)
        self.assertNotIn("max_epochs=", steps.err)

    def test_a_limit_is_said_below_the_last_epoch(self):
        limit = "`Trainer.fit` stopped: `max_epochs=1` reached."
        both = self.run_program("sh", "-c", 'exec "$0" "$@" 2>&1', DIGITS, "fit", "--data.file", SOURCE / "data" / "digits.csv.gz",
                                "--run_dir", self.folder / "both", "--trainer.max_epochs", 1)
        before, after = both.out.split(limit)
        row = re.compile(r"^ +\d+ +\d+ ", re.MULTILINE)  # epoch and step
        self.assertRegex(before, row)
        self.assertNotRegex(after, row)

    def test_checkpoints_elsewhere_are_said_once(self):
        self.train("first", *DDP, "--trainer.max_epochs", 1)
        _, result = self.train("second", *DDP, "--trainer.max_epochs", 2, "--ckpt_path", self.folder / "first/checkpoints/last.ckpt")
        self.assertEqual(result.err.count("ModelCheckpoint: the checkpoint's were in"), 1, result)

    def test_what_cannot_be_is_refused(self):
        self.train("run", *SINGLE)
        last = self.folder / "run/checkpoints/last.ckpt"
        for flags, code, words in [
            (["--ckpt_path", "s3://bucket/a.ckpt"], 2, ["s3://bucket/a.ckpt", "copy the checkpoint"]),
            (["--ckpt_path", self.folder / "none.ckpt"], 1, ["none.ckpt", "nothing of that name"]),
            (["--ckpt_path", last, "--case.num_samples", 80], 1, ["88 samples", "80", str(last), "--init_weights"]),
            (["--ckpt_path", self.folder / "run"], 1, ["is no checkpoint", f"its checkpoint is {last}"]),
        ]:
            with self.subTest(flags):
                result = self.run_program(CASE, "fit", *SINGLE, *flags)
                self.assertEqual(result.code, code, result)
                for word in words:
                    self.assertIn(word, result.err)
        result = self.run_program(CASE, "fit", *SINGLE, "--ckpt_path", "last")
        self.assertEqual(result.code, 0, result)
        self.assertIn("there is no last checkpoint", result.err)


if __name__ == "__main__":
    unittest.main()
