"""A SLURM of four nodes for the tests of this folder, in namespaces of its own; see four_nodes.sh."""
import os
import pathlib
import re
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "programs"))

from harness import BINARY, ProgramTest, Result  # noqa: E402

CASE = BINARY / "bin" / "signal_case"
LOCKSTEP = BINARY / "bin" / "lockstep"
# The nodes' names are known to SLURM alone.
FOUR_RANKS = ("--trainer.devices", 2, "--trainer.num_nodes", 2, "--trainer.strategy", "ddp")


def enter_cluster():
    """Goes on inside the cluster, which ends with the program."""
    if "SLURM_CONF" in os.environ:
        return
    if os.geteuid() != 0:
        sys.exit("these tests start a SLURM and need root: sudo make test-system")
    own = ["--mount", "--pid", "--net", "--fork", "--kill-child", "--mount-proc"]
    os.execvp("unshare", ["unshare", *own, str(HERE / "four_nodes.sh"), sys.executable, *sys.argv])


class SlurmTest(ProgramTest):
    def setUp(self):
        super().setUp()
        self.jobs = []
        self.addCleanup(self.cancel_all)

    def environment(self, **extra):
        return super().environment(MASTER_ADDR="127.0.0.1", **extra)

    def cancel_all(self):
        for job in self.jobs:
            subprocess.run(["scancel", "--full", str(job)], check=False)
        self.wait_until(lambda: not subprocess.check_output(["squeue", "--noheader"], text=True).strip(), "an empty queue")

    def wait_until(self, holds, what, deadline_s=60):
        deadline = time.monotonic() + deadline_s
        while not holds():
            if time.monotonic() > deadline:
                self.fail(f"no {what} after {deadline_s} s\n{subprocess.getoutput('squeue; sinfo -N -l')}\n{self.logs()}")
            time.sleep(0.1)

    def logs(self):
        return "".join(f"--- {file.name}\n{file.read_text()}" for file in sorted(self.folder.glob("**/*.out")))

    def case(self, *flags, name="run"):
        """The program's words: it trains in FOLDER/NAME, and leaves its weights beside it."""
        return [CASE, "--seed_everything", 3, "--run_dir", self.folder / name, "--case.steps", self.folder / f"{name}.steps",
                "--save_weights", self.folder / f"{name}.safetensors", *flags]

    def script(self, *words, command):
        """A file for sbatch, made by lockstep slurm-script."""
        file = self.folder / "job.sbatch"
        made = self.run_program(LOCKSTEP, "slurm-script", "--job-name", "case", "-o", file, *words, *command)
        self.assertEqual(made.code, 0, made)
        return file

    def submit(self, *words):
        result = self.run_program("sbatch", "--parsable", *words)
        self.assertEqual(result.code, 0, result)
        self.jobs.append(int(result.out.strip().split(";")[0]))
        return self.jobs[-1]

    def srun(self, *words):
        return self.run_program("srun", *words)

    def step(self, name="run"):
        steps = self.folder / f"{name}.steps"
        return len(steps.read_text().split()) if steps.exists() else 0

    def wait_for_step(self, step, name="run", deadline_s=60):
        self.wait_until(lambda: self.step(name) >= step, f"step {step} of {name}", deadline_s)

    def field(self, job, name):
        """What `scontrol show job` says."""
        text = subprocess.run(["scontrol", "show", "job", str(job)], capture_output=True, text=True, check=False).stdout
        found = re.search(rf"\b{name}=(\S*)", text)
        return found.group(1) if found else ""

    def wait_for_end(self, job, state="COMPLETED", deadline_s=120):
        ends = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL")
        self.wait_until(lambda: self.field(job, "JobState") in ends, f"end of job {job}", deadline_s)
        self.assertEqual(self.field(job, "JobState"), state, self.logs())

    def starts(self, job):
        """How often the job was started again."""
        return int(self.field(job, "Restarts") or 0)

    def programs_left(self):
        """Processes of the test program that are no zombies."""
        left = []
        for status in pathlib.Path("/proc").glob("[0-9]*/status"):
            try:
                if os.readlink(status.parent / "exe").startswith(str(CASE)) and "\nState:\tZ" not in status.read_text():
                    left.append(status.parent.name)
            except OSError:
                continue
        return left

    def assert_nobody_left(self):
        self.wait_until(lambda: not self.programs_left(), "end of all ranks", 10)

    def assert_undisturbed_weights(self, *flags, name="run"):
        """The same as where nothing happens, with all ranks on one node that no scheduler has."""
        result = self.run_program(*self.case("--trainer.devices", 4, "--trainer.strategy", "ddp", *flags, name="undisturbed"))
        self.assertEqual(result.code, 0, result)
        undisturbed = self.folder / "undisturbed.safetensors"
        self.assertEqual((self.folder / f"{name}.safetensors").read_bytes(), undisturbed.read_bytes())


__all__ = ["BINARY", "CASE", "FOUR_RANKS", "LOCKSTEP", "Result", "SlurmTest", "enter_cluster"]
