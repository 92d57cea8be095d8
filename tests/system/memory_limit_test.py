"""Ranks whose cgroup has no memory left: the kernel kills one, and the launcher says why."""
import itertools
import os
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "programs"))

from harness import BINARY, ProgramTest

CASE = BINARY / "bin" / "diagnoses_case"
CGROUPS = pathlib.Path("/sys/fs/cgroup")
ROOM_BYTES = 128 << 20  # which two ranks that eat 16 MiB with each batch have used up after four


class Cgroup:
    """A group of processes, with a limit of memory if one is given, by whichever version of the kernel's interface is there."""

    numbers = itertools.count()

    def __init__(self, limit_bytes=None):
        self.is_first_version = (CGROUPS / "memory").is_dir()
        self.folder = (CGROUPS / "memory" if self.is_first_version else CGROUPS) / f"lockstep_{os.getpid()}_{next(self.numbers)}"
        if not self.is_first_version:
            (CGROUPS / "cgroup.subtree_control").write_text("+memory")
        self.folder.mkdir()
        if limit_bytes is not None:
            self.set_limit(limit_bytes)

    def set_limit(self, limit_bytes):
        limit = "memory.limit_in_bytes" if self.is_first_version else "memory.max"
        (self.folder / limit).write_text(str(limit_bytes))
        for swap in ("memory.memsw.limit_in_bytes", "memory.swap.max"):
            if (self.folder / swap).exists():
                (self.folder / swap).write_text(str(limit_bytes) if self.is_first_version else "0")

    def enter(self):
        (self.folder / "cgroup.procs").write_text(str(os.getpid()))

    def peak_bytes(self):
        peak = "memory.max_usage_in_bytes" if self.is_first_version else "memory.peak"
        return int((self.folder / peak).read_text())


class MemoryLimit(ProgramTest):
    def eating(self, group, launcher, flags, mib, batches):
        self.addCleanup(group.folder.rmdir)
        process = self.start(*launcher, CASE, "fit", "--run_dir", self.folder / "run", "--trainer.logger", "false", "--case.eats", mib,
                             "--case.works", "20ms", "--case.batches", batches, *flags, preexec_fn=group.enter)
        return self.finish(process)

    def test_a_rank_that_the_kernel_kills_is_explained(self):
        for launcher, flags in (((), ("--trainer.devices", 2)), ((BINARY / "bin" / "lockstep", "run", "--nproc-per-node", 2), ())):
            with self.subTest(launcher):
                without = Cgroup()
                self.assertEqual(self.eating(without, launcher, flags, mib=0, batches=3).code, 0)
                result = self.eating(Cgroup(without.peak_bytes() + ROOM_BYTES), launcher, flags, mib=16, batches=200)
                self.assert_refused(result, 137, "killed by SIGKILL", "by the kernel, which had no memory left; peak so far", "parameters 4.02 MiB",
                                    "optimizer 8.03 MiB", "activations and buffers", "what makes room, in this order: a batch_size below 4")

    def test_one_that_others_kill_is_not(self):
        result = self.digits("fit", "--trainer.devices", 2, "--trainer.max_epochs", 1, "--fault.kind", "kill", "--fault.rank", 1, "--fault.step", 3)
        self.assert_refused(result, 137, "killed by SIGKILL")
        self.assertNotIn("memory", result.err)


if __name__ == "__main__":
    unittest.main()
