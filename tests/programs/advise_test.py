"""What ranks take at their peaks is what `lockstep advise` says, for every strategy and form."""
import json
import os
import subprocess
import unittest

from harness import BINARY, ProgramTest

COMMAND = BINARY / "bin" / "lockstep"
LM = BINARY / "bin" / "example_05_fsdp_transformer"
LAYERS, WIDTH, BATCH = 12, 512, 2
BLOCK = 12 * WIDTH * WIDTH + 13 * WIDTH
FSDP_FORMS = ("FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD", "_HYBRID_SHARD_ZERO2")


def parameters(context):
    return LAYERS * BLOCK + (256 + context + 2) * WIDTH  # and tables of tokens and positions, and a norm


class Advise(ProgramTest):
    context = 128  # tokens

    def peak_mib(self, layers, width, *flags):
        """Memory of the largest rank while a language model trains, without what malloc would keep of freed blocks."""
        command = [LM, "fit", "--run_dir", self.folder / "run", "--model.layers", layers, "--model.width", width, "--model.heads", 8,
                   "--model.context", self.context, "--data.batch_size", BATCH, "--trainer.devices", 2, "--trainer.max_steps", 2,
                   "--trainer.limit_val_batches", 0, "--trainer.enable_checkpointing", "false", "--sample.tokens", 0, *flags]
        process = subprocess.Popen([str(word) for word in command], cwd=self.folder, stdout=subprocess.DEVNULL,
                                   env=self.environment(MALLOC_MMAP_THRESHOLD_="131072"))
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        self.assertEqual(process.returncode, 0, flags)
        return usage.ru_maxrss / 1024  # of the process and of its children, the most

    def advice(self, model, *flags):
        result = self.run_program(COMMAND, "advise", model, "--world", 2, "--batch", BATCH, "--context", self.context, "--json", *flags)
        self.assertEqual(result.code, 0, result)
        return {row["name"]: row for row in json.loads(result.out)["strategies"]}

    def assert_peaks(self, names, advice, *flags):
        """The peak of each, over that of the same program with a model that is next to nothing."""
        least = self.peak_mib(2, 32, *flags)
        for name in names:
            with self.subTest(name, flags=flags):
                way = [*advice[name]["flags"].split(), *flags]
                taken = self.peak_mib(LAYERS, WIDTH, *way) - least
                advised = advice[name]["peak_bytes"] / 2**20
                print(f"{name}: {taken:.0f} MiB taken, {advised:.0f} MiB advised, {advised / taken:.3f}")
                self.assertLess(abs(advised / taken - 1), 0.15, f"{taken:.0f} MiB taken, {advised:.0f} MiB advised")

    def test_ranks_take_what_is_advised(self):
        advice = self.advice(parameters(self.context), "--layers", LAYERS)
        self.assert_peaks(["ddp", *(f"fsdp {form}" for form in FSDP_FORMS), *(f"deepspeed_stage_{stage}" for stage in (1, 2, 3)),
                           "fsdp FULL_SHARD, activations computed again"], advice)

    def test_in_mixed_precision_too(self):
        self.context = 16  # as processors without AVX-512 multiply in bfloat16 at a twenty-fifth of the speed
        advice = self.advice(parameters(self.context), "--layers", LAYERS, "--precision", "bf16-mixed")
        self.assert_peaks(["ddp", "fsdp NO_SHARD", "fsdp FULL_SHARD", "deepspeed_stage_2"], advice, "--trainer.precision", "bf16-mixed")

    def test_memory_is_that_of_this_machine(self):
        host = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        result = self.run_program(COMMAND, "advise", "1M", "--world", 4, "--nodes", 2, "--json")
        self.assertEqual(result.code, 0, result)
        question = json.loads(result.out)["question"]
        self.assertRegex(question["memory_source"], r"^(this machine's memory|the memory that this control group may have): .*, shared by 2 ranks$")
        self.assertTrue(0 < question["memory_bytes"] <= host // 2, question)
        result = self.run_program(COMMAND, "advise", "1M", "--memory", "1GiB", "--json")
        self.assertNotIn("memory_source", json.loads(result.out)["question"])

        fake = {"LD_LIBRARY_PATH": str(BINARY / "tests/device")}  # a library of NVIDIA's that has devices of 16 and 24 GiB
        for visible, shown in (({}, "16 GiB"), ({"CUDA_VISIBLE_DEVICES": "1"}, "24 GiB")):
            result = self.run_program(COMMAND, "advise", "1M", "--accelerator", "gpu", **fake, **visible)
            self.assertEqual(result.code, 0, result)
            self.assertIn(f"{shown} for each (the smallest GPU that is visible on this machine)", result.out.replace(".0 GiB", " GiB"))
        result = self.run_program(COMMAND, "advise", "1M", "--accelerator", "gpu", **fake, CUDA_VISIBLE_DEVICES="")
        self.assertIn("give the memory of a rank (--memory)", result.out)

    def test_runs_and_checkpoints_are_measured(self):
        result = self.run_program(LM, "fit", "--run_dir", self.folder / "run", "--model.layers", 3, "--model.width", 64, "--trainer.max_steps", 1,
                                  "--trainer.limit_val_batches", 0, "--sample.tokens", 0, "--trainer.devices", 2)
        self.assertEqual(result.code, 0, result)
        parameters = 3 * (12 * 64 * 64 + 13 * 64) + (256 + 128 + 2) * 64
        for model in ("run", "run/checkpoints/last.ckpt", "run/checkpoints/last.ckpt/model.safetensors"):
            with self.subTest(model):
                result = self.run_program(COMMAND, "advise", self.folder / model, "--json")
                self.assertEqual(result.code, 0, result)
                question = json.loads(result.out)["question"]
                self.assertEqual((question["parameters"], question["units"], question["largest_unit"]), (parameters, 3, 12 * 64 * 64 + 13 * 64))
        (self.folder / "empty").mkdir()
        self.assert_refused(self.run_program(COMMAND, "advise", self.folder / "empty"), 1, "is no model", "run directory")


if __name__ == "__main__":
    unittest.main()
