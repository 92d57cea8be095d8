"""Saving that is cut off, or that the disk refuses, leaves a complete checkpoint."""
import functools
import json
import os
import random
import resource
import signal
import time
import unittest

from harness import BINARY, DIGITS, SOURCE, ProgramTest

CASE = BINARY / "bin" / "save_case"
RESUME_CASE = BINARY / "bin" / "resume_case"
LIMIT = 1 << 18  # bytes that a file may have
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
            done = 1 + len(process.stdout.readlines())  # communicate() leaves out what readline() had in its buffer
            process.communicate()
            self.assertIn(self.number_in(folder), (done, done + 1), f"kill {kill}")
        self.save(folder)
        self.assertEqual(os.listdir(self.folder), ["x.ckpt"], "what killed ones left is removed")

    def save(self, folder, mode="save", code=0):
        result = self.run_program(CASE, mode, folder)
        self.assertEqual(result.code, code, result)
        return result

    def test_two_that_save_under_one_name_leave_a_complete_checkpoint(self):
        folder = self.folder / "x.ckpt"
        writers = [self.start(CASE, "loop", folder) for _ in range(2)]
        for _ in range(50):
            for writer in writers:
                self.assertTrue(writer.stdout.readline().strip().isdigit())
        for writer in writers:
            writer.kill()
        for writer in writers:
            self.assertEqual(writer.communicate()[1], "")
        self.assertGreaterEqual(self.number_in(folder), 49)
        self.save(folder)
        self.assertEqual(os.listdir(self.folder), ["x.ckpt"])

    def test_killed_between_two_renames_the_older_one_is_found(self):
        folder = self.folder / "x.ckpt"
        self.save(folder)
        for _ in range(2):
            self.save(folder, "killed", -signal.SIGKILL)
            self.assertFalse(folder.exists())
            self.assertEqual(self.number_in(folder), 3)
        self.save(folder)
        self.assertEqual(os.listdir(self.folder), ["x.ckpt"])

    def test_what_cannot_be_removed_is_said_and_does_not_block(self):
        folder = self.folder / "x.ckpt"
        self.save(folder)
        for _ in range(2):
            self.assertIn("Device or resource busy", self.save(folder, "busy").err)
        self.save(folder)
        self.assertEqual(os.listdir(self.folder), ["x.ckpt"])

    def test_folders_that_are_made_are_synced(self):
        folders = [self.folder, self.folder / "a", self.folder / "a" / "b"]
        synced = self.save(folders[-1] / "x.ckpt", "synced").out.splitlines()
        for folder in folders:
            self.assertIn(str(folder), synced)

    def test_each_call_that_writes_may_fail(self):
        for mode in ("faults", "faults_without_exchange"):
            with self.subTest(mode):
                result = self.run_program(CASE, mode, self.folder / "x.ckpt")
                self.assertEqual(result.code, 0, result)
                self.assertGreater(int(result.out.split()[0]), 90, result)

    def test_each_call_of_one_rank_may_fail(self):
        result = self.run_program(CASE, "rank_faults", self.folder / "x.ckpt")
        self.assertEqual(result.code, 0, result)
        self.assertGreater(int(result.out.split()[0]), 8, result)

    def test_a_limit_on_the_size_of_files_is_like_a_full_disk(self):
        limit = functools.partial(resource.setrlimit, resource.RLIMIT_FSIZE, (LIMIT, LIMIT))
        for ranks in (1, 2):
            with self.subTest(ranks=ranks):
                run = self.folder / f"run{ranks}"
                process = self.start(DIGITS, "--run_dir", run, "--data.file", SOURCE / "data" / "digits.csv.gz",
                                     "--trainer.max_epochs", 1, "--trainer.devices", ranks, "--model.hidden", LIMIT // 128,
                                     preexec_fn=limit)
                result = self.finish(process)
                self.assertEqual(result.code, 1, result)
                self.assertIn("File too large", result.err)
                self.assertIn("last.ckpt", result.err)
                self.assertEqual(os.listdir(run / "checkpoints"), [])
                self.assertEqual(json.loads((run / "summary.json").read_text())["status"], "failed")

    def test_the_first_of_several_failures_is_the_last_line(self):
        # As on a full disk: first the weights cannot be written, then the summary.
        run, folder = self.folder / "run", self.folder / "weights"
        folder.mkdir()
        process = self.start(DIGITS, "--run_dir", run, "--data.file", SOURCE / "data" / "digits.csv.gz", "--trainer.max_epochs", 30,
                             "--trainer.enable_checkpointing", "false", "--save_weights", folder / "w.safetensors")
        while not (run / "metrics.csv").exists() and process.poll() is None:
            time.sleep(0.005)
        process.send_signal(signal.SIGSTOP)
        (run / "summary.json" / "taken").mkdir(parents=True)
        folder.rmdir()
        process.send_signal(signal.SIGCONT)
        result = self.finish(process)
        self.assertEqual(result.code, 1, result)
        self.assertIn("writing summary.json failed too", result.err)
        self.assertIn("w.safetensors", result.err.splitlines()[-1])

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
