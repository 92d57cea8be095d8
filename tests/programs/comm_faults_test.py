"""What ranks learn when one of them does something else, dies, stops or stays away: real processes, any
collective, any moment. LOCKSTEP_FAULT_SEEDS=N tries N seeds of each fault instead of a few."""
import json
import os
import subprocess
import unittest

import harness

SEEDS = int(os.environ.get("LOCKSTEP_FAULT_SEEDS", "3"))
WORLDS = (2, 3, 4)


def run_case(name, world, seed, backend="gloo"):
    command = [str(harness.BINARY / "bin" / "comm_case"), name, "--world", str(world), "--backend", backend, "--seed", str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return json.loads(done.stdout)


class Faults(unittest.TestCase):
    def each(self, name):
        for seed in range(SEEDS):
            world = WORLDS[seed % len(WORLDS)]
            case = run_case(name, world, seed)
            self.assertEqual([rank["rank"] for rank in case["ranks"]], list(range(world)), case)
            yield case

    def expect(self, case, error, within_ms, victim_too):
        victim = case["victim"]
        for rank in case["ranks"]:
            if rank["rank"] == victim and not victim_too:
                continue
            self.assertEqual(rank["error"], error, case)
            self.assertIn(victim, rank["named"], case)
            self.assertLess(rank["ms"], within_ms, case)

    def test_reductions_have_the_same_bits_on_all_ranks(self):
        for case in self.each("reduce"):
            self.assertEqual({rank["error"] for rank in case["ranks"]}, {""}, case)
            self.assertEqual(len({rank["result_hash"] for rank in case["ranks"]}), 1, case)
            unchecked = run_case("reduce", case["world"], case["seed"], "gloo-unchecked")
            self.assertEqual(case["ranks"][0]["result_hash"], unchecked["ranks"][0]["result_hash"])

    def test_a_mismatch_is_named_on_every_rank(self):
        for name in ("mismatch-op", "mismatch-shape", "mismatch-dtype", "mismatch-group"):
            for case in self.each(name):
                self.expect(case, "CollectiveMismatch", 2000, victim_too=True)
                self.assertEqual(len({rank["text"].split("; at rank")[0] for rank in case["ranks"]}), 1, case)

    def test_an_absent_rank_is_a_timeout_that_says_where_it_is(self):
        for case in self.each("absent"):
            self.expect(case, "Timeout", 10_000, victim_too=False)
            for rank in case["ranks"]:
                if rank["rank"] != case["victim"]:
                    self.assertIn("outside of collectives", rank["text"])

    def test_a_killed_rank_is_lost_to_all_within_a_second(self):
        for case in self.each("die"):
            self.expect(case, "PeerLost", 5000, victim_too=False)

    def test_a_stopped_rank_is_a_timeout_that_says_that_it_is_silent(self):
        for case in self.each("stop"):
            self.expect(case, "Timeout", 10_000, victim_too=False)
            for rank in case["ranks"]:
                if rank["rank"] != case["victim"]:
                    self.assertIn("does not answer", rank["text"])


if __name__ == "__main__":
    unittest.main()
