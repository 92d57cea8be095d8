"""Collectives drawn at random, among one to eight processes, whose results every rank compares to the bit; and a hundred jobs of
them at once, which leave nothing.

LOCKSTEP_RANDOM_COLLECTIVES=N draws N of them instead of ten thousand."""
import os
import pathlib
import subprocess
import time
import unittest

import harness

CALLS = int(os.environ.get("LOCKSTEP_RANDOM_COLLECTIVES", "10000"))
# Most among few ranks, which have a processor each and so come across each other in most ways.
SHARES = {1: 2, 2: 30, 3: 24, 4: 20, 5: 8, 6: 6, 7: 5, 8: 5}  # of a hundred
ROUND = 20_000  # calls of one seed


def shared_files():
    """What has a name where programs leave such things; of what others leave there, only what could be ours."""
    ours = ("lockstep", "gloo", "torch", "comm")
    named = {path for path in pathlib.Path("/tmp").glob("*") if any(word in path.name.lower() for word in ours)}
    return named | set(pathlib.Path("/dev/shm").glob("*"))


def members_of_session(session):
    found = []
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rsplit(")", 1)[1].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[3]) == session:
            found.append(int(stat.parent.name))
    return found


class RandomCollectives(harness.ProgramTest):
    def run_seed(self, ranks, calls, seed, **variables):
        result = self.finish(self.start(harness.BINARY / "bin" / "random_collectives", ranks, calls, seed, **variables), deadline_s=3600)
        self.assertEqual(result.code, 0, f"{ranks} ranks, seed {seed}: {result}")

    def test_all_are_right_among_ranks_that_share_no_memory(self):
        for ranks in (2, 3, 4, 6):
            begin, calls = time.monotonic(), max(100, CALLS // 10)
            self.run_seed(ranks, calls, ranks, LOCKSTEP_SHARED_MEMORY="0")
            print(f"{ranks} ranks over sockets: {calls} collectives in {time.monotonic() - begin:.1f} s", flush=True)

    def test_all_are_right(self):
        for ranks, share in SHARES.items():
            begin, left, seed = time.monotonic(), CALLS * share // 100, 1
            while left > 0:
                self.run_seed(ranks, min(left, ROUND), seed)
                left, seed = left - ROUND, seed + 1
            print(f"{ranks} ranks: {CALLS * share // 100} collectives in {time.monotonic() - begin:.1f} s", flush=True)

    def test_all_are_right_among_ranks_of_several_hosts(self):
        for ranks, of_a_host in ((4, 2), (6, 2), (8, 4), (8, 2), (6, 3), (5, 2), (4, 3), (3, 1)):
            begin, calls = time.monotonic(), max(100, CALLS // 20)
            self.run_seed(ranks, calls, ranks, RANKS_OF_A_HOST=str(of_a_host))
            print(f"{ranks} ranks, {of_a_host} of a host: {calls} collectives in {time.monotonic() - begin:.1f} s", flush=True)

    def test_a_hundred_jobs_at_once_leave_nothing(self):
        before = shared_files()
        temporary = self.folder / "temporary"
        temporary.mkdir()
        command = [str(harness.BINARY / "bin" / "random_collectives"), "2", "20", "1", "100"]
        jobs = subprocess.Popen(command, env=self.environment(TMPDIR=str(temporary)), start_new_session=True, cwd=self.folder,
                                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        result = self.finish(jobs, deadline_s=600)
        self.assertEqual(result.code, 0, result)
        self.assertEqual(members_of_session(jobs.pid), [])
        self.assertEqual(list(temporary.iterdir()), [])
        self.assertEqual([path for path in self.folder.iterdir() if path != temporary], [])
        end = time.monotonic() + 20  # for what other programs have there for a while
        while shared_files() - before and time.monotonic() < end:
            time.sleep(0.1)
        self.assertEqual(shared_files() - before, set())


if __name__ == "__main__":
    unittest.main()
