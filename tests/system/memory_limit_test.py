"""Ranks whose cgroup has no memory left: the kernel kills one, and the launcher says why."""
import os
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "programs"))

from harness import BINARY, ProgramTest

CASE = BINARY / "bin" / "diagnoses_case"
CGROUPS = pathlib.Path("/sys/fs/cgroup")


class Cgroup:
    """A group of processes with a limit of memory, by whichever version of the kernel's interface is there."""

    def __init__(self, limit_mib):
        is_first_version = (CGROUPS / "memory").is_dir()
        self.folder = (CGROUPS / "memory" if is_first_version else CGROUPS) / f"lockstep_{os.getpid()}_{limit_mib}"
        if not is_first_version:
            (CGROUPS / "cgroup.subtree_control").write_text("+memory")
        self.folder.mkdir()
        limit = "memory.limit_in_bytes" if is_first_version else "memory.max"
        (self.folder / limit).write_text(str(limit_mib << 20))
        for swap in ("memory.memsw.limit_in_bytes", "memory.swap.max"):
            if (self.folder / swap).exists():
                (self.folder / swap).write_text(str(limit_mib << 20) if is_first_version else "0")

    def enter(self):
        (self.folder / "cgroup.procs").write_text(str(os.getpid()))


class MemoryLimit(ProgramTest):
    def test_a_rank_that_the_kernel_kills_is_explained(self):
        for limit_mib, launcher, flags in ((640, (), ("--trainer.devices", 2)), (648, (BINARY / "bin" / "lockstep", "run", "--nproc-per-node", 2), ())):
            with self.subTest(launcher):
                group = Cgroup(limit_mib)
                self.addCleanup(group.folder.rmdir)
                process = self.start(*launcher, CASE, "fit", "--run_dir", self.folder / "run", "--trainer.logger", "false", "--case.eats", 16,
                                     "--case.works", "20ms", "--case.batches", 200, *flags, preexec_fn=group.enter)
                result = self.finish(process)
                self.assert_refused(result, 137, "killed by SIGKILL", "by the kernel, which had no memory left; peak so far", "parameters 4.02 MiB",
                                    "optimizer 8.03 MiB", "activations and buffers", "what makes room, in this order: a batch_size below 4")

    def test_one_that_others_kill_is_not(self):
        result = self.digits("fit", "--trainer.devices", 2, "--trainer.max_epochs", 1, "--fault.kind", "kill", "--fault.rank", 1, "--fault.step", 3)
        self.assert_refused(result, 137, "killed by SIGKILL")
        self.assertNotIn("memory", result.err)


if __name__ == "__main__":
    unittest.main()
