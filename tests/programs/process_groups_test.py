"""The tutorial's programs (examples/10_process_groups), spawned and started by hand, and what keeps ranks from joining."""
import re
import socket
import sys
import time
import unittest

from harness import BINARY, SOURCE, ProgramTest, free_port

SOON_S = 15  # a busy machine; the timeout is 30 minutes


class ProcessGroups(ProgramTest):
    def start_by_hand(self, program, port, *flags, **environment):
        """As in a shell: MASTER_ADDR=localhost MASTER_PORT=... program flags"""
        return self.start(BINARY / "bin" / program, *flags, MASTER_ADDR="localhost", MASTER_PORT=str(port), **environment)

    def in_two_shells(self, program, *flags):
        port = free_port()
        ranks = [self.start_by_hand(program, port, f"--rank={rank}", "--world-size=2", *flags) for rank in range(2)]
        results = [self.finish(rank) for rank in ranks]
        for result in results:
            self.assertEqual(result.code, 0, result)
        return results

    def spawned(self, program, *flags):
        result = self.run_program(BINARY / "bin" / program, *flags)
        self.assertEqual(result.code, 0, result)
        self.assertEqual(result.err, "")
        return result

    def norm_of_equal_weights(self, out):
        found = re.search(r"^Weights are equal on all ranks; their norm is ([\d.]+)$", out, re.M)
        self.assertTrue(found, out)
        return found.group(1)


class Tutorial(ProcessGroups):
    def test_join(self):
        results = self.in_two_shells("procgroup_join")
        self.assertEqual([r.out for r in results], [f"Rank {rank} has joined the process group!\n" for rank in range(2)])

    def test_join_waits_for_the_other(self):
        port = free_port()
        first = self.start_by_hand("procgroup_join", port, "--rank=1", "--world-size=2")
        time.sleep(1)
        self.assertIsNone(first.poll())
        second = self.start_by_hand("procgroup_join", port, "--rank=0", "--world-size=2")
        self.assertEqual([self.finish(first).code, self.finish(second).code], [0, 0])

    def test_join_by_the_environment_alone(self):
        port = free_port()
        ranks = [self.start_by_hand("procgroup_join", port, RANK=str(rank), WORLD_SIZE="2") for rank in range(2)]
        for rank, process in enumerate(ranks):
            self.assertEqual(self.finish(process).out, f"Rank {rank} has joined the process group!\n")

    def test_join_at_an_address_and_in_a_file(self):
        for place in (f"tcp://localhost:{free_port()}", f"file://{self.folder}/meeting"):
            ranks = [self.start(BINARY / "bin" / "procgroup_join", f"--init-method={place}?rank={rank}&world_size=2")
                     for rank in range(2)]
            for process in ranks:
                self.assertEqual(self.finish(process).code, 0)
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_spawn(self):
        lines = self.spawned("dist_mpspawn", "--world-size=4").out.splitlines()
        self.assertEqual(sorted(lines), [f"Process {rank} has joined the process group!" for rank in range(4)])

    def test_spawn_by_hand(self):
        results = self.in_two_shells("dist_mpspawn")
        self.assertEqual([r.out for r in results], [f"Process {rank} has joined the process group!\n" for rank in range(2)])

    def test_train(self):
        for program in ("dist_train_manual", "dist_train_hooks"):
            with self.subTest(program):
                spawned = self.spawned(program, "--world-size=2", "--num-iter=5", "--check")
                self.assertTrue(spawned.out.endswith("Finished training!\n"), spawned)
                by_hand = self.in_two_shells(program, "--num-iter=5", "--check")
                norms = {self.norm_of_equal_weights(r.out) for r in (spawned, by_hand[0])}
                self.assertEqual(len(norms), 1, norms)

    def test_train_prints_as_the_tutorial(self):
        self.assertEqual(self.spawned("dist_train_manual", "--world-size=3").out, "Finished training!\n")
        iterations = "".join(f"Iteration {i}/10\n" for i in range(1, 11))
        self.assertEqual(self.spawned("dist_train_hooks", "--world-size=3").out, iterations + "Finished training!\n")

    def test_buckets(self):
        out = self.spawned("dist_train_buckets", "--world-size=2", "--num-iter=5", "--layers=3", "--width=16", "--bucket-mb=0.001").out
        times = re.findall(r"^(.+?) +([\d.]+) ms$", out, re.M)
        self.assertEqual([way for way, _ in times], ["nothing is averaged", "each gradient, afterwards", "each gradient, in its hook",
                                                     "buckets, afterwards", "buckets, while backward runs", "ls::Ddp"], out)
        self.assertTrue(all(float(ms) > 0 for _, ms in times), out)

    def test_batch_norm(self):
        for world_size in (1, 3):
            out = self.spawned("dist_batch_norm", f"--world-size={world_size}").out
            differences = {way: (float(outputs), float(gradients)) for way, outputs, gradients in
                           re.findall(r"^(.+): outputs differ by (\S+), gradients by (\S+)$", out, re.M)}
            for way in ("by hand", "ls::SyncBatchNorm"):
                self.assertLess(max(differences[way]), 1e-5, out)
            self.assertEqual(min(differences["each rank by itself"]) > 0.1, world_size > 1, out)

    def test_sampler(self):
        for world_size, size in ((2, 10), (3, 10), (3, 1)):
            out = self.spawned("dist_sampler", f"--world-size={world_size}", f"--size={size}", "--epochs=2").out
            self.assertTrue(out.endswith("The indices are those of ls::DistributedSampler.\n"), out)
            for epoch in range(2):
                ranks = [line.split(":")[1].split() for line in out.splitlines() if line.startswith(f"epoch {epoch}, ")]
                self.assertEqual([len(indices) for indices in ranks], [-(-size // world_size)] * world_size, out)
                self.assertEqual({int(index) for indices in ranks for index in indices}, set(range(size)), out)

    def test_own_ddp_has_the_bits_of_ours(self):
        for flags in (("--world-size=2",), ("--world-size=3", "--num-iter=20"), ("--world-size=2", "--accumulate=3")):
            with self.subTest(flags):
                out = self.spawned("dist_train_ddp", *flags, "--check").out
                self.assertIn("OwnDdp and ls::Ddp: 9 tensors, the same bits\n", out)
                self.norm_of_equal_weights(out)
        for result in self.in_two_shells("dist_train_ddp", "--num-iter=3"):
            self.assertEqual(result.err, "")
        folder = SOURCE / "examples" / "10_process_groups"
        lines = sum(len((folder / name).read_text().splitlines()) for name in ("bucket.h", "own_ddp.h"))
        self.assertLessEqual(lines, 150)

    def test_flags(self):
        self.assert_refused(self.run_program(BINARY / "bin" / "dist_mpspawn"), 2, "flag --world-size is required", ">= 1", "none")
        self.assert_refused(self.run_program(BINARY / "bin" / "dist_mpspawn", "--world-sice=2"), 2, "--world-size")
        self.assertIn("--num-iter", self.spawned("dist_train_manual", "--help").out)


class Refusals(ProcessGroups):
    """Ranks that can never form a group say so at once, all of them, and name the reason."""

    def refused(self, *ranks, port=None):
        """Starts ranks with the flags given; all must fail soon after the last one came. Returns their results."""
        port = port or free_port()
        processes = [self.start_by_hand("procgroup_join", port, *flags) for flags in ranks[:-1]]
        time.sleep(1)
        began = time.monotonic()
        processes.append(self.start_by_hand("procgroup_join", port, *ranks[-1]))
        results = [self.finish(process) for process in processes]
        took = time.monotonic() - began
        for result in results:
            self.assertIn(result.code, (1, 2), result)
            self.assertEqual(len(result.err.splitlines()), 1, result)
        self.assertLess(took, SOON_S)
        print(f"{self.id()}: all ranks refused after {took:.2f} s", file=sys.stderr)
        return results

    def test_a_rank_that_joins_twice(self):
        for result in self.refused(*[(f"--rank={rank}", "--world-size=3") for rank in (1, 1, 0)]):
            self.assert_refused(result, 1, "rank 1 joined twice", "pid", "check the rank")

    def test_two_rank_zeros(self):
        for result in self.refused(*[(f"--rank={rank}", "--world-size=3") for rank in (1, 0, 0)]):
            self.assert_refused(result, 1, "rank 0 joined twice", "pid", "check the rank")

    def test_different_world_sizes(self):
        for result in self.refused(("--rank=1", "--world-size=3"), ("--rank=0", "--world-size=2")):
            self.assert_refused(result, 1, "disagree on the number of ranks", "2 on rank 0", "3 on rank 1", "pid")

    def test_a_rank_out_of_range(self):
        port = free_port()
        waiting = self.start_by_hand("procgroup_join", port, "--rank=0", "--world-size=2")
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:  # until it listens
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        refused, = self.refused(("--rank=2", "--world-size=2"), port=port)
        self.assert_refused(refused, 2, "rank is out of range", "0 to 1", "got 2")
        self.assert_refused(self.finish(waiting, SOON_S), 1, "rank 2 (", "cannot join", "0 to 1")

    def test_a_port_of_another_program(self):
        with socket.socket() as other:
            other.bind(("", 0))
            other.listen()
            port = other.getsockname()[1]
            refused, = self.refused(("--rank=0", "--world-size=2"), port=port)
            self.assert_refused(refused, 1, f"port {port}", "taken", "choose another port")

    def test_missing_and_malformed_variables(self):
        place = {"MASTER_ADDR": "localhost", "MASTER_PORT": "29500", "RANK": "0", "WORLD_SIZE": "2"}
        for name in place:
            given = {key: value for key, value in place.items() if key != name}
            result = self.run_program(BINARY / "bin" / "procgroup_join", **given)
            self.assert_refused(result, 2, f"environment variable {name}", "unset")
        result = self.run_program(BINARY / "bin" / "procgroup_join", **(place | {"MASTER_PORT": "http"}))
        self.assert_refused(result, 2, "environment variable MASTER_PORT", '"http"')

    def test_spawning_in_a_rank(self):
        result = self.run_program(BINARY / "bin" / "dist_mpspawn", "--world-size=2", MASTER_ADDR="localhost", LOCAL_RANK="0")
        self.assert_refused(result, 2, "launcher")


if __name__ == "__main__":
    unittest.main(argv=sys.argv)
