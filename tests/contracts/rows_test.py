#!/usr/bin/env python3
"""Contract suites have the same tests on the CPU and on simulated devices, and none of the suites is missing."""
import os
import pathlib
import re
import subprocess
import unittest

BIN = pathlib.Path(os.environ["LOCKSTEP_BINARY_DIR"]) / "bin"
DEVICE = re.compile("on(sim|privateuseone)")  # of which a name of a world speaks
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
        self.assertEqual(tests_of("sim_device_contract_tests", "DeviceContract"), on_cpu)

    def test_of_communicators_are_the_same(self):
        for prefix, suite in (("Contract", "CommunicatorMoves"), ("Ordered", "ReductionContract"), ("Fast", "ReductionContract")):
            with self.subTest(prefix):
                on_sim = tests_of("sim_contract_tests", prefix)
                self.assertGreater(len(on_sim[suite]), 3)
                self.assertEqual(tests_of("torch_tests", prefix).get(suite), on_sim[suite])


if __name__ == "__main__":
    unittest.main()
