"""Every way into the library, by every way in which ranks are started: without stdin, stdout or stderr, by hand, and with an error."""
import itertools
import os
import resource
import signal
import subprocess
import time
import unittest

from harness import BINARY, DIGITS, SOURCE, ProgramTest, free_port

CASE = BINARY / "bin" / "entry_case"
LOCKSTEP = BINARY / "bin" / "lockstep"
ENTRIES = ("run", "run_fabric", "run_rank", "fabric", "trainer", "group")
STARTS_OWN = ("run", "run_fabric", "spawn", "fabric", "trainer")


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


class OpenFiles(EntryTest):
    """A limit that is too low is named, before anybody waits for anything."""
    COMMANDS = ((CASE, "run", "never", 2), (CASE, "spawn", "never", 2), (CASE, "trainer", "never", 2),
                (LOCKSTEP, "run", "--nproc-per-node", 2, CASE, "run_rank"))

    def limited(self, limit, command):
        begin = time.monotonic()
        result = self.finish(self.start(*command, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))), 40)
        self.assertLess(time.monotonic() - begin, 20)
        return result

    def test_a_low_limit(self):
        for command in self.COMMANDS:
            for limit in range(10, 40, 2):
                with self.subTest(command[:2], limit=limit):
                    result = self.limited(limit, command)
                    if result.code == 0:
                        self.assertEqual(result.out.count("world of 2"), 2)
                        break
                    self.assertRegex(result.err, r"the limit of open files \(ulimit -n\) is too low for .*expected at least \d+.*got \d+.*ulimit -n 4096")

    def test_a_soft_limit_is_raised(self):
        for command in self.COMMANDS:
            result = self.finish(self.start(*command, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (10, 4096))), 40)
            self.assertEqual((result.code, result.out.count("world of 2")), (0, 2), result)


class StartedByHand(EntryTest):
    """RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, without a launcher."""
    def by_hand(self, entry, rank, world_size, port, **more):
        place = dict(RANK=rank, WORLD_SIZE=world_size, MASTER_ADDR="127.0.0.1", MASTER_PORT=port) | more
        return self.start_case(entry, **{name: str(value) for name, value in place.items() if value is not None})

    def test_ranks_join(self):
        for entry in ENTRIES:
            with self.subTest(entry):
                port = free_port()
                for process in [self.by_hand(entry, rank, 2, port) for rank in range(2)]:
                    result = self.finish(process)
                    self.assertEqual(result.code, 0, result)
                    self.assertIn("world of 2", result.out)

    def test_wrong_places_are_refused_by_name(self):
        rows = (
            (dict(rank=5), ("RANK", "5", "WORLD_SIZE - 1")),
            (dict(rank="x"), ("RANK", '"x"', "an integer")),
            (dict(rank=-1), ("RANK", '"-1"')),
            (dict(world_size="two"), ("WORLD_SIZE", '"two"')),
            (dict(world_size=0), ("WORLD_SIZE", '"0"', ">= 1")),
            (dict(world_size=None), ("WORLD_SIZE", "unset")),
            (dict(rank=None), ("RANK", )),
            (dict(MASTER_ADDR=None), ("MASTER_ADDR", "unset")),
            (dict(port=None), ("MASTER_PORT", "unset")),
            (dict(port=70000), ("MASTER_PORT", "70000", "65535")),
            (dict(LOCAL_RANK=2), ("LOCAL_RANK", '"2"')),
            (dict(rank=None, world_size=None, NODE_RANK=1), ("NODE_RANK", "num_nodes")),
            (dict(rank=None, world_size=2, LOCAL_RANK=0), ("WORLD_SIZE", "2")),
        )
        for entry in ("run", "trainer", "fabric", "run_fabric"):
            for changes, words in rows:
                with self.subTest(entry, **changes):
                    place = dict(rank=0, world_size=2, port=29555) | changes
                    result = self.finish(self.by_hand(entry, **place), 30)
                    self.assertNotEqual(result.code, 0, result)
                    for word in words:
                        self.assertIn(word, result.err)

    def test_the_only_rank_of_a_world_may_start_others(self):
        result = self.run_program(CASE, "run", "never", 2, RANK="0", WORLD_SIZE="1")
        self.assertEqual((result.code, result.out.count("world of 2")), (0, 2), result)


class Errors(EntryTest):
    """What a rank has thrown is said, whoever has started it."""
    def assert_said(self, result, in_one_line):
        self.assertNotEqual(result.code, 0, result)
        self.assertIn("the disk is full", result.err, result)
        if in_one_line:
            self.assertRegex(result.err, r"lockstep: .*rank 1 \(.*(failed|killed by SIGABRT).*: the disk is full")

    def test_under_lockstep_run(self):
        for entry, when in itertools.product(ENTRIES, ("before", "after")):
            with self.subTest(entry, when=when):
                # What main() lets out before it has met the library ends the rank by SIGABRT; its text is among the last lines.
                result = self.finish(self.launched(entry, when))
                self.assert_said(result, in_one_line=entry.startswith("run") or when == "after")
                self.assertIn("the disk is full", result.err[result.err.index("lockstep: "):], result)

    def test_a_rank_that_ends_with_code_0_before_it_joins(self):
        for entry, launched in (*((entry, True) for entry in ENTRIES), *((entry, False) for entry in STARTS_OWN)):
            with self.subTest(entry, launched=launched):
                result = self.finish(self.launched(entry, "gone") if launched else self.start_case(entry, "gone", 2), 20)
                self.assertEqual(result.code, 1, result)
                self.assertRegex(result.err, r"lockstep: .*rank 1 \(.*exited with code 0 .*; rank 0 waits for it to join")

    def test_a_rank_that_is_killed_is_named_rather_than_its_echo(self):
        for entry in ("run_rank", "group"):
            with self.subTest(entry):
                result = self.finish(self.launched(entry, "echo"))
                self.assertEqual(result.code, 128 + signal.SIGKILL, result)
                self.assertRegex(result.err, r"(?m)^lockstep: rank 1 .*killed by SIGKILL after barrier")

    def test_a_program_that_never_joins(self):
        self.assertEqual(self.finish(self.start(LOCKSTEP, "run", "--nproc-per-node", 2, "sh", "-c", "sleep $RANK")).code, 0)

    def test_by_own_ranks(self):
        for entry, when in itertools.product(STARTS_OWN, ("before", "after")):
            with self.subTest(entry, when=when):
                self.assert_said(self.finish(self.start_case(entry, when, 2)), in_one_line=entry in ("run", "run_fabric", "spawn") or when == "after")


if __name__ == "__main__":
    unittest.main()
