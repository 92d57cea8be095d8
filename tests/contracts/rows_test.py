#!/usr/bin/env python3
"""Contract suites have the same tests on the CPU, on simulated devices and on GPUs, and none of the suites is missing."""
import os
import pathlib
import re
import subprocess
import unittest

import contract_ranks

BIN = pathlib.Path(os.environ["LOCKSTEP_BINARY_DIR"]) / "bin"
DEVICE = re.compile("on(sim|privateuseone|cuda)")  # of which a name of a world speaks
OF_DEVICES = {"Strategies", "Precisions", "OptimizersOfTheTable", "Activations", "Loaders", "Checkpoints"}


def tests_of(program, prefix):
    """The tests of the suites whose instances have that prefix, by suite; worlds are named by their device, too."""
    listed = subprocess.run([BIN / program, "--gtest_list_tests", f"--gtest_filter={prefix}/*"], capture_output=True, text=True, check=True).stdout
    suites, suite = {}, None
    for line in listed.splitlines():
        if line.startswith(prefix + "/"):
            suite = suites.setdefault(line.strip().rstrip(".").removeprefix(prefix + "/"), set())
        elif line.startswith("  "):
            suite.add(DEVICE.sub("", line.split("#")[0].strip()))
    return suites


class TestRows(unittest.TestCase):
    def test_of_devices_are_the_same(self):
        on_cpu = tests_of("contract_tests", "DeviceContract")
        self.assertEqual(set(on_cpu), OF_DEVICES)
        for suite, tests in on_cpu.items():
            self.assertGreater(len(tests), 3, suite)
        for program in ("sim_device_contract_tests", "cuda_contract_tests"):
            self.assertEqual(tests_of(program, "DeviceContract"), on_cpu, program)

    def test_of_communicators_are_the_same(self):
        for prefix, suite in (("Contract", "CommunicatorMoves"), ("Ordered", "ReductionContract"), ("Fast", "ReductionContract")):
            with self.subTest(prefix):
                on_sim = tests_of("sim_contract_tests", prefix)
                self.assertGreater(len(on_sim[suite]), 3)
                for program in ("torch_tests", "cuda_contract_tests"):
                    self.assertEqual(tests_of(program, prefix).get(suite), on_sim[suite], program)


class TestRanks(unittest.TestCase):
    """Ranks as processes, whose devices are connected: those of NCCL are tested by the same program on a GPU."""

    def check(self, program, backend, ranks, *flags):
        found, said = contract_ranks.verdict(*contract_ranks.run(BIN / program, backend, ranks, flags))
        self.assertEqual(found, 0, said)

    def test_a_rank_that_is_alone(self):
        self.check("sim_contract_tests", "sim", 1)

    def test_two_ranks(self):
        self.check("sim_contract_tests", "sim", 2)

    def test_without_a_gpu_nothing_was_run(self):
        found, said = contract_ranks.verdict(*contract_ranks.run(BIN / "cuda_contract_tests", "nccl", 2, []))
        self.assertEqual(found, 2, said)
        self.assertIn("cuda_contract_tests: ", said)

    def test_a_backend_that_is_not_used_and_tests_that_are_missing_are_no_success(self):
        self.assertEqual(contract_ranks.verdict([0, 0], [contract_ranks.STAGED + ": two share a device\n[  PASSED  ] 3 tests.", ""])[0], 1)
        self.assertEqual(contract_ranks.verdict([0, 0], ["[  PASSED  ] 0 tests.", ""])[0], 1)
        self.assertEqual(contract_ranks.verdict([0, 1], ["[  PASSED  ] 3 tests.", "lost"]), (1, "rank 1: exit status 1\nlost"))


if __name__ == "__main__":
    unittest.main()
