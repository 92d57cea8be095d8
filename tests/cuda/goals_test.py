#!/usr/bin/env python3
"""What the goals on a GPU are measured with runs on a CPU, at tiny sizes: GPT-2's losses are those of PyTorch, and the table has them."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "programs"))
from harness import BINARY, use_peers

use_peers("lightning")

SOURCE = pathlib.Path(__file__).resolve().parents[2]
PEERS = SOURCE / "benchmarks/peers"


def lines_of(*command):
    result = subprocess.run([sys.executable, *map(str, command)], capture_output=True, text=True, timeout=400,
                            env={**os.environ, "OMP_NUM_THREADS": "1"})
    if result.returncode != 0:
        raise AssertionError(result.stderr)
    return result.stdout


class TestGoals(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.text = lines_of(PEERS / "gpt2.py", BINARY / "bin/example_11_models_from_elsewhere", "--device", "cpu", "--tiny", "--compiler", "eager")
        cls.text += lines_of(PEERS / "gpu_goals.py", "--cpu")
        rows = [json.loads(line) for line in cls.text.splitlines() if line.startswith("{")]
        cls.rows = {row.get("check") or row["peer"]: row for row in rows}

    def test_a_fine_tune_has_the_losses_of_pytorch(self):
        curve = self.rows["fine-tune of GPT-2"]
        self.assertTrue(curve["ok"], curve)
        self.assertEqual((curve["steps"], curve["device"]), (12, "cpu"))
        self.assertLess(curve["of_float32"], 1e-5, "the same model and optimizer")
        self.assertLess(curve["last_loss"], curve["first_loss"] - 0.1, "it learns")

    def test_rates_are_told(self):
        for name in ("GPT-2", "GPT-2, eager", "GPT-2, torch.compile"):
            self.assertGreater(self.rows[name]["tokens_per_second"], 0)
        self.assertGreater(self.rows["products of matrices in bfloat16"]["flops_per_second"], 0)
        self.assertEqual(self.rows["waits of Lightning's Trainer"]["per_step"], 0, "the CPU is no device that is waited for")

    def test_the_table_has_them(self):
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
            file.write(self.text)
            file.flush()
            table = lines_of(SOURCE / "tools/gpu_table.py", file.name)
        self.assertRegex(table, r"\| GPT-2 of 0\.0\d+ million parameters, tokens/s \| torch.compile \| 1x \| [\d.]+x \|")
        self.assertRegex(table, r"\| fine-tune of GPT-2, loss of the first step \| PyTorch eager \| 0\.001 \| \d\.\de[-+]\d+ \| met \|")
        self.assertRegex(table, r"\| the same, all steps \| PyTorch eager \| twice what bfloat16 changes there \([^)]+\) \| \d\.\de[-+]\d+ \| met \|")
        self.assertIn("| GPT-2 of 124.4 million parameters, tokens/s, by our kernels | torch.compile | 1x | not run |  |", table)


if __name__ == "__main__":
    unittest.main()
