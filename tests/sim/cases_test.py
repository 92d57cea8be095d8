#!/usr/bin/env python3
"""Training on simulated devices: the bits of the CPU, every wait in its place, and a host that never waits."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

BIN = pathlib.Path(os.environ["LOCKSTEP_BINARY_DIR"]) / "bin"
SOURCE = pathlib.Path(__file__).resolve().parents[2]
PARITY = SOURCE / "tests/parity"
ENGINES = ("fsdp", "zero1", "zero2", "zero3")
BFLOAT16 = 2**-8  # its precision, in which Muon multiplies matrices: how depends on the processor


def run(*command, **options):
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, errors="replace", timeout=300, **options)


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def case(self, name, world, *flags):
        out = self.folder / "out.json"
        result = run(BIN / "sim_case", name, "--world", world, *flags, "--out", out)
        self.assertEqual(result.returncode, 0, result.stderr)
        return json.loads(out.read_text())


class TestSteps(Case):
    """20 steps of a small network with Fabric, beside the same on CPUs."""

    references = tempfile.TemporaryDirectory()  # what CPUs give, for all runs of a case
    kernels_of_sums = set()  # of collectives that devices carry out themselves

    def case(self, name, world, *flags):
        return super().case(name, world, "--references", self.references.name, *flags)

    def check(self, name, world, *flags, captured=0, syncs=0, largest_difference=0):
        """Losses may differ by a share of their value; by nothing means that weights have equal bits, too."""
        self.found = found = self.case(name, world, *flags)
        self.assertEqual((found["failures"], found["races"]), ([], []))
        self.assertTrue(found["bits_equal_cpu"] or largest_difference > 0, found)
        self.assertLessEqual(found["largest_relative_difference_of_losses"], largest_difference, found)
        self.assertEqual((found["host_syncs_per_step"], found["segments_after_warm_up"]), (syncs, 0), found)
        self.assertEqual(found["captured_steps"], captured)

    def test_of_one_rank(self):
        for name in ("single", "bf16", "fp16", "clip"):
            with self.subTest(name):
                self.check(name, 1)

    def test_of_two_ranks(self):
        for name in ("ddp", "fsdp", "shard_grad_op", "hybrid", "hybrid_grad_op", "no_shard", "zero1", "zero2", "zero3", "bf16", "fp16",
                     "clip"):
            with self.subTest(name):
                self.check(name, 2)

    def test_by_kernels_of_our_own(self):
        """Gradients go into flat buffers many at a time, and ZeRO++ quantises by them: the bits are the same."""
        for name, world, kernels in (("ddp", 2, {"copy_scaled"}), ("fsdp", 2, {"copy_scaled"}), ("zero3", 4, {"copy_scaled"}),
                                     ("zero3_quantized", 2, {"copy_scaled", "quantize", "dequantize"}),
                                     ("zero3_plus", 4, {"copy_scaled", "quantize", "dequantize"})):
            with self.subTest(name):
                self.check(name, world, "--kernels", "own")
                self.assertEqual(set(self.found["own_launches"]), kernels | self.kernels_of_sums)
        self.check("ddp", 2, "--kernels", "own", "--capture", "true", captured=17)

    def test_under_deepspeeds_loss_scale(self):
        """Gradients overflow, the scale backs off and grows again: all that the device decides."""
        for name, world in (("zero1_fp16", 1), ("zero1_fp16", 2), ("zero2_fp16", 2), ("zero3_fp16", 2), ("zero3_fp16", 4)):
            for captured in (0, 17):
                with self.subTest(name, world=world, captured=captured):
                    self.check(name, world, "--capture", "true" if captured else "false", captured=captured)

    def test_of_four_ranks(self):
        for name in ("ddp", "fsdp", "shard_grad_op", "hybrid", "hybrid_grad_op", "no_shard", "zero1", "zero2", "zero3"):
            with self.subTest(name):
                self.check(name, 4)

    def test_of_optimizers_that_ask_other_ranks(self):
        for optimizer, difference in (("lamb", 0), ("muon", BFLOAT16)):
            for name, world in (("single", 1), ("fp16", 1), ("ddp", 2), ("fsdp", 2), ("zero2", 4)):
                for captured in (0, 17):
                    with self.subTest(optimizer, name=name, world=world, captured=captured):
                        self.check(name, world, "--optimizer", optimizer, "--capture", "true" if captured else "false",
                                   captured=captured, largest_difference=difference)

    def test_with_shards_and_optimizer_on_the_cpu_wait_for_gradients_alone(self):
        for name, world in (("fsdp_offload", 1), *((f"{engine}_offload", world) for engine in ENGINES for world in (2, 4))):
            with self.subTest(name, world=world):
                self.check(name, world, syncs=1)

    def test_with_state_on_disk_wait_for_gradients_alone(self):
        for name, world in (("fsdp_disk", 1), *((f"{engine}_disk", world) for engine in ENGINES for world in (2, 4))):
            with self.subTest(name, world=world):
                self.check(name, world, syncs=1)

    def test_whose_collectives_are_quantised(self):
        for name, world, captured in (("zero3_quantized", 2, 0), ("zero3_quantized", 4, 0), ("zero3_quantized", 2, 17), ("zero3_plus", 4, 0)):
            with self.subTest(name, world=world, captured=captured):
                self.check(name, world, "--capture", "true" if captured else "false", captured=captured)

    def test_that_cannot_be_captured_run_as_they_are(self):
        for name in ("fsdp_offload", "zero1_offload", "zero2_offload", "zero3_offload", "fsdp_disk", "zero3_disk"):
            with self.subTest(name):
                self.check(name, 2, "--capture", "true", captured=0, syncs=1)

    def test_that_are_captured(self):
        for name, world in (("captured", 1), ("captured", 2), ("captured", 4), ("bf16", 1), ("fp16", 1), ("fp16", 2), ("clip", 2),
                            ("fsdp", 2), ("no_shard", 2), ("zero1", 2), ("zero2", 2), ("zero3", 4)):
            with self.subTest(name, world=world):
                self.check(name, world, "--capture", "true", captured=17)


class TestConnectedDevices(TestSteps):
    """The same over a transport of devices, as NCCL is one."""

    def case(self, name, world, *flags):
        return super().case(name, world, "--backend", "sim", *flags)

    kernels_of_sums = {"sum_rows"}
    test_of_one_rank = None
    test_of_optimizers_that_ask_other_ranks = None


class TestMissingWaits(Case):
    """The waits of one place in the program are left out, each in its turn of those of a steady step: every one is reported."""

    def check(self, name, world, *flags):
        with self.subTest(name, world=world, flags=flags):
            found = self.case(name, world, "--drop-wait", "each", *flags)
            self.assertEqual((found["failures"], found["waits_not_found"]), ([], []))
            self.assertGreaterEqual(found["waits"], 2)

    def test_are_all_found(self):
        for name in ("ddp", "fsdp", "zero1", "zero2", "zero3"):
            self.check(name, 2)

    def test_are_all_found_where_state_is_elsewhere(self):
        for name, world in (("fsdp_offload", 1), ("fsdp_offload", 2), ("zero2_offload", 2), ("fsdp_disk", 2), ("zero2_disk", 2),
                            ("zero3_disk", 2)):
            self.check(name, world)

    def test_are_all_found_where_collectives_are_quantised(self):
        for name, world in (("zero3_quantized", 2), ("zero3_plus", 4)):
            self.check(name, world)

    def test_are_all_found_where_devices_are_connected(self):
        for name, world in (("ddp", 2), ("hybrid", 4), ("zero2", 2), ("zero3", 2), ("zero3_quantized", 2)):
            self.check(name, world, "--backend", "sim")

    def test_are_found_one_by_one(self):
        found = self.case("ddp", 2, "--drop-wait", 1)
        self.assertEqual(found["failures"], [])
        self.assertNotEqual(found["races"], [])


class TestPrograms(Case):
    """Programs of users, with --trainer.accelerator sim."""

    def weights(self, program, accelerator, devices, *flags):
        file = self.folder / f"{accelerator}.safetensors"
        result = run(BIN / program, "--trainer.accelerator", accelerator, "--trainer.devices", devices, "--seed_everything", 1,
                     "--run_dir", self.folder / accelerator, "--save_weights", file, *flags, cwd=SOURCE)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertNotIn("\nsim:", "\n" + result.stderr)
        self.output = result.stdout + result.stderr
        return file.read_bytes()

    def test_have_the_weights_of_cpus(self):
        for program, devices, flags in (
                ("sim_digits", 1, ("--trainer.max_epochs", 2)),
                ("sim_digits", 2, ("--trainer.max_epochs", 2)),
                ("sim_digits", 2, ("--trainer.max_epochs", 1, "--trainer.strategy", "fsdp", "--trainer.gradient_clip_val", 0.5)),
                ("sim_digits", 2, ("--trainer.max_epochs", 2, "--trainer.cuda_graphs", "true")),
                ("sim_language_model", 1, ("--model.size", "tiny", "--trainer.max_steps", 10, "--sample.tokens", 4)),
                ("sim_language_model", 2, ("--model.size", "tiny", "--trainer.max_steps", 5, "--sample.tokens", 4,
                                           "--trainer.strategy", "fsdp"))):
            with self.subTest(program=program, devices=devices, flags=flags):
                self.assertEqual(self.weights(program, "sim", devices, *flags), self.weights(program, "cpu", devices, *flags))

    def test_capture_their_steps_between_validations(self):
        """What validation gathers of shards is of its own moment: steps that are replayed change it behind the host's back."""
        for strategy in ("ddp", "fsdp", "deepspeed_stage_1", "deepspeed_stage_2", "deepspeed_stage_3"):
            with self.subTest(strategy):
                flags = ("--trainer.strategy", strategy, "--trainer.max_steps", 14, "--trainer.val_check_interval", 3,
                         "--trainer.log_every_n_steps", 1, "--trainer.precision", "bf16-mixed")
                captured = self.weights("sim_digits", "sim", 2, *flags, "--trainer.cuda_graphs", "true")
                rows = (self.folder / "sim/metrics.csv").read_text()
                self.assertEqual(captured, self.weights("sim_digits", "sim", 2, *flags))
                self.assertEqual(rows, (self.folder / "sim/metrics.csv").read_text())

    def test_capture_the_micro_batches_of_windows(self):
        """Windows of 3 in epochs that they do not divide, with a shorter last batch and validations amid."""
        for strategy, precision in (("ddp", "32-true"), ("ddp", "16-mixed"), ("fsdp", "32-true"), ("deepspeed_stage_1", "32-true"),
                                    ("deepspeed_stage_2", "16-mixed"), ("deepspeed_stage_3", "bf16-mixed")):
            with self.subTest(strategy, precision=precision):
                flags = ("--trainer.strategy", strategy, "--trainer.max_epochs", 2, "--trainer.accumulate_grad_batches", 3,
                         "--trainer.val_check_interval", 10, "--trainer.log_every_n_steps", 1, "--trainer.precision", precision)
                captured = self.weights("sim_digits", "sim", 2, *flags, "--trainer.cuda_graphs", "true")
                self.assertEqual(self.output.count("a step is captured"), 3, self.output)  # the first of windows, the last, and others
                rows = (self.folder / "sim/metrics.csv").read_text()
                self.assertEqual(captured, self.weights("sim_digits", "sim", 2, *flags))
                self.assertEqual(rows, (self.folder / "sim/metrics.csv").read_text())

    def test_capture_windows_whose_length_changes(self):
        flags = ("--trainer.max_epochs", 3, "--trainer.accumulate_grad_batches", "{0: 2, 1: 4, 2: 1}")
        captured = self.weights("sim_digits", "sim", 1, *flags, "--trainer.cuda_graphs", "true")
        self.assertIn("a step is captured", self.output)
        self.assertEqual(captured, self.weights("sim_digits", "cpu", 1, *flags))

    def test_run_as_they_are_where_each_loss_is_read(self):
        flags = ("--trainer.max_steps", 6, "--trainer.detect_anomaly", "true", "--trainer.log_every_n_steps", 1)
        captured = self.weights("sim_digits", "sim", 1, *flags, "--trainer.cuda_graphs", "true")
        rows = (self.folder / "sim/metrics.csv").read_text()
        self.assertEqual(captured, self.weights("sim_digits", "sim", 1, *flags))
        self.assertEqual(rows, (self.folder / "sim/metrics.csv").read_text())

    def test_capture_their_steps_and_log_the_same(self):
        rows = {}
        for captures in ("true", "false"):
            result = run(BIN / "sim_digits", "--trainer.accelerator", "sim", "--trainer.devices", 2, "--trainer.max_epochs", 1, "--seed_everything", 1,
                         "--trainer.cuda_graphs", captures, "--trainer.log_every_n_steps", 1, "--run_dir", self.folder / captures, cwd=SOURCE)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertEqual("a step is captured" in result.stdout + result.stderr, captures == "true", result.stdout + result.stderr)
            rows[captures] = (self.folder / captures / "metrics.csv").read_text()
        self.assertEqual(rows["true"], rows["false"])

    def syncs(self, steps, *flags):
        """How often rank 0 waited for its device in a run of so many steps that writes one log, by what it waited for."""
        result = run(BIN / "sim_digits", "--trainer.accelerator", "sim", "--trainer.devices", 1, "--trainer.max_steps", steps, "--seed_everything", 1,
                     "--trainer.log_every_n_steps", 1000, "--trainer.limit_val_batches", 0, "--trainer.enable_checkpointing", "false",
                     "--run_dir", self.folder / f"run_{steps}", *flags, cwd=SOURCE, env={**os.environ, "SIM_PRINTS_SYNCS": "1"})
        self.assertEqual(result.returncode, 0, result.stderr)
        return [line for line in result.stderr.splitlines() if line.startswith("host sync:")]

    def test_wait_for_the_device_no_more_often_with_more_steps(self):
        for flags in ((), ("--trainer.gradient_clip_val", 0.5), ("--trainer.precision", "bf16-mixed"),
                      ("--trainer.precision", "16-mixed"), ("--trainer.cuda_graphs", "true"),
                      ("--trainer.accumulate_grad_batches", 2),
                      ("--trainer.accumulate_grad_batches", 2, "--trainer.cuda_graphs", "true")):
            with self.subTest(flags):
                few = self.syncs(10, *flags)
                self.assertEqual(self.syncs(20, *flags), few)
                self.assertNotEqual(few, [])  # it counts at all

    def test_go_on_from_a_checkpoint_of_the_other_kind_of_device(self):
        flags = ("--trainer.max_epochs", 2)
        whole = self.weights("sim_digits", "cpu", 1, *flags)
        for first, second in (("sim", "cpu"), ("cpu", "sim")):
            with self.subTest(first):
                run(BIN / "sim_digits", "--trainer.accelerator", first, "--trainer.devices", 1, "--trainer.max_epochs", 1, "--seed_everything", 1,
                    "--run_dir", self.folder / ("part_" + first), cwd=SOURCE)
                last = self.folder / ("part_" + first) / "checkpoints/last.ckpt"
                self.assertTrue(last.is_dir())
                self.assertEqual(self.weights("sim_digits", second, 1, "--ckpt_path", last, *flags), whole)

    def test_are_refused_devices_that_are_not_there(self):
        for flags, words in ((("--trainer.devices", 5), ("4 visible sim devices", '"5"')),
                             (("--trainer.devices", "1,4"), ("not all of these are there", '"1,4"')),
                             (("--trainer.devices", "1,1"), ("named twice",))):
            with self.subTest(flags):
                result = run(BIN / "sim_digits", "--trainer.accelerator", "sim", *flags, "--run_dir", self.folder / "run", cwd=SOURCE)
                self.assertEqual(result.returncode, 2, result)
                for word in words:
                    self.assertIn(word, result.stderr)

    def test_run_on_the_devices_that_are_named(self):
        result = run(BIN / "sim_digits", "--trainer.accelerator", "sim", "--trainer.devices", "3,", "--trainer.max_epochs", 1,
                     "--run_dir", self.folder / "run", cwd=SOURCE)
        self.assertEqual(result.returncode, 0, result.stderr)


class TestParity(Case):
    """The golden runs of PyTorch, Lightning and DeepSpeed."""

    def test_holds_on_simulated_devices(self):
        for case in sorted(path.parent for path in PARITY.glob("*/expected.json")):
            with self.subTest(case.name):
                out = self.folder / case.name
                result = run(BIN / "sim_parity_case", case, out, "--trainer.accelerator", "sim")
                self.assertEqual(result.returncode, 0, result.stderr)
                self.assertNotIn("\nsim:", "\n" + result.stderr)
                compared = run(sys.executable, PARITY / "compare.py", case, out)
                self.assertEqual(compared.returncode, 0, compared.stdout)


if __name__ == "__main__":
    unittest.main()
