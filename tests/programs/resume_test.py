"""A run that is cut off anywhere and goes on in a new process ends with the bits of one that was not."""
import os
import random
import shutil
import unittest

from harness import BINARY, ProgramTest

CASE = BINARY / "bin" / "resume_case"
EPOCHS, BATCHES, VAL_BATCHES = 3, 11, 3  # of one rank: 88 samples, 2 ranks, 4 each
MOMENTS = ([f"epoch_start:{i}" for i in range(EPOCHS)] + [f"batch_end:{i}" for i in range(EPOCHS * BATCHES)] +
           [f"validation_start:{i}" for i in range(EPOCHS)] + [f"validation_end:{i}" for i in range(EPOCHS)] +
           [f"validation_batch_end:{i}" for i in range(EPOCHS * VAL_BATCHES)] + [f"epoch_end:{i}" for i in range(EPOCHS)])
ROUNDS = int(os.environ.get("LOCKSTEP_RESUME_MOMENTS", "4"))

SINGLE = ["--case.batch_size", 8]
DDP = ["--trainer.strategy", "ddp", "--trainer.devices", 2]
SPAWN = ["--trainer.strategy", "ddp", "--trainer.strategy.start_method", "spawn", "--trainer.devices", 2]
CONFIGURATIONS = {
    "single": SINGLE,
    "single_windows": [*SINGLE, "--trainer.accumulate_grad_batches", 4],
    "ddp": DDP,
    "ddp_windows_workers": [*DDP, "--trainer.accumulate_grad_batches", 3, "--case.num_workers", 2],
    "ddp_bucket_views": [*DDP, "--trainer.accumulate_grad_batches", 2, "--trainer.strategy.gradient_as_bucket_view", "true"],
    "ddp_own_buffers": [*DDP, "--trainer.strategy.broadcast_buffers", "false"],
    "ddp_static_graph": [*DDP, "--trainer.accumulate_grad_batches", 2, "--trainer.strategy.static_graph", "true"],
    "ddp_bf16": [*DDP, "--trainer.precision", "bf16-mixed", "--trainer.accumulate_grad_batches", 2],
    "ddp_power_sgd": [*DDP, "--trainer.strategy.ddp_comm_hook", "powerSGD",
                      "--trainer.strategy.ddp_comm_state.start_powerSGD_iter", 2,
                      "--trainer.strategy.ddp_comm_state.min_compression_rate", 1],
    "ddp_async": [*DDP, "--trainer.async_checkpoint", "true", "--trainer.accumulate_grad_batches", 2],
    "ddp_spawn": SPAWN,
}


class Resume(ProgramTest):
    def train(self, name, *flags):
        weights = self.folder / f"{name}.safetensors"
        result = self.run_program(CASE, "fit", "--run_dir", self.folder / name, "--save_weights", weights, *flags)
        self.assertEqual(result.code, 0, result)
        self.assertNotIn("NOT SAVED", result.out)
        return weights.read_bytes(), result

    def optimizer_of(self, name):
        return (self.folder / name / "checkpoints" / "last.ckpt" / "optimizer.safetensors").read_bytes()

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

    def test_another_world_sees_the_samples_in_the_same_order(self):
        flags = ["--seed_everything", 5, *DDP]
        self.train("saving", *flags, "--case.save_at", "batch_end:7", "--case.save_dir", self.folder)
        path = self.folder / "batch_end:7.ckpt"
        _, result = self.train("one", "--seed_everything", 5, *SINGLE, "--ckpt_path", path)
        _, result = self.train("four", "--seed_everything", 5, "--trainer.strategy", "ddp", "--trainer.devices", 4,
                               "--case.batch_size", 2, "--ckpt_path", path)
        refused = self.run_program(CASE, "fit", "--case.batch_size", 5, "--ckpt_path", path, cwd=self.folder)
        self.assertEqual(refused.code, 1, refused)
        self.assertIn("no batch begins where the checkpoint was taken, at sample 64", refused.err)

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
