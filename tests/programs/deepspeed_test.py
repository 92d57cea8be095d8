"""Strategy deepspeed: every stage has the bits of ddp, from arguments and from DeepSpeed's own JSON."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

from harness import BINARY, DIGITS, SOURCE, ProgramTest

CASE = BINARY / "bin" / "resume_case"
ZERO_CASE = BINARY / "bin" / "zero_case"
COMMAND = BINARY / "bin" / "lockstep"
DEMO = BINARY / "bin" / "lockstep-demo"
LM = BINARY / "bin" / "example_05_fsdp_transformer"
WINDOWS = ["--trainer.accumulate_grad_batches", 2, "--trainer.gradient_clip_val", 0.5]

# A file as tutorials show it.
TUTORIAL = """{
  "zero_optimization": {
    "stage": 2,
    "offload_optimizer": {
      "device": "cpu",
      "pin_memory": true
    },
    "allgather_bucket_size": 2e8,
    "reduce_bucket_size": 2e8
  },
  "activation_checkpointing": {
    "partition_activations": true,
    "cpu_checkpointing": true
  },
  "fp16": {
    "enabled": true
  },
  "gradient_clipping": 1.0
}
"""


def strategy(name, ranks, **options):
    flags = ["--trainer.strategy", name, "--trainer.devices", ranks]
    for key, value in options.items():
        flags += [f"--trainer.strategy.{key}", value]
    return flags


class DeepSpeed(ProgramTest):
    def train(self, name, *flags, program=CASE):
        weights = self.folder / f"{name}.safetensors"
        result = self.run_program(program, "fit", "--seed_everything", 5, "--run_dir", self.folder / name, "--save_weights", weights,
                                  *flags)
        self.assertEqual(result.code, 0, result)
        self.assertNotIn("training goes on", result.err)
        return weights.read_bytes()

    def checkpoint_of(self, name):
        return self.folder / name / "checkpoints" / "last.ckpt"

    def summary(self, name):
        return json.loads((self.folder / name / "summary.json").read_text())

    def config(self, text):
        path = self.folder / "ds_config.json"
        path.write_text(text if isinstance(text, str) else json.dumps(text))
        return path

    def test_every_stage_gives_the_bits_of_ddp(self):
        carry = ["--trainer.partial_window", "carry"]
        for ranks in (2, 4):
            size = ["--case.batch_size", 8 // ranks]
            at_the_end = self.train(f"ddp_{ranks}", *WINDOWS, *carry, *size, *strategy("ddp", ranks))
            each_time = self.train(f"ddp_each_{ranks}", *WINDOWS, *carry, *size, *strategy("ddp", ranks, reduce_every_micro_batch="true"))
            for stage, expected in ((0, at_the_end), (1, at_the_end), (2, each_time), (3, each_time)):
                with self.subTest(stage=stage, ranks=ranks):
                    got = self.train(f"stage_{stage}_{ranks}", *WINDOWS, *size, *strategy("deepspeed", ranks, stage=stage))
                    self.assertEqual(got, expected)
            for stage, expected in ((1, at_the_end), (2, each_time), (3, each_time)):
                with self.subTest(stage=stage, ranks=ranks, offload="nvme"):
                    parameters = {"offload_parameters": "true", "offload_params_device": "nvme"} if stage == 3 else {}
                    got = self.train(f"nvme_{stage}_{ranks}", *WINDOWS, *size, *strategy(
                        "deepspeed", ranks, stage=stage, offload_optimizer="true", offload_optimizer_device="nvme",
                        nvme_path=self.folder, **parameters))
                    self.assertEqual(got, expected)
        self.assertEqual(list(self.folder.glob("lockstep-swap*")), [])

    def test_the_file_of_the_tutorials_trains(self):
        file = self.config(TUTORIAL)
        for ranks in (2, 4):
            with self.subTest(ranks=ranks):
                self.train(f"digits_{ranks}", *strategy("deepspeed", ranks, config=file), "--trainer.max_epochs", 1, "--data.file", SOURCE / "data" / "digits.csv.gz", program=DIGITS)
                summary = self.summary(f"digits_{ranks}")
                self.assertEqual(summary["strategy"], "deepspeed")
                self.assertGreater(summary["metrics"]["val_accuracy"], 0.5)
                self.train_lm(f"lm_{ranks}", *strategy("deepspeed", ranks, config=file))
        result = self.finish(self.start(DEMO, "--run_dir", self.folder / "demo", *strategy("deepspeed", 2, config=file), cwd=SOURCE))
        self.assertEqual(result.code, 0, result)

    def train_lm(self, name, *flags):
        self.train(name, *flags, "--model.size", "tiny", "--trainer.max_steps", 3, "--trainer.limit_val_batches", 1, "--sample.tokens", 0, program=LM)
        self.assertEqual(self.summary(name)["strategy"], "deepspeed")

    def test_the_forms_of_the_tutorials_train(self):
        for ranks in (2, 4):
            for name, options in (("deepspeed_stage_1", {}), ("deepspeed_stage_2", {}), ("deepspeed_stage_2_offload", {}), ("deepspeed_stage_3", {}),
                                  ("deepspeed_stage_3_offload", {}), ("deepspeed", {"stage": 3, "offload_optimizer": "true", "offload_parameters": "true"})):
                with self.subTest(name=name, ranks=ranks):
                    self.train_lm(f"{name}_{ranks}", *strategy(name, ranks, **options), "--trainer.precision", "16-mixed")

    def test_the_environment_may_name_the_file(self):
        file = self.config({"zero_optimization": {"stage": 7}})
        result = self.finish(self.start(CASE, "fit", "--run_dir", self.folder / "run", *strategy("deepspeed", 2),
                                        LOCKSTEP_DEEPSPEED_CONFIG_PATH=str(file)))
        self.assert_refused(result, 2, "ds_config.json", "stage", "7")

    def test_wrong_files_are_refused_with_their_place(self):
        for text, words in (('{\n  "zero_optimization": {"stage": 4}\n}', (":2:", "stage", "4")),
                            ('{"fp16": {"enabled": true}, "bf16": {"enabled": true}}', ("fp16", "bf16")),
                            ('{"zero_optimization": {"stge": 2}}', ("stge", "stage")),
                            ('{"train_batch_size": 33, "train_micro_batch_size_per_gpu": 17}', ("33", "17")),
                            ('{"zero_optimization": {"stage": 3, "offload_param": {"device": "nvme"}}}', ("nvme_path",)),
                            ("{", (":1:",))):
            with self.subTest(text):
                result = self.run_program(CASE, "fit", "--run_dir", self.folder / "run", *strategy("deepspeed", 2, config=self.config(text)))
                self.assert_refused(result, 2, *words)

    def test_flags_that_disagree_with_the_file_are_named(self):
        file = self.config({"gradient_clipping": 1.0, "gradient_accumulation_steps": 2, "bf16": {"enabled": True}})
        for flags, words in ((["--trainer.gradient_clip_val", 0.5], ("gradient_clipping", "gradient_clip_val", "1", "0.5")),
                             (["--trainer.accumulate_grad_batches", 3],
                              ("gradient_accumulation_steps", "accumulate_grad_batches", "2", "3")),
                             (["--trainer.precision", "16-mixed"], ("bf16", "precision"))):
            with self.subTest(flags):
                result = self.run_program(CASE, "fit", "--run_dir", self.folder / "run", *strategy("deepspeed", 2, config=file), *flags)
                self.assert_refused(result, 2, "ds_config.json", *words)

    def test_a_typo_is_noted_and_training_goes_on(self):
        file = self.config({"zero_optimisation": {"stage": 3}})
        result = self.run_program(CASE, "fit", "--run_dir", self.folder / "run", *strategy("deepspeed", 2, config=file),
                                  "--trainer.max_steps", 1)
        self.assertEqual(result.code, 0, result)
        self.assertIn("zero_optimization", result.err)

    def test_checkpoints_go_from_stage_to_stage_and_to_other_strategies(self):
        ways = {
            "ddp": strategy("ddp", 2, reduce_every_micro_batch="true"),
            "fsdp": strategy("fsdp", 2, state_dict_type="sharded"),
            "stage_2": strategy("deepspeed", 2, stage=2),
            "stage_3": strategy("deepspeed", 2, stage=3),
            "stage_3_full": strategy("deepspeed", 2, stage=3, state_dict_type="full"),
        }
        expected = self.train("whole", *ways["ddp"])
        for name, flags in ways.items():
            self.train(f"half_{name}", *flags, "--trainer.max_epochs", 1)
        for source in ways:
            for target in ("ddp", "stage_3") if source.startswith("stage") else ("stage_2", "stage_3"):
                if source == target:
                    continue
                with self.subTest(f"{source} to {target}"):
                    got = self.train(f"{source}_{target}", *ways[target], "--ckpt_path", self.checkpoint_of(f"half_{source}"))
                    self.assertEqual(got, expected)

    def test_what_was_trained_in_bfloat16_is_evaluated_in_bfloat16(self):
        flags = [*strategy("deepspeed_stage_3", 2), "--trainer.precision", "bf16-true", "--data.file", SOURCE / "data" / "digits.csv.gz"]
        self.train("bf16", *flags, "--trainer.max_epochs", 1, program=DIGITS)
        for name, chosen in (("deepspeed", flags), ("ddp", [*strategy("ddp", 2), *flags[4:]])):
            with self.subTest(name):
                result = self.run_program(DIGITS, "validate", "--run_dir", self.folder / name, "--ckpt_path", self.checkpoint_of("bf16"),
                                          *chosen)
                self.assertEqual(result.code, 0, result)

    def test_an_open_window_goes_on_in_its_stage_only(self):
        windows = ["--trainer.accumulate_grad_batches", 2]  # of 11 batches
        self.train("half", *windows, *strategy("deepspeed", 2, stage=1), "--trainer.max_epochs", 1)
        result = self.run_program(CASE, "fit", "--run_dir", self.folder / "run", *windows, *strategy("deepspeed", 2, stage=3),
                                  "--ckpt_path", self.checkpoint_of("half"))
        self.assert_refused(result, 1, "inside of a window", "stage")

    def test_what_the_file_says_of_batches_disks_and_clipping_must_hold(self):
        nvme = {"device": "nvme", "nvme_path": str(self.folder)}
        for text, flags, words in (
                ({"train_micro_batch_size_per_gpu": 16}, [], ("train_micro_batch_size_per_gpu", "16", "4")),
                ({"train_batch_size": 64}, [], ("train_batch_size (", "64 != 4 x 1 x 2")),
                ({"train_batch_size": 64, "gradient_accumulation_steps": 4}, [], ("train_batch_size (", "64 != 4 x 4 x 2")),
                ({"gradient_accumulation_steps": 2}, ["--trainer.accumulate_grad_batches", "{0: 2, 1: 4}"],
                 ("accumulate_grad_batches", "gradient_accumulation_steps (", "{0: 2, 1: 4}")),
                ({"zero_optimization": {"stage": 3, "offload_param": nvme, "offload_optimizer": {**nvme, "nvme_path": "/other"}}}, [],
                 ("offload_param.nvme_path", "/other")),
                ({"gradient_clipping": 0.5}, ["--trainer.gradient_clip_algorithm", "value"], ("gradient_clipping", "gradient_clip_algorithm"))):
            with self.subTest(text):
                result = self.run_program(CASE, "fit", "--run_dir", self.folder / "run", *strategy("deepspeed", 2, config=self.config(text)), *flags)
                self.assert_refused(result, 2, *words)

    def peak_mib(self, layers, *flags):
        """Memory of the largest rank while a language model trains, without what malloc would keep of freed blocks."""
        command = [LM, "fit", "--run_dir", self.folder / "peak", "--model.layers", layers, "--model.width", 512, "--model.heads", 8,
                   "--model.context", 32, "--data.batch_size", 1, "--trainer.max_steps", 2, "--trainer.limit_val_batches", 0,
                   "--trainer.enable_checkpointing", "false", "--sample.tokens", 0, *flags]
        process = subprocess.Popen([str(word) for word in command], cwd=self.folder, stdout=subprocess.DEVNULL,
                                   env=self.environment(MALLOC_MMAP_THRESHOLD_="131072"))
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        self.assertEqual(process.returncode, 0)
        return usage.ru_maxrss / 1024  # of the process and of its children, the most

    def estimated_gb(self, column, *arguments):
        text = self.run_program(BINARY / "bin" / "lockstep", "estimate-memory", *arguments, "--world", 2, "--offload", "none").out
        return float(re.findall(r"([\d.]+)GB", text.split("lockstep on CPUs")[1])[column])

    def test_ranks_take_what_is_estimated(self):
        layer = 12 * 512 * 512 + 13 * 512  # parameters of a block
        live = self.config({"gradient_clipping": "auto", "zero_optimization": {
            "stage": 3, "stage3_max_live_parameters": 0, "stage3_param_persistence_threshold": 0}})
        bf16 = ["--trainer.precision", "bf16-mixed"]
        for column, stage, flags in ((0, 1, strategy("deepspeed_stage_1", 2)), (0, 3, strategy("deepspeed", 2, config=live)),
                                     (1, 2, strategy("deepspeed_stage_2", 2) + bf16)):
            with self.subTest(stage):
                few, many = (self.peak_mib(layers, *flags) for layers in (4, 12))
                taken = (many - few) * 2**20 / (8 * layer)  # bytes for each parameter
                estimated = self.estimated_gb(column, 2**30, "--stage", stage, *(["--largest-layer", 1] if stage == 3 else []))
                self.assertLess(abs(taken / estimated - 1), 0.15, f"{taken:.2f} bytes, estimated {estimated}")

    def test_models_are_measured_where_their_weights_lie(self):
        self.train("run", *strategy("ddp", 2), "--trainer.max_steps", 1)
        # Linear(8, 16), a batch normalisation, Linear(16, 1), and a buffer.
        expected = self.run_program(COMMAND, "estimate-memory", 8 * 16 + 16 + 4 * 16 + 16 + 1 + 1, "--stage", 3, "--largest-layer", 8 * 16 + 16)
        for model in (self.folder / "run.safetensors", self.checkpoint_of("run")):
            with self.subTest(model=model):
                result = self.run_program(COMMAND, "estimate-memory", model, "--stage", 3)
                self.assertEqual((result.code, result.out), (0, expected.out), result)
        (self.folder / "tagged").mkdir()
        (self.folder / "tagged" / "global_step1").symlink_to(self.checkpoint_of("run"))
        (self.folder / "tagged" / "latest").write_text("global_step1")
        result = self.run_program(COMMAND, "estimate-memory", self.folder / "tagged", "--stage", 3)
        self.assertEqual((result.code, result.out), (0, expected.out), result)
        result = self.run_program(COMMAND, "estimate-memory")
        self.assert_refused(result, 2, "MODEL is required", "--largest-layer", "estimate of the memory")
        result = self.run_program(COMMAND, "estimate-memory", self.folder / "missing.safetensors")
        self.assert_refused(result, 2, "MODEL", "missing.safetensors", "checkpoint")

    def test_no_layer_is_larger_than_its_model(self):
        result = self.run_program(BINARY / "bin" / "lockstep", "estimate-memory", "124M", "--stage", 3, "--largest-layer", "125M")
        self.assert_refused(result, 2, "--largest-layer", "124000000", "125000000")

    def stage_3(self, **options):
        # Units come and go, and nothing is too small for them.
        always = {"stage": 3, "stage3_param_persistence_threshold": 0, "stage3_max_live_parameters": 0}
        return self.config({"zero_optimization": always | options, "gradient_clipping": 1.0})

    def test_secondary_shards_keep_the_bits(self):
        windows = ["--trainer.accumulate_grad_batches", 2]
        got = [self.train(f"hpz_{size}", *windows, *strategy("deepspeed", 4, config=self.stage_3(zero_hpz_partition_size=size)))
               for size in (1, 2)]
        self.assertEqual(got[0], got[1])

    def test_what_travels_in_few_bits_resumes_with_the_same_bits(self):
        flags = strategy("deepspeed", 2, config=self.stage_3(zero_quantized_weights=True, zero_quantized_gradients=True))
        whole = self.train("whole", *flags)
        self.train("half", *flags, "--trainer.max_epochs", 1)
        self.assertEqual(self.train("rest", *flags, "--ckpt_path", self.checkpoint_of("half")), whole)

    def test_what_travels_in_few_bits_trains_as_well(self):
        all_of_it = {"zero_quantized_weights": True, "zero_quantized_gradients": True, "zero_hpz_partition_size": 2,
                     "zeropp_loco_param": {"err_beta": 0.8, "reset_T": 1024}}
        ways = {"plain": {}, "qwz": {"zero_quantized_weights": True}, "qgz": {"zero_quantized_gradients": True}, "all": all_of_it}
        losses = {}
        for name, options in ways.items():
            self.train(name, *strategy("deepspeed", 4, config=self.stage_3(**options)), "--model.size", "tiny", "--data.batch_size", 8,
                       "--trainer.max_steps", 50, "--trainer.val_check_interval", 50, "--trainer.limit_val_batches", 8,
                       "--sample.tokens", 0, program=LM)
            losses[name] = self.summary(name)["metrics"]["val_loss"]
        for name, loss in losses.items():
            with self.subTest(name):
                self.assertLess(loss, 1.02 * losses["plain"])
                self.assertEqual(loss == losses["plain"], name == "plain")

    def test_neighbours_that_do_not_fit_the_ranks_are_named(self):
        result = self.run_program(CASE, "fit", "--run_dir", self.folder / "run",
                                  *strategy("deepspeed", 4, config=self.stage_3(zero_hpz_partition_size=3)))
        self.assert_refused(result, 2, "zero_hpz_partition_size", "ds_config.json", "4 ranks", "3")

    def test_optimizers_of_whole_tensors_give_the_bits_of_ddp(self):
        for optimizer in ("lamb", "muon"):
            flags = ["--optimizer.name", optimizer, "--trainer.max_epochs", 1, "--trainer.limit_train_batches", 8, "--trainer.limit_val_batches", 0,
                     "--data.file", SOURCE / "data" / "digits.csv.gz"]
            expected = self.train(f"ddp_{optimizer}", *flags, *strategy("ddp", 2), program=DIGITS)
            for name in ("fsdp", "deepspeed_stage_1", "deepspeed_stage_3"):
                with self.subTest(f"{optimizer} under {name}"):
                    self.assertEqual(self.train(f"{name}_{optimizer}", *flags, *strategy(name, 2), program=DIGITS), expected)
            with self.subTest(f"{optimizer} on disk"):
                on_disk = strategy("deepspeed_stage_3_offload_nvme", 2, nvme_path=self.folder)
                self.assertEqual(self.train(f"disk_{optimizer}", *flags, *on_disk, program=DIGITS), expected)
            longer = ["--trainer.max_epochs", 2]
            expected = self.train(f"longer_{optimizer}", *flags, *longer, *strategy("ddp", 2), program=DIGITS)
            self.assertEqual(self.train(f"resumed_{optimizer}", *flags, *longer, *strategy("ddp", 2), "--ckpt_path",
                                        self.checkpoint_of(f"deepspeed_stage_3_{optimizer}"), program=DIGITS), expected)

    def test_muons_momentum_may_stay_in_memory(self):
        found = set()
        for in_memory in (False, True):
            file = self.config({"optimizer": {"type": "Muon", "params": {"lr": 0.01}}, "zero_optimization": {
                "stage": 2, "save_muon_momentum_buffer_in_memory": in_memory,
                "offload_optimizer": {"device": "nvme", "nvme_path": str(self.folder)}}})
            weights = self.folder / f"{in_memory}.safetensors"
            result = self.run_program(CASE, "fit", "--run_dir", self.folder / str(in_memory), "--save_weights", weights, "--seed_everything", 5,
                                      *strategy("deepspeed", 2, config=file), "--case.has_optimizer", "false", "--trainer.max_steps", 3)
            self.assertEqual(result.code, 0, result)
            found.add((weights.read_bytes(), len(re.findall("offload: .* holds", result.err))))
        self.assertEqual(len({bits for bits, _ in found}), 1)
        self.assertEqual({files for _, files in found}, {2, 1})  # of matrices, and of what AdamW moves

    def test_arguments_beside_a_file_must_say_the_same(self):
        file = self.config({"zero_optimization": {"stage": 3}, "fp16": {"enabled": True}, "gradient_accumulation_steps": 2})
        refused = (
            (strategy("deepspeed_stage_2", 2, config=file), ("strategy.stage", "zero_optimization.stage (", "stage = 2", "= 3")),
            (strategy("deepspeed", 2, config=file, overlap_comm="false"), ("strategy.overlap_comm", "zero_optimization.overlap_comm")),
            ([*strategy("deepspeed", 2, config=file), "--trainer.precision", "32-true"], ("fp16.enabled (", "precision")),
            ([*strategy("deepspeed", 2, config=file), "--trainer.precision", "16-mixed", "--trainer.precision.init_scale", 8],
             ("precision.init_scale", "initial_scale_power")),
            ([*strategy("deepspeed", 2, config=file), "--trainer.accumulate_grad_batches", 1],
             ("gradient_accumulation_steps (", "accumulate_grad_batches", "2 and 1")),
            ([*strategy("deepspeed", 2, config=file), "--trainer.partial_window", "accumulated"], ("partial_window", "carry")),
        )
        for flags, words in refused:
            with self.subTest(flags):
                self.assert_refused(self.run_program(CASE, "fit", "--run_dir", self.folder / "run", *flags), 2, *words)

    def test_the_environment_is_in_config_yaml(self):
        file = self.config({"zero_optimization": {"stage": 3}})
        step = ["--trainer.max_steps", 1, "--run_dir", self.folder / "run"]
        environment = {"LOCKSTEP_DEEPSPEED_CONFIG_PATH": str(file)}
        result = self.run_program(CASE, "fit", *step, *strategy("deepspeed_stage_1", 2), **environment)
        self.assert_refused(result, 2, "strategy.stage", "zero_optimization.stage (")
        self.assertEqual(self.run_program(CASE, "fit", *step, *strategy("deepspeed", 2), **environment).code, 0)
        saved = self.folder / "run" / "config.yaml"
        self.assertIn(str(file), saved.read_text())
        self.assertEqual(self.run_program(CASE, "fit", "-c", saved, "--run_dir", self.folder / "again").code, 0)

    def test_fabric_clips_and_says_what_is_the_programs_own(self):
        def save(name, clipping):
            file = self.config({"zero_optimization": {"stage": 3}, **clipping, "train_micro_batch_size_per_gpu": 4, "steps_per_print": 1,
                                "wall_clock_breakdown": False})
            result = self.run_program(ZERO_CASE, "save", "--case.dir", self.folder / name, "--fabric.devices", 2,
                                      "--fabric.strategy", "deepspeed", "--fabric.strategy.config", file)
            self.assertEqual(result.code, 0, result)
            self.assertEqual(result.err.count("steps_per_print"), 1, result)
            self.assertNotIn("wall_clock_breakdown", result.err)
            self.assertEqual(result.err.count("train_micro_batch_size_per_gpu"), 1, result)
            self.assertIn("no effect under Fabric", result.err)
            return self.folder / name / "global_step3"

        plain, off = save("plain", {}), save("off", {"gradient_clipping": 0})
        for name, clipping, like in (("one", 1.0, plain), ("wide", 1e9, off)):
            self.assertEqual(self.run_program(COMMAND, "inspect", save(name, {"gradient_clipping": clipping}), "--diff", like).code, 0)
        self.assertEqual(self.run_program(COMMAND, "inspect", plain, "--diff", off).code, 1)

    def test_flags_of_fabric_must_say_what_the_file_says(self):
        file = self.config({"zero_optimization": {"stage": 3}, "fp16": {"enabled": True}})
        fabric = ["--case.dir", self.folder / "case", "--fabric.devices", 2, "--fabric.strategy.config", file]
        for flags, words in ((["--fabric.strategy", "deepspeed_stage_2"], ("strategy.stage", "zero_optimization.stage (", "stage = 2", "= 3")),
                             (["--fabric.strategy", "deepspeed", "--fabric.precision", "32-true"], ("fp16.enabled (", "precision"))):
            with self.subTest(flags):
                self.assert_refused(self.run_program(ZERO_CASE, "save", *fabric, *flags), 2, "ds_config.json", *words)

    def test_progress_times_and_monitors_of_the_file(self):
        monitor = {"enabled": True, "output_path": str(self.folder / "monitors"), "job_name": "job"}
        file = self.config({"zero_optimization": {"stage": 2}, "fp16": {"enabled": True, "loss_scale": 64}, "gradient_accumulation_steps": 2,
                            "steps_per_print": 2, "wall_clock_breakdown": True, "csv_monitor": monitor, "tensorboard": monitor})
        flags = [*strategy("deepspeed", 2, config=file), "--trainer.enable_progress_bar", "false"]
        result = self.run_program(CASE, "fit", "--run_dir", self.folder / "run", *flags, "--trainer.max_steps", 4)
        self.assertEqual(result.code, 0, result)
        self.assertNotIn("no effect", result.err)
        self.assertEqual(re.findall(r"\[Rank 0\] step=(\d+), skipped=0, lr=\[[\d.e-]+\], mom=\[.+\]\n", result.out), ["2", "4"])
        # The first two steps are not measured.
        self.assertEqual(re.findall(r"epoch=0/micro_step=(\d+)/global_step=(\d+), RunningAvgSamplesPerSec=[\d.e+]+, CurrSamplesPerSec=[\d.e+]+, "
                                    r"MemAllocated=[\d.]+GB, MaxMemAllocated=[\d.]+GB\n", result.out), [("8", "4")])
        for suffix, count in (("_microstep", 8), ("", 4)):
            times = re.findall(rf"\[Rank 0\] time \(ms\) \| fwd{suffix}: ([\d.]+) \| bwd{suffix}: ([\d.]+) \| step{suffix}: ([\d.]+)\n", result.out)
            self.assertEqual(len(times), count, result)
            self.assertTrue(all(float(forward) > 0 and float(backward) > 0 for forward, backward, _ in times), times)
        # 4 samples on each of 2 ranks, 2 micro-batches.
        job = self.folder / "monitors" / "job"
        self.assertEqual((job / "Train_Samples_loss_scale.csv").read_text(), "step,loss_scale\n16,64\n32,64\n48,64\n64,64\n")
        self.assertEqual([line.split(",")[0] for line in (job / "Train_Samples_lr.csv").read_text().splitlines()], ["step", "16", "32", "48", "64"])
        for part in ("forward", "backward", "step"):
            self.assertEqual(len((job / f"Train_Samples_elapsed_time_ms_{part}.csv").read_text().splitlines()), 5)
        events = list(job.glob("events.out.tfevents.*"))
        self.assertEqual(len(events), 1)
        self.assertIn(b"Train/Samples/loss_scale", events[0].read_bytes())
        # A run that goes on counts on.
        result = self.run_program(CASE, "fit", "--run_dir", self.folder / "more", *flags, "--trainer.max_steps", 5, "--ckpt_path",
                                  self.checkpoint_of("run"))
        self.assertEqual(result.code, 0, result)
        self.assertEqual((job / "Train_Samples_loss_scale.csv").read_text().splitlines()[4:], ["64,64", "80,64"])

    def test_what_a_step_computes(self):
        page = self.folder / "flops" / "page.txt"
        file = self.config({"zero_optimization": {"stage": 3}, "dump_state": True, "memory_breakdown": True,
                            "flops_profiler": {"enabled": True, "profile_step": 2, "output_file": str(page)}})
        flags = [*strategy("deepspeed", 2, config=file), "--trainer.enable_progress_bar", "false"]
        result = self.run_program(CASE, "fit", "--run_dir", self.folder / "run", *flags, "--trainer.max_steps", 4)
        self.assertEqual(result.code, 0, result)
        self.assertNotIn("no effect", result.err)
        text = page.read_text()
        self.assertIn("Profile Summary at step 3:\n", text)
        values = dict(re.findall(r"^(\S.*?): +(\S.*)$", text, re.MULTILINE))
        self.assertEqual((values["world size"], values["batch size per GPU"]), ("2", "4"), text)
        # The model's, of which each rank holds half: 8 x 16 and 16 x 1 with biases, and a batch normalisation.
        self.assertEqual(values["params per GPU"], str(8 * 16 + 16 + 2 * 16 + 16 + 1), text)
        self.assertEqual(values["fwd MACs per GPU"], f"{4 * (8 * 16 + 16)} MACs", text)
        for name in ("fwd latency", "bwd latency", "step latency", "iter latency"):
            self.assertRegex(values[name], r"^[\d.e+-]+ [mu]?s *$", text)
        self.assertIn("(fwd+bwd latency): ", text)
        self.assertRegex(text, r"depth 0:\n    params      - \{'\w+': '")
        self.assertRegex(text, r"(?m)^  +\(.+\): Linear\(\d+ = [\d.]+% Params, .* = [\d.]+% MACs, .*s = [\d.]+% latency, .*FLOPS\)$")
        # Those were counted once, the times printed for every step.
        self.assertEqual(len(re.findall(r"time \(ms\) \| fwd: ", result.out)), 4, result)
        self.assertIn('DeepSpeedEngine configuration:\n{', result.out)
        self.assertIn('"profile_step": 2', result.out)
        page.unlink()
        more = self.run_program(CASE, "fit", "--run_dir", self.folder / "more", *flags, "--trainer.max_steps", 6, "--ckpt_path", self.checkpoint_of("run"))
        self.assertEqual(more.code, 0, more)
        self.assertFalse(page.exists(), "step 3 was before")
        for when in ("before forward", "after forward", "before backward", "after backward", "before step", "after step"):
            memory = re.findall(rf"Engine {when}\nMA ([\d.]+) GB         Max_MA ([\d.]+) GB\nCPU Virtual Memory:  used = [\d.]+ GB, percent = [\d.]+%\n",
                                result.out)
            self.assertEqual(len(memory), 4, (when, result))
            self.assertTrue(all(0 < float(now) <= float(most) for now, most in memory), memory)

    def test_what_collectives_take(self):
        config = {"zero_optimization": {"stage": 1}, "comms_logger": {"enabled": True, "verbose": True, "prof_all": False, "prof_ops": ["reduce_scatter"]}}
        flags = ["--trainer.enable_progress_bar", "false", "--trainer.max_steps", 3]
        result = self.run_program(CASE, "fit", "--run_dir", self.folder / "run", *strategy("deepspeed", 2, config=self.config(config)), *flags)
        self.assertEqual(result.code, 0, result)
        ops = re.findall(r"comm op: (\w+) \| time \(ms\): ([\d.]+) \| msg size: \d+\.\d+ [KM]?B \| algbw \(Gbps\): [\d.]+ \| busbw \(Gbps\): [\d.]+\n", result.out)
        self.assertGreaterEqual(len(ops), 3, result)
        self.assertEqual({name for name, _ in ops}, {"reduce_scatter"})
        table = result.out[result.out.index("Comm. Op            Message Size        Count"):].splitlines()
        self.assertEqual(table[1], "reduce_scatter")
        counts = [int(line.split()[2]) for line in table[2:] if line.startswith(" " * 20)]
        self.assertEqual(sum(counts), len(ops), result)

        config["comms_logger"]["prof_ops"] = ["reduce_scater"]
        result = self.run_program(CASE, "fit", "--run_dir", self.folder / "typo", *strategy("deepspeed", 2, config=self.config(config)), *flags)
        self.assert_refused(result, 2, "comms_logger.prof_ops", "reduce_scater", "reduce_scatter")

    def test_optimizers_of_the_file_that_are_not_used_are_said(self):
        file = self.config({"optimizer": {"type": "AdamW", "params": {"lr": 0.5}}, "scheduler": {"type": "WarmupLR"},
                            "bf16": {"enabled": True, "check_grad_overflow": True}, "zero_optimization": {"stage": 3}})
        result = self.run_program(CASE, "fit", "--run_dir", self.folder / "run", *strategy("deepspeed", 2, config=file), "--trainer.max_steps", 1)
        self.assertEqual(result.code, 0, result)
        for key in ("optimizer (", "scheduler (", "check_grad_overflow ("):
            self.assertEqual(len(re.findall(f"{re.escape(key)}.*no effect", result.err)), 1, (key, result))

    def rates(self, config, *flags, steps=8):
        """What rank 0 prints, and the learning rate of each step, of a module that leaves optimizer and schedule to the file."""
        monitor = {"enabled": True, "output_path": str(self.folder), "job_name": "monitor"}
        file = self.config({"csv_monitor": monitor, **config})
        result = self.run_program(CASE, "fit", "--run_dir", self.folder / "run", *strategy("deepspeed", 2, config=file), "--case.has_optimizer", "false",
                                  "--trainer.max_steps", steps, *flags)
        self.assertEqual(result.code, 0, result)
        table = self.folder / "monitor" / "Train_Samples_lr.csv"
        rates = [float(line.split(",")[1]) for line in table.read_text().splitlines()[1:]]
        table.unlink()
        self.assertEqual(len(rates), steps)
        return result, rates

    def test_optimizer_and_schedule_of_the_file_train(self):
        adam = {"type": "AdamW", "params": {"lr": 0.02, "betas": "auto", "weight_decay": "auto"}}
        warmup = {"type": "WarmupDecayLR", "params": {"total_num_steps": "auto", "warmup_max_lr": "auto", "warmup_num_steps": 4,
                                                      "warmup_type": "linear"}}
        for stage in range(4):
            with self.subTest(stage=stage):
                result, rates = self.rates({"zero_optimization": {"stage": stage}, "optimizer": adam, "scheduler": warmup})
                self.assertNotIn("no effect", result.err)
                self.assertEqual([round(rate, 6) for rate in rates], [0, 0.005, 0.01, 0.015, 0.02, 0.015, 0.01, 0.005])
                loss = self.summary("run")["metrics"]["train_loss_step"]
        cycle = {"type": "OneCycle", "params": {"cycle_min_lr": 0.01, "cycle_max_lr": 0.03, "cycle_first_step_size": 4}}
        result, rates = self.rates({"optimizer": adam, "scheduler": cycle, "steps_per_print": 4})
        self.assertEqual([round(rate, 6) for rate in rates], [0.015, 0.02, 0.025, 0.03, 0.025, 0.02, 0.015, 0.01])
        self.assertIn("mom=[[0.8, 0.99]]", result.out)
        result, _ = self.rates({"optimizer": {"type": "SGD", "params": {"lr": 0.01}}, "scheduler": cycle})
        self.assertEqual(result.err.count("cycle_momentum has no effect"), 1, result)
        # Another optimizer trains otherwise.
        self.assertNotEqual(self.summary("run")["metrics"]["train_loss_step"], loss)

    def test_steps_that_are_not_taken_are_none_of_the_schedules(self):
        warmup = {"type": "WarmupLR", "params": {"warmup_max_lr": 0.1, "warmup_num_steps": 4, "warmup_type": "linear"}}
        adam = {"type": "Adam", "params": {"lr": 0.1}}
        # With hysteresis 4 a scale of 2^127 backs off from the fourth overflow on: no step is taken.
        for precision in ({"fp16": {"enabled": True, "initial_scale_power": 127, "hysteresis": 4}}, {}):
            with self.subTest(precision=precision):
                _, rates = self.rates({"optimizer": adam, "scheduler": warmup, **precision})
                self.assertEqual(rates[-1], 0 if precision else 0.1)

    def test_what_the_file_leaves_open_is_filled_and_said(self):
        adam = {"type": "AdamW", "params": dict.fromkeys(("lr", "betas", "eps", "weight_decay"), "auto")}
        warmup = {"type": "WarmupLR", "params": {**dict.fromkeys(("warmup_min_lr", "warmup_max_lr", "warmup_num_steps"), "auto"), "warmup_type": "linear"}}
        open_file = {"optimizer": adam, "scheduler": warmup, "train_batch_size": "auto", "zero_optimization": {"stage": 2}}
        key = r"scheduler\.params\.warmup_num_steps \(\S*ds_config.json:1:\d+\) is "
        for flags, expected, said in (
                ({}, [0, 0.0005, 0.001, 0.001], "0, as the strategy has no warmup_steps and no warmup_ratio"),
                ({"warmup_steps": 4, "learning_rate": 0.02}, [0, 0.005, 0.01, 0.015], "4, warmup_steps of the strategy"),
                ({"warmup_ratio": 1.0, "learning_rate": 0.02}, [0, 0.005, 0.01, 0.015], "4, warmup_ratio of the strategy, 1 of 4 steps")):
            with self.subTest(said):
                words = [word for name, value in flags.items() for word in (f"--trainer.strategy.{name}", value)]
                result, rates = self.rates(open_file, *words, steps=4)
                self.assertEqual([round(rate, 6) for rate in rates], expected)
                self.assertEqual(len(re.findall(key + re.escape(said), result.err)), 1, result)
                self.assertIn("train_micro_batch_size_per_gpu is 4, the training loader's batch_size", result.err)
        result = self.run_program(CASE, "fit", "--run_dir", self.folder / "run", *strategy("deepspeed", 2, config=self.config({}), warmup_steps=4))
        self.assert_refused(result, 2, "strategy.warmup_steps", "scheduler.params.warmup_num_steps", "auto")

    def test_what_a_run_does_not_use_of_a_file_is_not_in_its_way(self):
        steps = ["--trainer.max_steps", 3]
        plain = self.train("plain", *strategy("deepspeed", 2, config=self.config({"zero_optimization": {"stage": 1}})), *steps)
        for optimizer in ({"type": "OneBitAdam", "params": {"freeze_step": 2}}, {"type": "Adam", "params": {"max_grad_norm": 1}},
                          {"type": "Adam", "params": {"bias_correction": False}}, {"type": "Adafactor"}):
            with self.subTest(optimizer):
                file = self.config({"zero_optimization": {"stage": 1}, "optimizer": optimizer, "scheduler": {}})
                weights = self.folder / "unused.safetensors"
                result = self.run_program(CASE, "fit", "--seed_everything", 5, "--run_dir", self.folder / "unused", "--save_weights", weights,
                                          *strategy("deepspeed", 2, config=file), *steps)
                self.assertEqual((result.code, weights.read_bytes()), (0, plain), result)
                self.assertEqual(result.err.count("has no effect"), 1, result)
        result = self.run_program(CASE, "fit", "--run_dir", self.folder / "run", "--case.has_optimizer", "false", *strategy(
            "deepspeed", 2, config=self.config({"optimizer": {"type": "OneBitAdam"}})))
        self.assert_refused(result, 2, "ds_config.json:1:", "OneBitAdam", "has removed the 1-bit optimizers")

    def test_adam_may_leave_its_means_uncorrected(self):
        for kind in ("Adam", "Lamb"):
            found = {}
            for corrects in (True, False):
                for stage in (0, 3):
                    file = self.config({"optimizer": {"type": kind, "params": {"lr": 0.01, "bias_correction": corrects}},
                                        "zero_optimization": {"stage": stage}, "zero_allow_untested_optimizer": True})
                    found[corrects, stage] = self.train("run", *strategy("deepspeed", 2, config=file), "--case.has_optimizer", "false",
                                                        "--trainer.max_steps", 3)
            with self.subTest(kind):
                self.assertEqual(found[False, 0], found[False, 3])
                self.assertNotEqual(found[False, 0], found[True, 0])

    def test_steps_that_are_not_taken_are_said(self):
        file = self.config({"fp16": {"enabled": True, "initial_scale_power": 127, "hysteresis": 100}})
        result = self.run_program(CASE, "fit", "--run_dir", self.folder / "run", *strategy("deepspeed", 2, config=file), "--trainer.max_steps", 12)
        self.assertEqual(result.code, 0, result)
        self.assertEqual(result.err.count("the last 10 optimizer steps were left out"), 1, result)
        self.assertIn("12 of 12 optimizer steps were left out", result.err)
        result = self.run_program(CASE, "fit", "--run_dir", self.folder / "none", *strategy("deepspeed", 2), "--trainer.accumulate_grad_batches", 4,
                                  "--trainer.fast_dev_run", 2)
        self.assertEqual(result.code, 0, result)
        self.assertIn("no optimizer step was taken", result.err)
        self.assertIn("4 batches", result.err)

    def test_settings_of_arguments_without_effect_are_said(self):
        memory = pathlib.Path(tempfile.mkdtemp(dir="/dev/shm"))
        self.addCleanup(shutil.rmtree, memory, ignore_errors=True)
        flags = strategy("deepspeed", 2, offload_parameters="true", offload_optimizer="true", offload_optimizer_device="nvme", nvme_path=memory)
        result = self.run_program(CASE, "fit", "--run_dir", self.folder / "run", *flags, "--trainer.max_steps", 1)
        self.assertEqual(result.code, 0, result)
        self.assertIn("offload_parameters", result.err)
        self.assertEqual(result.err.count("is a tmpfs"), 1, result)

    def test_a_part_of_the_state_may_stay_in_memory(self):
        bits = set()
        for ratio in (1.0, 0.4, 0.0):
            file = self.config({"zero_optimization": {"stage": 3, "offload_optimizer": {
                "device": "nvme", "nvme_path": str(self.folder), "ratio": ratio}}})
            bits.add(self.train(f"ratio_{ratio}", *strategy("deepspeed", 2, config=file), "--trainer.max_steps", 3))
        self.assertEqual(len(bits), 1)

    def test_modules_may_be_chosen_by_name(self):
        plain = self.train("plain", *strategy("deepspeed", 2, stage=3), "--trainer.max_steps", 2)
        for leaves, words in (({"name_suffixes": ["no such end"]}, ("zero_optimization.leaf_module (", "no such end", "without this key")),
                              ({"names": ["layers"]}, None)):
            file = self.config({"zero_optimization": {"stage": 3, "leaf_module": leaves}})
            flags = [*strategy("deepspeed", 2, config=file), "--trainer.max_steps", 2]
            if words:
                self.assert_refused(self.run_program(CASE, "fit", "--run_dir", self.folder / "run", *flags), 2, *words)
            else:
                self.assertEqual(self.train("named", *flags), plain)

    def test_a_directory_that_is_not_there_is_named(self):
        result = self.run_program(CASE, "fit", "--run_dir", self.folder / "run",
                                  *strategy("deepspeed_stage_3_offload_nvme", 2, nvme_path="/nowhere/at/all"))
        self.assert_refused(result, 2, "nvme_path", "/nowhere/at/all")


if __name__ == "__main__":
    unittest.main()
