"""A run that is cut off anywhere and goes on in a new process ends with the bits of one that was not."""
import json
import os
import random
import shutil
import unittest

from harness import BINARY, ProgramTest

CASE = BINARY / "bin" / "resume_case"
EPOCHS, BATCHES, VAL_BATCHES = 3, 11, 3  # of one rank: 88 samples, 2 ranks, 4 each
MOMENTS = ([f"epoch_start:{i}" for i in range(EPOCHS)] + [f"batch_end:{i}" for i in range(EPOCHS * BATCHES)] +
           [f"validation_start:{i}" for i in range(EPOCHS)] + [f"validation_end:{i}" for i in range(EPOCHS)] +
           [f"validation_batch_end:{i}" for i in range(EPOCHS * VAL_BATCHES)] + [f"epoch_end:{i}" for i in range(EPOCHS)] +
           [f"monitored_epoch_end:{i}" for i in range(EPOCHS)])
ROUNDS = int(os.environ.get("LOCKSTEP_RESUME_MOMENTS", "4"))

SINGLE = ["--case.batch_size", 8]
DDP = ["--trainer.strategy", "ddp", "--trainer.devices", 2]
FSDP = ["--trainer.strategy", "fsdp", "--trainer.devices", 2, "--trainer.strategy.auto_wrap_policy", "Linear"]
DEEPSPEED = ["--trainer.strategy", "deepspeed", "--trainer.devices", 2, "--trainer.strategy.stage"]
SPAWN = ["--trainer.strategy", "ddp", "--trainer.strategy.start_method", "spawn", "--trainer.devices", 2]
# Overflows at first, then grows every third step: the scale matters at every moment.
SCALED = ["--trainer.precision", "16-mixed", "--trainer.precision.init_scale", 2.0**22, "--trainer.precision.growth_interval", 3]
CONFIGURATIONS = {
    "single": SINGLE,
    "single_windows": [*SINGLE, "--trainer.accumulate_grad_batches", 4],
    "ddp": DDP,
    "ddp_windows_workers": [*DDP, "--trainer.accumulate_grad_batches", 3, "--case.num_workers", 2],
    "ddp_bucket_views": [*DDP, "--trainer.accumulate_grad_batches", 2, "--trainer.strategy.gradient_as_bucket_view", "true"],
    "ddp_own_buffers": [*DDP, "--trainer.strategy.broadcast_buffers", "false"],
    "ddp_static_graph": [*DDP, "--trainer.accumulate_grad_batches", 2, "--trainer.strategy.static_graph", "true"],
    "ddp_bf16": [*DDP, "--trainer.precision", "bf16-mixed", "--trainer.accumulate_grad_batches", 2],
    "ddp_carried_windows": [*DDP, "--trainer.accumulate_grad_batches", 3, "--trainer.partial_window", "carry"],
    "ddp_every_micro_batch": [*DDP, "--trainer.accumulate_grad_batches", 3, "--trainer.strategy.reduce_every_micro_batch", "true"],
    "single_64": [*SINGLE, "--trainer.precision", "64-true", "--trainer.accumulate_grad_batches", 2],
    "ddp_16": [*DDP, *SCALED, "--trainer.accumulate_grad_batches", 2],
    "single_16_clipped": [*SINGLE, *SCALED, "--trainer.gradient_clip_val", 0.5],
    "ddp_16_true": [*DDP, "--trainer.precision", "16-true", "--trainer.accumulate_grad_batches", 2],
    "ddp_bf16_true": [*DDP, "--trainer.precision", "bf16-true"],
    "ddp_power_sgd": [*DDP, "--trainer.strategy.ddp_comm_hook", "powerSGD",
                      "--trainer.strategy.ddp_comm_state.start_powerSGD_iter", 2,
                      "--trainer.strategy.ddp_comm_state.min_compression_rate", 1],
    "ddp_async": [*DDP, "--trainer.async_checkpoint", "true", "--trainer.accumulate_grad_batches", 2],
    "ddp_spawn": SPAWN,
    "ddp_accumulation_scheduler": [*DDP, "--case.callback", "accumulation"],
    "ddp_ema": [*DDP, "--case.callback", "ema"],
    "ddp_ema_own_buffers": [*DDP, "--case.callback", "ema", "--trainer.strategy.broadcast_buffers", "false"],
    "ddp_swa": [*DDP, "--case.callback", "swa"],
    "ddp_swa_sync": [*DDP, "--case.callback", "swa", "--trainer.sync_batchnorm", "true"],
    "ddp_finetuning": [*DDP, "--case.callback", "finetuning"],
    "ddp_finetuning_bucket_views": [*DDP, "--case.callback", "finetuning", "--trainer.strategy.gradient_as_bucket_view", "true"],
    "ddp_pruning": [*DDP, "--case.callback", "pruning"],
    "fsdp": FSDP,
    "fsdp_windows": [*FSDP, "--trainer.accumulate_grad_batches", 3],
    "fsdp_grad_op_sharded": [*FSDP, "--trainer.strategy.sharding_strategy", "SHARD_GRAD_OP", "--trainer.strategy.state_dict_type",
                             "sharded", "--trainer.accumulate_grad_batches", 2],
    "fsdp_no_shard": [*FSDP, "--trainer.strategy.sharding_strategy", "NO_SHARD"],
    "fsdp_bf16": [*FSDP, "--trainer.precision", "bf16-mixed", "--trainer.accumulate_grad_batches", 2],
    "fsdp_low_precision_grads": [*FSDP, "--trainer.precision", "bf16-mixed", "--trainer.accumulate_grad_batches", 2,
                                 "--trainer.strategy.mixed_precision", "{keep_low_precision_grads: true}"],
    "fsdp_16": [*FSDP, *SCALED, "--trainer.gradient_clip_val", 0.5],
    "fsdp_async": [*FSDP, "--trainer.async_checkpoint", "true", "--trainer.strategy.state_dict_type", "sharded"],
    "deepspeed_1": [*DEEPSPEED, 1, "--trainer.accumulate_grad_batches", 3],
    "deepspeed_2": [*DEEPSPEED, 2, "--trainer.accumulate_grad_batches", 3],
    "deepspeed_3_bf16": [*DEEPSPEED, 3, "--trainer.precision", "bf16-true", "--trainer.accumulate_grad_batches", 2],
    "deepspeed_2_16": [*DEEPSPEED, 2, "--trainer.precision", "16-mixed", "--trainer.strategy.initial_scale_power", 22,
                       "--trainer.strategy.loss_scale_window", 3],
    "deepspeed_3_disk": [*DEEPSPEED, 3, "--trainer.strategy.offload_optimizer", "true", "--trainer.strategy.offload_optimizer_device",
                         "nvme", "--trainer.strategy.offload_parameters", "true", "--trainer.strategy.offload_params_device", "nvme",
                         "--trainer.strategy.nvme_path", "."],
    "single_reloaded": [*SINGLE, "--case.val_loaders", 3, "--trainer.reload_dataloaders_every_n_epochs", 1],
    "ddp_reloaded": [*DDP, "--case.val_loaders", 2, "--trainer.reload_dataloaders_every_n_epochs", 2],
}


class Resume(ProgramTest):
    def train(self, name, *flags):
        weights = self.folder / f"{name}.safetensors"
        result = self.run_program(CASE, "fit", "--run_dir", self.folder / name, "--save_weights", weights, *flags)
        self.assertEqual(result.code, 0, result)
        self.assertNotIn("training goes on", result.err)
        return weights.read_bytes(), result

    def optimizer_of(self, name):
        files = sorted((self.folder / name / "checkpoints" / "last.ckpt").glob("optimizer*.safetensors"))
        return [file.read_bytes() for file in files]

    def check_moments(self, flags, moments):
        flags = ["--seed_everything", 5, *flags]
        undisturbed, _ = self.train("undisturbed", *flags)
        saving, _ = self.train("saving", *flags, "--case.save_at", ",".join(moments), "--case.save_dir", self.folder)
        self.assertEqual(saving, undisturbed, "saving changed the run")
        for moment in moments:
            with self.subTest(moment):
                self.assertTrue((self.folder / f"{moment}.ckpt").exists(), f"{moment} never came")
                resumed, _ = self.train("resumed", *flags, "--ckpt_path", self.folder / f"{moment}.ckpt")
                self.assertEqual(resumed, undisturbed)
                self.assertEqual(self.optimizer_of("resumed"), self.optimizer_of("undisturbed"))

    def check_stop(self, flags, step):
        flags = ["--seed_everything", 5, *flags]
        undisturbed, _ = self.train("whole", *flags)
        self.train("stopped", *flags, "--trainer.max_steps", step)
        resumed, _ = self.train("resumed", *flags, "--ckpt_path", self.folder / "stopped" / "checkpoints" / "last.ckpt")
        self.assertEqual(resumed, undisturbed)

    def batches_of(self, name):
        """What all ranks drew together, batch by batch."""
        ranks = [file.read_text().splitlines() for file in self.folder.glob(f"{name}.record.*")]
        return [sorted(int(word) for line in lines for word in line.split()) for lines in zip(*ranks, strict=True)]

    def train_and_record(self, name, *flags):
        self.train(name, "--seed_everything", 5, *flags, "--case.record", self.folder / f"{name}.record")
        return self.batches_of(name)

    def summary_of(self, name):
        return json.loads((self.folder / name / "summary.json").read_text())

    def save_at(self, *moments):
        return ["--case.save_at", ",".join(moments), "--case.save_dir", self.folder]

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
        pipe = self.folder / "pipe"
        os.mkfifo(pipe)
        for world in (SINGLE, DDP):
            with self.subTest(world):
                run = self.folder / f"run_{len(world)}"
                result = self.run_program(CASE, "fit", *world, "--run_dir", run, "--trainer.max_steps", 3,
                                          "--save_weights", pipe)
                self.assertEqual(result.code, 1, result)
                self.assertIn("a device, pipe or socket", result.err)
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
                (run / "checkpoints").mkdir(parents=True)
                (run / "checkpoints/last.ckpt").write_text("mine")
                result = self.run_program(CASE, "fit", *SINGLE, "--run_dir", run, "--save_weights", weights,
                                          "--trainer.async_checkpoint", late, "--trainer.max_steps", 3)
                self.assertEqual(result.code, 1, result)
                self.assertIn("last.ckpt", result.err)
                self.assertTrue(weights.exists())
                self.assertEqual((run / "checkpoints/last.ckpt").read_text(), "mine")
                self.assertEqual(self.summary_of(f"run_{late}")["status"], "failed")

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

    def test_what_cannot_be_is_refused(self):
        self.train("run", *SINGLE)
        last = self.folder / "run/checkpoints/last.ckpt"
        for flags, code, words in [
            (["--ckpt_path", "s3://bucket/a.ckpt"], 2, ["s3://bucket/a.ckpt", "copy the checkpoint"]),
            (["--ckpt_path", self.folder / "none.ckpt"], 1, ["none.ckpt", "nothing of that name"]),
            (["--ckpt_path", last, "--case.num_samples", 80], 1, ["88 samples", "80"]),
        ]:
            with self.subTest(flags):
                result = self.run_program(CASE, "fit", *SINGLE, *flags)
                self.assertEqual(result.code, code, result)
                for word in words:
                    self.assertIn(word, result.err)
        result = self.run_program(CASE, "fit", *SINGLE, "--ckpt_path", "last")
        self.assertEqual(result.code, 0, result)
        self.assertIn("there is no last checkpoint", result.err)


def moments_test(flags, seed):
    def test(self):
        self.check_moments(flags, random.Random(seed).sample(MOMENTS, ROUNDS))
    return test


def stop_test(flags, seed):
    return lambda self: self.check_stop(flags, random.Random(seed).randrange(1, 10))


for number, (name, flags) in enumerate(CONFIGURATIONS.items()):
    setattr(Resume, f"test_moments_{name}", moments_test(flags, number))
    setattr(Resume, f"test_stop_{name}", stop_test(flags, number))

if __name__ == "__main__":
    unittest.main()
