"""A run that is cut off anywhere and goes on in a new process ends with the bits of one that was not."""
import os
import random
import unittest

from resume_runs import BATCHES, CONFIGURATIONS, EPOCHS, VAL_BATCHES, ResumeTest

MOMENTS = ([f"epoch_start:{i}" for i in range(EPOCHS)] + [f"batch_end:{i}" for i in range(EPOCHS * BATCHES)] +
           [f"validation_start:{i}" for i in range(EPOCHS)] + [f"validation_end:{i}" for i in range(EPOCHS)] +
           [f"validation_batch_end:{i}" for i in range(EPOCHS * VAL_BATCHES)] + [f"epoch_end:{i}" for i in range(EPOCHS)] +
           [f"monitored_epoch_end:{i}" for i in range(EPOCHS)])
ROUNDS = int(os.environ.get("LOCKSTEP_RESUME_MOMENTS", "4"))


class Moments(ResumeTest):
    def check(self, flags, moments, last_step):
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
        with self.subTest(last_step=last_step):
            self.train("stopped", *flags, "--trainer.max_steps", last_step)
            resumed, _ = self.train("resumed", *flags, "--ckpt_path", self.folder / "stopped" / "checkpoints" / "last.ckpt")
            self.assertEqual(resumed, undisturbed)


def test_of(flags, seed):
    return lambda self: self.check(flags, random.Random(seed).sample(MOMENTS, ROUNDS), random.Random(seed).randrange(1, 10))


for number, (name, flags) in enumerate(CONFIGURATIONS.items()):
    setattr(Moments, f"test_{name}", test_of(flags, number))

if __name__ == "__main__":
    unittest.main()
