"""Training under a real SLURM: four nodes, jobs that are requeued, preempted, cancelled, and lose a node."""
import json
import subprocess
import unittest

from cluster import CASE, FOUR_RANKS, LOCKSTEP, SlurmTest, enter_cluster

TWO_BY_TWO = ("--nodes", 2, "--ntasks-per-node", 2)
SLOW = ("--case.step_time", "200ms")  # 32 steps: long enough to be disturbed


class Steps(SlurmTest):
    def test_four_ranks_on_two_nodes_train_what_one_node_does(self):
        result = self.srun(*TWO_BY_TWO, *self.case(*FOUR_RANKS))
        self.assertEqual(result.code, 0, result)
        self.assertEqual(json.loads((self.folder / "run" / "summary.json").read_text())["world_size"], 4)
        self.assert_undisturbed_weights()

    def test_settings_that_differ_from_the_job_are_named(self):
        result = self.srun(*TWO_BY_TWO, *self.case("--trainer.devices", 3, "--trainer.num_nodes", 2))
        self.assertEqual(result.code, 2, result)
        self.assertIn("--ntasks-per-node=3", result.err)

    def test_a_rank_that_fails_ends_all(self):
        fault = ("--fault.kind", "exit", "--fault.rank", 1, "--fault.step", 3)
        result = self.srun(*TWO_BY_TWO, "--kill-on-bad-exit=1", *self.case(*FOUR_RANKS, *SLOW, *fault))
        self.assertNotEqual(result.code, 0, result)
        self.assertLess(self.step(), 10)
        self.assert_nobody_left()

    def test_lockstep_run_is_a_task(self):
        flags = ("--trainer.devices", 2, "--trainer.strategy", "ddp")
        result = self.srun("--nodes", 1, "--ntasks", 1, LOCKSTEP, "run", "--nproc-per-node", 2, *self.case(*flags))
        self.assertEqual(result.code, 0, result)
        alone = self.run_program(*self.case(*flags, name="alone"))
        self.assertEqual(alone.code, 0, alone)
        self.assertEqual((self.folder / "run.safetensors").read_bytes(), (self.folder / "alone.safetensors").read_bytes())


class Jobs(SlurmTest):
    def job(self, *flags, options=()):
        return self.submit(self.script(*TWO_BY_TWO, "--logs", self.folder, *options, command=self.case(*FOUR_RANKS, *SLOW, *flags)))

    def checkpoints(self):
        return {folder.name for folder in (self.folder / "run" / "checkpoints").glob("*.ckpt")}

    def test_sbatch_takes_the_script_of_slurm_script(self):
        asked = ("--time", "1:00:00", "--mem", "500M", "--partition", "low", "-c", 1, "--array", "0-3%2", "--setup", "echo ready")
        result = self.run_program("sbatch", "--test-only", self.script(*TWO_BY_TWO, *asked, command=[CASE, "--help"]))
        self.assertEqual(result.code, 0, result)
        self.assertIn("to start at", result.err)

    def test_before_its_time_is_over_a_job_saves_and_starts_again(self):
        # SLURM looks at its clock every 30 s, and signals early rather than late: 10 s to 40 s after the start.
        long = ("--trainer.max_epochs", 32)
        job = self.job(*long, options=("--time", "1", "--signal", "USR1@20"))
        self.wait_until(lambda: self.starts(job) == 1, "second start", deadline_s=120)
        self.assertIn("hpc_ckpt_1.ckpt", self.checkpoints())
        # The second life is not to end by its own time.
        subprocess.run(["scontrol", "update", f"JobId={job}", "TimeLimit=10"], check=True)
        self.wait_for_end(job)
        self.assertIn("this job goes on from", self.logs())
        self.assertFalse(any(name.startswith("hpc") for name in self.checkpoints()))
        self.assert_undisturbed_weights(*long)

    def test_a_job_that_makes_room_goes_on_later(self):
        job = self.job(options=("--partition", "low"))
        self.wait_for_step(4)
        first = self.submit("--partition", "main", "--nodes", 4, "--exclusive", "--output", "/dev/null", "--wrap", "true")
        self.wait_for_end(first)
        self.assertIn("last.ckpt", self.checkpoints())
        self.wait_for_end(job)
        self.assertEqual(self.starts(job), 1)
        self.assertIn("last.ckpt", self.logs())
        self.assert_undisturbed_weights()

    def test_a_job_that_loses_a_node_goes_on(self):
        job = self.job("--trainer.max_epochs", 4)
        self.wait_for_step(10)  # a checkpoint of the first epoch is there
        node = self.field(job, "BatchHost")
        lost = next(name for name in ("n1", "n2", "n3", "n4") if name in self.hosts(job) and name != node)
        subprocess.run(["scontrol", "update", f"NodeName={lost}", "State=down", "Reason=test"], check=True)
        self.wait_for_end(job)
        self.assertEqual(self.starts(job), 1)
        self.assertIn("this job goes on from", self.logs())
        self.assert_undisturbed_weights()

    def hosts(self, job):
        return subprocess.check_output(["scontrol", "show", "hostnames", self.field(job, "NodeList")], text=True).split()

    def test_a_job_that_is_cancelled_saves_and_leaves_nobody(self):
        job = self.job()
        self.wait_for_step(4)
        subprocess.run(["scancel", str(job)], check=True)
        self.wait_for_end(job, "CANCELLED")
        self.assert_nobody_left()
        self.assertIn("last.ckpt", self.checkpoints())
        self.assertIn("ended by SIGTERM", self.logs())
        self.assertEqual(json.loads((self.folder / "run" / "summary.json").read_text())["status"], "terminated")

    def test_the_tasks_of_a_step_that_is_told_to_end_exit_with_143(self):
        step = self.start("srun", "--job-name", "told", *TWO_BY_TWO, *self.case(*FOUR_RANKS, *SLOW))
        self.wait_for_step(4)
        subprocess.run(["scancel", "--signal=TERM", "--jobname=told"], check=True)
        result = self.finish(step)
        self.assertEqual(result.code, 143, result)
        self.assert_nobody_left()

    def test_tasks_of_an_array_have_folders_of_their_own(self):
        command = [CASE, "--seed_everything", "$SLURM_ARRAY_TASK_ID", "--trainer.max_steps", 3]
        array = self.submit(self.script("--array", "1-2", "--logs", self.folder, command=command))
        self.wait_for_end(f"{array}_1")
        self.wait_for_end(f"{array}_2")
        runs = list((self.folder / "runs" / "signal_case").iterdir())
        self.assertEqual(len(runs), 2, runs)
        seeds = {line for run in runs for line in (run / "config.yaml").read_text().splitlines() if line.startswith("seed_everything")}
        self.assertEqual(seeds, {"seed_everything: 1", "seed_everything: 2"})


if __name__ == "__main__":
    enter_cluster()
    unittest.main()
