"""Every way into the library, by every way in which ranks are started: without stdin, stdout or stderr, by hand, and with an error."""
import itertools
import os
import socket
import subprocess
import unittest

from harness import BINARY, DIGITS, SOURCE, ProgramTest

CASE = BINARY / "bin" / "entry_case"
LOCKSTEP = BINARY / "bin" / "lockstep"
ENTRIES = ("run", "run_fabric", "run_rank", "fabric", "trainer")
STARTS_OWN = ("run", "run_fabric", "spawn", "fabric", "trainer")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class EntryTest(ProgramTest):
    def start_case(self, *words, launcher=(), **variables):
        return self.start(*launcher, CASE, *words, **variables)

    def launched(self, *words):
        return self.start_case(*words, launcher=(LOCKSTEP, "run", "--nproc-per-node", 2))


class ClosedDescriptors(EntryTest):
    """As under daemons, and `ssh host 'program <&- >&- 2>&- &'`."""
    SUBSETS = [subset for size in range(4) for subset in itertools.combinations(range(3), size)]

    def commands(self):
        yield "own ranks", [CASE, "run", "never", "2"]
        yield "spawn", [CASE, "spawn", "never", "2"]
        yield "lockstep run", [LOCKSTEP, "run", "--nproc-per-node", "2", CASE, "run_rank"]

    def test_all_subsets_of_closed_ones(self):
        for name, command in self.commands():
            for subset in self.SUBSETS:
                with self.subTest(name, closed=subset):
                    def close(subset=subset):
                        for fd in subset:
                            os.close(fd)
                    result = self.finish(self.start(*command, preexec_fn=close), 40)
                    self.assertEqual(result.code, 0, result)
                    self.assertEqual("world of 2" in result.out, 1 not in subset, result)

    def test_what_is_written_lands_in_no_file_of_the_run(self):
        result = self.finish(self.start(DIGITS, "fit", "--data.file", SOURCE / "data" / "digits.csv.gz", "--trainer.max_epochs", "1",
                                        "--run_dir", "run", preexec_fn=lambda: os.closerange(0, 3)))
        self.assertEqual(result.code, 0, result)
        for file in (self.folder / "run").rglob("*"):
            if file.is_file():
                self.assertNotIn(b"Total params", file.read_bytes(), file)

    def test_a_program_without_them_has_none_of_ours_there(self):
        program = 'for fd in 0 1 2; do readlink /proc/self/fd/$fd; done > "$0"'
        process = subprocess.Popen([LOCKSTEP, "run", "--nproc-per-node", "1", "/bin/sh", "-c", program, self.folder / "fds"], env=self.environment(),
                                   preexec_fn=lambda: os.closerange(0, 3))
        self.assertEqual(process.wait(40), 0)
        stdin, own, stderr = (self.folder / "fds").read_text().split()
        self.assertEqual((stdin, own), ("/dev/null", str(self.folder / "fds")))
        self.assertTrue(stderr.startswith(("/dev/null", "pipe:")), stderr)


if __name__ == "__main__":
    unittest.main()
