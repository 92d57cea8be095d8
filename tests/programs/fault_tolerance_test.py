"""Jobs of `lockstep run` that lose a rank: who is named, what is left running, what a restart costs."""
import contextlib
import csv
import os
import pathlib
import random
import re
import signal
import time
import unittest

from harness import BINARY, DIGITS, SOURCE, ProgramTest

LOCKSTEP = BINARY / "bin" / "lockstep"
CASE = BINARY / "bin" / "resume_case"
STEPS = 33  # of resume_case: 3 epochs of 11 batches
FAULTS = int(os.environ.get("LOCKSTEP_SINGLE_FAULTS", "20"))
LAUNCHER_KILLS = int(os.environ.get("LOCKSTEP_LAUNCHER_KILLS", "20"))

# What the launcher says of each; a rank that does not move is found by those that wait for it.
SAID = {"kill": "killed by SIGKILL", "exit": "exited with code 3", "throw": "failed: injected fault", "abort": "killed by SIGABRT"}
NAMED_BY_PEERS = ("stop", "hang")


class Restarts(ProgramTest):
    def train(self, name, *flags):
        weights = self.folder / f"{name}.safetensors"
        result = self.run_program(LOCKSTEP, "run", "--nproc-per-node", 2, "--max-restarts", 1, CASE, "fit", "--resume", "auto",
                                  "--run_dir", self.folder / name, "--save_weights", weights, "--seed_everything", 5,
                                  "--trainer.strategy", "ddp", "--trainer.log_every_n_steps", 1, *flags)
        self.assertEqual(result.code, 0, result)
        return weights.read_bytes(), result

    def steps_logged(self, name):
        with open(self.folder / name) as file:
            return [int(row["step"]) for row in csv.DictReader(file) if row.get("train_loss_step")]

    def test_a_killed_rank_costs_one_restart_and_no_step_that_was_saved(self):
        undisturbed, _ = self.train("undisturbed")
        for every, step in ((1, 15), (4, 18)):
            with self.subTest(every_n_train_steps=every):
                name = f"every_{every}"
                weights, result = self.train(name, "--case.every_n_train_steps", every, "--fault.kind", "kill", "--fault.rank", 1,
                                             "--fault.step", step)
                self.assertEqual(weights, undisturbed)
                self.assertIn("restart 1 of 1", result.err)
                self.assertRegex(result.err, r"rank 1 \(node 0, pid \d+\) killed by SIGKILL")
                first, second = self.steps_logged(f"{name}/metrics.1.csv"), self.steps_logged(f"{name}/metrics.csv")
                self.assertEqual(first, list(range(step)))
                # A checkpoint is taken before the row of its own step is written, which then comes in both.
                self.assertEqual(second, list(range(step // every * every - 1, STEPS)))

    def test_what_fails_again_ends_the_job(self):
        result = self.run_program(LOCKSTEP, "run", "--nproc-per-node", 2, "--max-restarts", 1, CASE, "fit", "--case.callback", "none",
                                  "--run_dir", self.folder / "run")
        self.assert_refused(result, 2, "case.callback", "restart 1 of 1")


class Faults(ProgramTest):
    def test_the_cause_of_single_faults_is_named(self):
        draw = random.Random(11)
        for number in range(FAULTS):
            kind = draw.choice((*SAID, *NAMED_BY_PEERS))
            rank, step = draw.randrange(3), draw.randrange(1, 60)
            with self.subTest(number=number, kind=kind, rank=rank, step=step):
                self.check(kind, rank, step)

    def check(self, kind, rank, step):
        begin = time.monotonic()
        result = self.run_program(LOCKSTEP, "run", "--nproc-per-node", 3, "--shutdown-timeout", 1, DIGITS, "fit", "--trainer.strategy", "ddp",
                                  "--trainer.strategy.timeout", "5s", "--data.file", SOURCE / "data" / "digits.csv.gz",
                                  "--run_dir", self.folder / f"{kind}_{rank}_{step}", "--fault.kind", kind, "--fault.rank", rank,
                                  "--fault.step", step, "--trainer.enable_checkpointing", "false")
        self.assertLess(time.monotonic() - begin, 60, result)
        self.assertNotEqual(result.code, 0, result)
        if kind in SAID:
            failure = re.search(r"^lockstep: rank (\d+) \(node 0, pid \d+\) (.*)$", result.err, re.MULTILINE)
            self.assertIsNotNone(failure, result)
            self.assertEqual(int(failure[1]), rank, result)
            self.assertIn(SAID[kind], failure[2])
        else:
            self.assertRegex(result.err, rf"rank {rank}\b", result)
            others = "|".join(str(other) for other in range(3) if other != rank)
            self.assertNotRegex(result.err, rf"(absent|stopped|silent|waiting for).{{0,20}}rank ({others})\b", result)


class LostLaunchers(ProgramTest):
    def test_nobody_survives_a_killed_launcher(self):
        draw = random.Random(12)
        for number in range(LAUNCHER_KILLS):
            with self.subTest(number):
                self.kill_a_launcher(f"{1000 + number}.{os.getpid()}", draw.uniform(0, 0.4))

    def kill_a_launcher(self, mark, delay_s):
        # Each rank leaves something in its own session, and something that has left its parents.
        program = f"setsid sleep {mark} & (sleep {mark} & ); sleep {mark}"
        launcher = self.start(LOCKSTEP, "run", "--nproc-per-node", 3, "/bin/sh", "-c", program)
        time.sleep(delay_s)
        launcher.send_signal(signal.SIGKILL)
        deadline = time.monotonic() + 10
        while (left := processes_with(mark)) and time.monotonic() < deadline:
            time.sleep(0.02)
        launcher.communicate()
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.assertEqual(left, [], f"killed after {delay_s:.3f} s")


def processes_with(mark):
    """Those that have `mark` among their arguments, other than zombies."""
    found = []
    for entry in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if mark.encode() in entry.read_bytes():
                found.append(int(entry.parent.name))
        except OSError:  # it has ended meanwhile
            continue
    return found


if __name__ == "__main__":
    unittest.main()
