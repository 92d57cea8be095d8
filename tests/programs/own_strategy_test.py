"""The example of a cluster environment and a strategy of a program's own: local SGD on the ranks of a pool."""
import json
import re
import struct
import sys
import unittest

from harness import BINARY, SOURCE, ProgramTest

EXAMPLE = SOURCE / "examples" / "06_own_environment_and_strategy"
PROGRAM = BINARY / "bin" / "example_06_own_environment_and_strategy"
ALL_GIVEN_BACK = "pool: places not given back: none\n"


def weights_of(path):
    """The float32 tensors of a safetensors file, by name."""
    data = path.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + length])
    found = {}
    for name, entry in header.items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            found[name] = struct.unpack(f"<{(end - begin) // 4}f", data[8 + length + begin:8 + length + end])
    return found


class OwnStrategy(ProgramTest):
    def setUp(self):
        super().setUp()
        self.flags = ["--train.data", SOURCE / "data" / "digits.csv.gz", "--seed_everything", 1, "--run_dir", self.folder / "run"]

    def pool(self, tasks, *flags):
        return self.run_program(sys.executable, EXAMPLE / "pool_run.py", tasks, PROGRAM, *self.flags, *flags)

    def alone(self, *flags):
        return self.run_program(PROGRAM, *self.flags, *flags)

    def check_steps(self, result, period, steps):
        self.assertEqual(result.code, 0, result)
        expected = [(str(step), "equal" if step % period == 0 else "different") for step in range(1, steps + 1)]
        self.assertEqual(re.findall(r"^.*?step (\d+): (equal|different)$", result.out, re.M), expected, result)

    def test_ranks_are_equal_after_averaging_and_differ_before(self):
        for tasks, period in ((2, 3), (3, 4)):
            with self.subTest(tasks=tasks):
                result = self.pool(tasks, "--train.period", period, "--train.watch", "true", "--trainer.max_steps", 8)
                self.check_steps(result, period, 8)
                self.assertIn(f"trained on {tasks} ranks", result.out)
                self.assertTrue(result.out.endswith(ALL_GIVEN_BACK), result)

    def test_ranks_of_its_own(self):
        result = self.alone("--trainer.devices", 2, "--train.period", 2, "--train.watch", "true", "--trainer.max_steps", 4)
        self.check_steps(result, 2, 4)

    def test_a_period_of_one_step_is_the_mean_of_gradients(self):
        weights = {}
        for name, flags in {"local": ["--train.period", 1], "ddp": ["--trainer.strategy", "ddp"]}.items():
            path = self.folder / f"{name}.safetensors"
            result = self.alone("--trainer.devices", 2, "--trainer.max_steps", 5, "--save_weights", path, *flags)
            self.assertEqual(result.code, 0, result)
            weights[name] = weights_of(path)
        self.assertEqual(weights["local"].keys(), weights["ddp"].keys())
        for name, values in weights["local"].items():
            for ours, theirs in zip(values, weights["ddp"][name], strict=True):
                self.assertAlmostEqual(ours, theirs, delta=1e-5, msg=name)

    def test_places_are_given_back_after_a_failure(self):
        result = self.pool(2, "--fault.kind", "throw", "--fault.rank", 1, "--fault.step", 2)
        self.assertNotEqual(result.code, 0, result)
        self.assertTrue(result.out.endswith(ALL_GIVEN_BACK), result)

    def test_settings_that_disagree_with_the_pool(self):
        self.assertIn("devices * num_nodes = 2", self.pool(2, "--trainer.devices", 3).err)


if __name__ == "__main__":
    unittest.main()
