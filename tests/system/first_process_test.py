"""Programs and launchers as the first process of a container, to which the kernel delivers only the signals that it handles."""
import itertools
import pathlib
import signal
import subprocess
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "programs"))

from network import enter_namespaces, ip

enter_namespaces()
ip("link", "set", "lo", "up")

from harness import BINARY, ProgramTest, is_running

LOCKSTEP = BINARY / "bin" / "lockstep"
CASE = BINARY / "bin" / "signal_case"
FIT = (CASE, "fit", "--case.step_time", "20ms", "--case.steps", "steps", "--run_dir", "run", "--trainer.strategy", "ddp")
STARTS = {
    "one process": FIT,
    "own ranks": (*FIT, "--trainer.devices", 2),
    "lockstep run": (LOCKSTEP, "run", "--nproc-per-node", 2, *FIT),
}
# Whether /proc is that of the container, or still that of its host, which knows processes by other numbers.
PROCS = {"own /proc": ("--mount-proc", ), "the host's /proc": ()}


class FirstProcess(ProgramTest):
    def start_first(self, flags, *command):
        for name in ("steps", "run"):
            subprocess.run(["rm", "-rf", self.folder / name], check=True)
        # What a shell starts in the background ignores SIGINT, and so do its children.
        return self.start("unshare", "--pid", "--fork", "--kill-child", *flags, *command,
                          preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))

    @staticmethod
    def first_of(process):
        return int(pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text())

    def test_runs_as_any_other(self):
        for (start, command), (proc, flags) in itertools.product(STARTS.items(), PROCS.items()):
            with self.subTest(start, proc=proc):
                result = self.finish(self.start_first(flags, *command, "--trainer.max_epochs", 1))
                self.assertEqual(result.code, 0, result)

    def test_signals_end_it(self):
        for (start, command), number in itertools.product(STARTS.items(), (signal.SIGTERM, signal.SIGINT)):
            with self.subTest(start, signal=number.name):
                process = self.start_first((), *command, "--trainer.max_epochs", 1000)
                self.wait_for("steps")
                begin = time.monotonic()
                subprocess.run(["kill", f"-{number.value}", str(self.first_of(process))], check=True)
                result = self.finish(process, 30)
                self.assertEqual(result.code, 128 + number.value, result)
                self.assertLess(time.monotonic() - begin, 20)
                self.assertEqual((self.folder / "run" / "checkpoints" / "last.ckpt").exists(), number == signal.SIGTERM, result)

    def test_a_failure_ends_all(self):
        program = self.folder / "program"
        program.write_text('#!/bin/sh\n[ $RANK = 0 ] || exit 3\nsetsid sleep 60 & sleep 60\n')
        program.chmod(0o755)
        for proc, flags in PROCS.items():
            with self.subTest(proc):
                begin = time.monotonic()
                result = self.finish(self.start_first(flags, LOCKSTEP, "run", "--nproc-per-node", 2, program), 30)
                self.assertEqual(result.code, 3, result)
                self.assertLess(time.monotonic() - begin, 20)

    def test_orphans_are_waited_for(self):
        code = f'{" ".join(map(str, STARTS["own ranks"]))} --trainer.max_epochs 1000'
        process = self.start_first(("--mount-proc", ), "sh", "-c", f"(sleep 4 & sleep 4 & sleep 4 &) ; exec {code}")
        self.wait_for("steps")
        time.sleep(5)
        first = self.first_of(process)
        children = pathlib.Path(f"/proc/{first}/task/{first}/children").read_text().split()
        self.assertTrue(all(is_running(int(child)) for child in children), children)
        subprocess.run(["kill", "-TERM", str(first)], check=True)
        self.assertEqual(self.finish(process, 30).code, 143)


if __name__ == "__main__":
    unittest.main()
