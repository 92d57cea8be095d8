"""Saving that is cut off, or that the disk refuses, leaves a complete checkpoint."""
import os
import random
import signal
import time
import unittest

from harness import BINARY, ProgramTest

CASE = BINARY / "bin" / "save_case"
RESUME_CASE = BINARY / "bin" / "resume_case"
KILLS = int(os.environ.get("LOCKSTEP_KILLS", "50"))


class Save(ProgramTest):
    def number_in(self, folder):
        result = self.run_program(CASE, "check", folder)
        self.assertEqual(result.code, 0, result)
        return int(result.out)

    def test_a_killed_save_leaves_a_complete_checkpoint(self):
        moments = random.Random(7)
        folder = self.folder / "x.ckpt"
        for kill in range(KILLS):
            process = self.start(CASE, "loop", folder)
            self.assertEqual(process.stdout.readline(), "1\n")
            time.sleep(moments.random() * 0.05)
            process.send_signal(signal.SIGKILL)
            out, _ = process.communicate()
            done = 1 + len(out.splitlines())
            self.assertIn(self.number_in(folder), (done, done + 1), f"kill {kill}")

    def test_each_call_that_writes_may_fail(self):
        result = self.run_program(CASE, "faults", self.folder / "x.ckpt")
        self.assertEqual(result.code, 0, result)
        self.assertGreater(int(result.out.split()[0]), 90, result)

    def test_each_call_of_one_rank_may_fail(self):
        result = self.run_program(CASE, "rank_faults", self.folder / "x.ckpt")
        self.assertEqual(result.code, 0, result)
        self.assertGreater(int(result.out.split()[0]), 8, result)

    def test_training_goes_on_and_the_user_is_told(self):
        for late in ("false", "true"):
            with self.subTest(async_checkpoint=late):
                result = self.run_program(RESUME_CASE, "fit", "--run_dir", self.folder / late, "--case.batch_size", 8,
                                          "--trainer.async_checkpoint", late, "--case.save_at", "batch_end:2",
                                          "--case.save_dir", "/proc/none")
                self.assertEqual(result.code, 0, result)
                self.assertIn("training goes on", result.err)
                self.assertIn("/proc/none", result.err)


if __name__ == "__main__":
    unittest.main()
