"""The `lockstep` command, and readers in Python, on checkpoints that ranks wrote."""

import os
import subprocess

import unittest

from harness import BINARY, PEERS_PYTHON, SOURCE, ProgramTest

COMMAND = BINARY / "bin" / "lockstep"
CASE = BINARY / "bin" / "resume_case"


class Inspect(ProgramTest):
    def setUp(self):
        super().setUp()
        result = self.run_program(CASE, "fit", "--run_dir", self.folder / "run", "--trainer.strategy", "ddp", "--trainer.devices", 2,
                                  "--save_weights", self.folder / "weights.safetensors", "--case.save_dir", self.folder,
                                  "--seed_everything", 1, "--case.save_at", "batch_end:1,batch_end:2")
        self.assertEqual(result.code, 0, result)
        self.last = self.folder / "run" / "checkpoints" / "last.ckpt"

    def test_shows_what_there_is(self):
        result = self.run_program(COMMAND, "inspect", self.last)
        self.assertEqual(result.code, 0, result)
        for text in ("epoch 3, step 33, 2 ranks, strategy ddp", "model/layers.0.weight: F32 [16, 8] 512 bytes in model.safetensors",
                     "loops/global_step: 33", "ranks/1/random/cpu", "every checksum fits"):
            self.assertIn(text, result.out)

    def test_a_run_directory_is_told_its_checkpoint(self):
        result = self.run_program(COMMAND, "inspect", self.folder / "run")
        self.assert_refused(result, 1, "is no checkpoint", f"its checkpoint is {self.last}")

    def test_shows_how_two_differ(self):
        one, two = self.folder / "batch_end:1.ckpt", self.folder / "batch_end:2.ckpt"
        self.assertEqual(self.run_program(COMMAND, "inspect", one, "--diff", one).code, 0)
        result = self.run_program(COMMAND, "inspect", one, "--diff", two)
        self.assertEqual(result.code, 1, result)
        self.assertIn("- loops/batches: 2\n+ loops/batches: 3\n", result.out)
        self.assertIn("+ model/layers.0.weight: F32 [16, 8] ", result.out)
        self.assertNotIn("hyper_parameters", result.out)

    def test_shows_which_options_of_two_runs_differ(self):
        other = self.folder / "other"
        result = self.run_program(CASE, "fit", "--run_dir", other, "--seed_everything", 1, "--trainer.max_epochs", 2, "--trainer.gradient_clip_val", 0.5)
        self.assertEqual(result.code, 0, result)
        for one, two in ((self.folder / "run", other), (self.last, other / "checkpoints" / "last.ckpt")):
            with self.subTest(one):
                result = self.run_program(COMMAND, "inspect", one, "--diff", two)
                self.assertEqual(result.code, 1, result)
                lines = result.out.splitlines()
                for line in ("- hyper_parameters/trainer.max_epochs: 3", "+ hyper_parameters/trainer.max_epochs: 2",
                             "- hyper_parameters/trainer.gradient_clip_val: null", "+ hyper_parameters/trainer.gradient_clip_val: 0.5",
                             "- hyper_parameters/trainer.strategy.name: ddp", "- loops/epoch: 3", "+ loops/epoch: 2"):
                    self.assertIn(line, lines)
                self.assertFalse([line for line in lines if "run_dir" in line or "log_every_n_steps" in line], lines)
        self.assertEqual(self.run_program(COMMAND, "inspect", other, "--diff", other).code, 0)

    def test_shows_how_two_files_of_weights_differ(self):
        weights, first = self.folder / "weights.safetensors", self.folder / "first.safetensors"
        self.assertEqual(self.run_program(COMMAND, "consolidate", self.folder / "batch_end:1.ckpt", first).code, 0)
        self.assertEqual(self.run_program(COMMAND, "inspect", weights, "--diff", weights).code, 0)
        result = self.run_program(COMMAND, "inspect", weights, "--diff", first)
        self.assertEqual(result.code, 1, result)
        self.assertIn("+ layers.0.weight: F32 [16, 8] ", result.out)

    def test_an_empty_name_is_no_checkpoint_of_the_folder(self):
        other = self.folder / "other.safetensors"
        for words in (("inspect", ""), ("consolidate", "", other), ("zero-to-fp32", "", other), ("consolidate", self.last, ""),
                      ("inspect", self.last, "--diff", "")):
            with self.subTest(words):
                self.assert_refused(self.run_program(COMMAND, *words, cwd=self.last.parent), 2, "is empty")
        self.assertFalse(other.exists())

    def test_does_not_wait_for_who_writes_to_a_pipe(self):
        pipe, folder = self.folder / "pipe", self.folder / "of pipes"
        folder.mkdir()
        for path in (pipe, folder / "latest"):
            os.mkfifo(path)
        for words in (("inspect", pipe), ("inspect", self.last, "--diff", pipe)):
            self.assert_refused(self.run_program(COMMAND, *words), 1, f"'{pipe}' is no checkpoint", "a pipe")
        self.assert_refused(self.run_program(COMMAND, "inspect", folder), 1, "latest' cannot be read")

    def test_says_what_is_damaged(self):
        model = self.last / "model.safetensors"
        data = bytearray(model.read_bytes())
        data[-1] ^= 4
        model.write_bytes(data)
        result = self.run_program(COMMAND, "inspect", self.last)
        self.assertEqual(result.code, 1, result)
        self.assertIn("model.safetensors: tensor model/", result.err)

    def test_makes_one_file(self):
        file = self.folder / "one.safetensors"
        result = self.run_program(COMMAND, "consolidate", self.last, file)
        self.assertEqual(result.code, 0, result)
        code = ("import sys, torch; from safetensors.torch import load_file as load\n"
                "a, b = load(sys.argv[1]), load(sys.argv[2])\n"
                "assert a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a), (a.keys(), b.keys())")
        subprocess.run([PEERS_PYTHON, "-c", code, file, self.folder / "weights.safetensors"], check=True)
        refused = self.run_program(COMMAND, "consolidate", self.last, file, "--entry", "nothing")
        self.assertEqual(refused.code, 1)
        self.assertIn("model, optimizer", refused.err)
        for name in ("one.pt", "one"):
            self.assert_refused(self.run_program(COMMAND, "consolidate", self.last, name), 2, "NAME.safetensors", name, "zero-to-fp32")
            self.assertFalse((self.folder / name).exists())
        for verb in ("consolidate", "zero-to-fp32"):
            own = self.last / "model.safetensors"
            self.assert_refused(self.run_program(COMMAND, verb, self.last, own), 2, own, "which the checkpoint is made of")
        self.assertEqual(self.run_program(COMMAND, "inspect", self.last).code, 0)

    def test_a_few_lines_of_python_read_it(self):
        reader = SOURCE / "examples" / "05_checkpoints" / "read_checkpoint.py"
        code = ("import pathlib, sys; sys.path.insert(0, sys.argv[1])\n"
                "import read_checkpoint, safetensors.numpy\n"
                "tensors, state, ranks = read_checkpoint.read_checkpoint(pathlib.Path(sys.argv[2]))\n"
                "weights = safetensors.numpy.load_file(sys.argv[3])\n"
                "assert all((tensors['model/' + k] == v).all() for k, v in weights.items())\n"
                "assert state['loops']['global_step'] == 33 and len(ranks) == 2")
        subprocess.run([PEERS_PYTHON, "-c", code, reader.parent, self.last, self.folder / "weights.safetensors"], check=True)
        subprocess.run(["xxh128sum", "--check", "manifest.xxh128"], cwd=self.last, check=True, stdout=subprocess.DEVNULL) \
            if _has("xxh128sum") else None

    def test_names_of_folders_may_be_any_bytes(self):
        run_dir = self.folder / "caf\udce9"  # one byte, as Latin-1 has it
        result = self.run_program(CASE, "fit", "--run_dir", run_dir)
        self.assertEqual(result.code, 0, result)
        reader = SOURCE / "examples" / "05_checkpoints" / "read_checkpoint.py"
        code = ("import pathlib, sys; sys.path.insert(0, sys.argv[1])\n"
                "import read_checkpoint\n"
                "tensors, state, ranks = read_checkpoint.read_checkpoint(pathlib.Path(sys.argv[2]))\n"
                "assert 'caf\\udce9' in state['hyper_parameters'], state['hyper_parameters']")
        subprocess.run([PEERS_PYTHON, "-c", code, reader.parent, run_dir / "checkpoints" / "last.ckpt"], check=True)

    def test_usage_is_told(self):
        self.assertEqual(self.run_program(COMMAND).code, 2)
        self.assertEqual(self.run_program(COMMAND, "inspect").err, "lockstep: CHECKPOINT is required; see lockstep inspect --help\n")
        result = self.run_program(COMMAND, "inspect", "a", "--diff")
        self.assertEqual((result.code, result.err), (2, "lockstep: flag --diff needs a value; see lockstep inspect --help\n"))
        for words, text in ((("inspcet", "a"), 'got "inspcet"; did you mean inspect?'), (("inspect", "a", "--dif", "b"), "flag --dif is not known; "
                            "did you mean --diff?"), (("inspect", "a", "b"), '"b" is one too many'), ((), "expected one of inspect, ")):
            self.assert_refused(self.run_program(COMMAND, *words), 2, text)
        self.assertEqual(self.run_program(COMMAND, "--version").code, 0)
        self.assertEqual(self.run_program(COMMAND, "inspect", self.folder).code, 1)


def _has(program):
    import shutil
    return shutil.which(program) is not None


if __name__ == "__main__":
    unittest.main()
