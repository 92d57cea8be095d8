"""What signals do to a fit: it saves, ends with 143, and goes on elsewhere; a job of SLURM starts again.

Here scontrol is a stand-in that notes what it was asked; tests/slurm has a real SLURM."""
import json
import os
import signal
import time
import unittest

from harness import BINARY, ProgramTest

CASE = BINARY / "bin" / "signal_case"
PACE = ("--case.step_time", "60ms")  # 32 of them; ranks tell each other of signals every 500 ms


def task(job="12", **more):
    """The only task of a job."""
    return {"SLURM_JOB_ID": job, "SLURM_JOB_NAME": "train", "SLURM_STEP_ID": "0", "SLURM_NTASKS": "1", "SLURM_NTASKS_PER_NODE": "1",
            "SLURM_NNODES": "1", "SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NODEID": "0", "SLURM_NODELIST": "localhost"} | more


class Signals(ProgramTest):
    def start_case(self, *flags, name="run", **environment):
        self.steps = self.folder / f"{name}.steps"
        self.steps.unlink(missing_ok=True)
        return self.start(CASE, *flags, "--case.steps", self.steps, "--seed_everything", 3, "--run_dir", self.folder / name,
                          "--save_weights", self.folder / f"{name}.safetensors", **environment)

    def wait_for_step(self, process, step):
        deadline = time.monotonic() + 60
        while not self.steps.exists() or len(self.steps.read_text().split()) < step:
            self.assertIsNone(process.poll(), "the run has ended")
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)

    def run_case(self, *flags, name="run", **environment):
        return self.finish(self.start_case(*flags, name=name, **environment))

    def interrupted(self, *flags, send=signal.SIGTERM, to=lambda process: process.pid, at=5, **environment):
        process = self.start_case(*PACE, *flags, **environment)
        self.wait_for_step(process, at)
        os.kill(to(process), send)
        return self.finish(process)

    def summary(self, name="run"):
        return json.loads((self.folder / name / "summary.json").read_text())

    def checkpoints(self, name="run"):
        return sorted(entry.name for entry in (self.folder / name / "checkpoints").glob("*.ckpt"))

    def assert_same_weights(self, *flags):
        undisturbed = self.run_case(*flags, name="undisturbed")
        self.assertEqual(undisturbed.code, 0, undisturbed)
        self.assertEqual((self.folder / "run.safetensors").read_bytes(), (self.folder / "undisturbed.safetensors").read_bytes())


class Terminate(Signals):
    def assert_saved(self, result):
        self.assertEqual(result.code, 143, result)
        self.assertEqual(self.summary()["status"], "terminated")
        self.assertLess(self.summary()["steps"], 32)
        self.assertIn("last.ckpt", self.checkpoints())
        self.assertFalse((self.folder / "run.safetensors").exists())

    def goes_on(self, *flags):
        before = self.summary()["steps"]
        result = self.run_case(*flags, "--resume", "auto")
        self.assertEqual(result.code, 0, result)
        self.assertEqual(self.summary()["steps"], 32)
        self.assertGreater(before, 4)
        self.assert_same_weights(*flags)

    def test_one_process_saves_and_goes_on_elsewhere(self):
        result = self.interrupted()
        self.assert_saved(result)
        self.assertIn("lockstep: [train] ended by SIGTERM after epoch 0, step", result.err)
        self.assertIn("--resume auto", result.err)
        self.assertFalse((self.folder / "run" / "failure.json").exists())
        self.goes_on()

    def test_a_window_that_is_under_way_is_kept(self):
        flags = ("--trainer.accumulate_grad_batches", 3, "--trainer.max_epochs", 12)
        process = self.start_case(*PACE, *flags)
        self.wait_for_step(process, 5)
        process.terminate()
        self.assertEqual(self.finish(process).code, 143)
        self.assertEqual(self.run_case(*flags, "--resume", "auto").code, 0)
        self.assert_same_weights(*flags)

    def test_a_signal_to_one_rank_ends_all_at_the_same_step(self):
        flags = ("--trainer.devices", 3, "--trainer.strategy", "ddp")
        rank = lambda process: json.loads((self.folder / "run" / "ranks.json").read_text())["2"]
        self.assert_saved(self.interrupted(*flags, to=rank))
        self.goes_on(*flags)

    def test_a_signal_to_the_launcher_reaches_all(self):
        flags = ("--trainer.devices", 2, "--trainer.strategy", "ddp")
        self.assert_saved(self.interrupted(*flags))
        self.goes_on(*flags)

    def assert_left_within_validation(self, *flags):
        flags = ("--case.val_batches", 100, "--trainer.num_sanity_val_steps", 0, *flags)
        result = self.interrupted(*flags, at=8 + 10)  # eight steps, and ten batches of the first validation
        self.assert_saved(result)
        self.assertEqual(self.summary()["steps"], 8)
        self.assertLess(len(self.steps.read_text().split()), 8 + 80)
        self.goes_on(*flags)
        self.assertEqual(self.summary()["metrics"]["val_loss"], self.summary("undisturbed")["metrics"]["val_loss"])

    def test_a_validation_is_left_between_two_batches(self):
        self.assert_left_within_validation()

    def test_ranks_leave_a_validation_together(self):
        self.assert_left_within_validation("--trainer.devices", 2)

    def test_checkpoints_in_the_background_are_written_before_the_end(self):
        self.assert_saved(self.interrupted("--trainer.async_checkpoint", "true"))
        self.goes_on()

    def test_without_checkpoints_it_says_that_nothing_is_left(self):
        result = self.interrupted("--trainer.enable_checkpointing", "false")
        self.assertEqual(result.code, 143, result)
        self.assertIn("nothing was saved", result.err)
        self.assertEqual(self.checkpoints(), [])

    def test_the_programs_handler_is_called_and_comes_back(self):
        result = self.interrupted("--case.handler", "true")
        self.assertEqual(result.code, 143, result)
        self.assertIn("handled 1 in fit, 1 after it", result.out)
        undisturbed = self.run_case("--case.handler", "true", name="undisturbed")
        self.assertIn("handled 0 in fit, 1 after it", undisturbed.out)


class Requeue(Signals):
    def setUp(self):
        super().setUp()
        self.asked = self.folder / "asked"
        self.fake_scontrol("exit 0")

    def fake_scontrol(self, end):
        tools = self.folder / "tools"
        tools.mkdir(exist_ok=True)
        script = tools / "scontrol"
        script.write_text(f'#!/bin/sh\necho "$@" >> {self.asked}\n{end}\n')
        script.chmod(0o755)
        self.path = f"{tools}:{os.environ['PATH']}"

    def requeued(self, *flags, **environment):
        return self.interrupted(*flags, send=signal.SIGUSR1, PATH=self.path, **task(**environment))

    def test_it_saves_asks_for_another_start_and_goes_on_there(self):
        result = self.requeued()
        self.assertEqual(result.code, 143, result)
        self.assertEqual(self.asked.read_text(), "requeue 12\n")
        self.assertEqual(self.checkpoints(), ["hpc_ckpt_1.ckpt"])
        self.assertEqual(self.summary()["status"], "terminated")
        again = self.run_case(PATH=self.path, **task(SLURM_RESTART_COUNT="1"))
        self.assertEqual(again.code, 0, again)
        self.assertIn("this job goes on from", again.err)
        self.assertNotIn("hpc_ckpt_1.ckpt", self.checkpoints())
        self.assert_same_weights()

    def test_each_life_leaves_one_checkpoint_and_goes_before_ckpt_path(self):
        first = self.folder / "first"
        self.assertEqual(self.run_case("--trainer.max_steps", 2, name="first").code, 0)
        given = ("--ckpt_path", first / "checkpoints" / "last.ckpt")
        self.assertEqual(self.requeued(*given, at=3).code, 143)
        steps = self.summary()["steps"]
        self.assertEqual(self.requeued(*given, at=3, SLURM_RESTART_COUNT="1").code, 143)
        self.assertGreaterEqual(self.summary()["steps"], steps + 3)
        self.assertEqual(self.checkpoints(), ["hpc_ckpt_2.ckpt"])

    def test_a_task_of_an_array_is_named_as_such(self):
        self.assertEqual(self.requeued(SLURM_ARRAY_JOB_ID="11", SLURM_ARRAY_TASK_ID="3").code, 143)
        self.assertEqual(self.asked.read_text(), "requeue 11_3\n")

    def test_where_slurm_refuses_training_goes_on(self):
        self.fake_scontrol("echo 'Requested operation is presently disabled' >&2; exit 1")
        result = self.requeued()
        self.assertEqual(result.code, 0, result)
        self.assertIn("scontrol requeue 12 exited with 1: Requested operation is presently disabled", result.err)
        self.assertEqual(self.summary()["steps"], 32)
        self.assert_same_weights()

    def test_without_scontrol_training_goes_on(self):
        self.path = str(self.folder)
        result = self.requeued()
        self.assertEqual(result.code, 0, result)
        self.assertIn("cannot run scontrol", result.err)

    def test_outside_of_slurm_and_in_a_terminal_the_signal_is_the_programs_own(self):
        self.assertEqual(self.interrupted(send=signal.SIGUSR1).code, -signal.SIGUSR1)
        self.assertEqual(self.requeued(SLURM_JOB_NAME="interactive").code, -signal.SIGUSR1)
        self.assertFalse(self.asked.exists())

    def made_room(self, state):
        self.fake_scontrol(f'[ "$1" = show ] && echo "JobId=12 {state} Restarts=0"; exit 0')
        result = self.interrupted(PATH=self.path, **task())
        self.assertEqual(result.code, 143, result)
        return self.asked.read_text()

    def test_a_job_that_has_to_make_room_asks_for_another_start(self):
        asked = self.made_room("JobState=SIGNALING Reason=None PreemptTime=2026-11-22T06:44:59")
        self.assertEqual(asked, "show job 12 --oneliner\nrequeue 12\n")

    def test_a_job_that_is_cancelled_does_not(self):
        for state in ("JobState=RUNNING PreemptTime=None", "JobState=COMPLETING PreemptTime=2026-11-22T06:44:59"):
            self.assertNotIn("requeue", self.made_room(state))

    def test_a_job_that_made_room_goes_on_from_last(self):
        self.assertEqual(self.interrupted(**task()).code, 143)
        again = self.run_case(**task(SLURM_RESTART_COUNT="1"))
        self.assertIn("last.ckpt", again.err)
        self.assert_same_weights()

    def test_another_jobs_checkpoints_are_not_this_ones(self):
        self.assertEqual(self.run_case("--trainer.max_steps", 4, **task("11")).code, 0)
        self.assertEqual(self.run_case("--trainer.max_steps", 0, "--trainer.enable_checkpointing", "false", **task()).code, 0)
        again = self.run_case("--trainer.max_steps", 6, **task(SLURM_RESTART_COUNT="1"))
        self.assertNotIn("goes on from", again.err)
        self.assertEqual(again.code, 0, again)

    def in_memory(self):
        self.memory = self.folder / "memory"
        return "--trainer.local_checkpoint.every_n_train_steps", 1, "--trainer.local_checkpoint.folder", self.memory

    def test_a_job_that_will_start_again_leaves_nothing_in_memory(self):
        self.assertEqual(self.requeued(*self.in_memory()).code, 143)
        self.assertEqual(list(self.memory.glob("*/step=*")), [])

    def test_a_job_that_was_killed_goes_on_from_memory(self):
        process = self.start_case(*PACE, *self.in_memory(), **task())
        self.wait_for_step(process, 5)
        process.kill()
        self.finish(process)
        again = self.run_case(*self.in_memory(), **task(SLURM_RESTART_COUNT="1"))
        self.assertRegex(again.err, r"this job goes on from \S+/memory/\S+/step=\d+")
        self.assert_same_weights()

    def test_another_jobs_memory_is_not_this_ones(self):
        process = self.start_case(*PACE, *self.in_memory(), **task("11"))
        self.wait_for_step(process, 5)
        process.kill()
        self.finish(process)
        again = self.run_case(*self.in_memory(), **task(SLURM_RESTART_COUNT="1"))  # whose first life did not come so far
        self.assertEqual(again.code, 0, again)
        self.assertNotIn("goes on from", again.err)

    def test_the_lives_of_a_job_share_a_run_directory(self):
        for life in ("0", "1"):
            result = self.run_program(CASE, "--trainer.max_steps", 2, **task(SLURM_RESTART_COUNT=life))
            self.assertEqual(result.code, 0, result)
        self.run_program(CASE, "--trainer.max_steps", 2, **task(SLURM_STEP_ID="1"))
        runs = self.folder / "runs" / "signal_case"
        self.assertEqual(sorted(run.name for run in runs.iterdir()), ["version_12", "version_12.1"])


if __name__ == "__main__":
    unittest.main()
