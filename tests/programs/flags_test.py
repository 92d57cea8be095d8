"""A flag that is accepted changes something: every option of `digits` has its effect looked at here."""
import json
import re
import shutil
import unittest

from harness import DIGITS, SOURCE, ProgramTest

ONE_EPOCH = ["--trainer.max_epochs", 1]
POWER_SGD = ["--trainer.strategy.ddp_comm_hook", "powerSGD", "--trainer.strategy.ddp_comm_state.start_powerSGD_iter", 2]
DDP = ["--trainer.strategy", "ddp", "--trainer.devices", 2]
FSDP = ["--trainer.strategy", "fsdp", "--trainer.devices", 2]
STOPPED = [*DDP, "--trainer.strategy.timeout", "3s", "--fault.kind", "stop", "--fault.rank", 1]

# Options whose effect the program cannot show; the unit test that looks at it names the option.
ELSEWHERE = {
    "trainer.cuda_graphs": "tests/sim",
    "trainer.strategy.find_unused_parameters": "tests/parallel",
    "trainer.strategy.static_graph": "tests/parallel",
    "trainer.strategy.gradient_as_bucket_view": "tests/parallel",
    "trainer.strategy.broadcast_buffers": "tests/parallel",
    "trainer.strategy.init_sync": "tests/parallel",
    "trainer.strategy.allgather_bucket_size": "tests/strategy",
    "trainer.strategy.allgather_partitions": "tests/strategy",
    "trainer.strategy.block_size": "tests/strategy",
    "trainer.strategy.config": "tests/strategy",
    "trainer.strategy.contiguous_gradients": "tests/strategy",
    "trainer.strategy.contiguous_memory_optimization": "tests/strategy",
    "trainer.strategy.compile_cache": "tests/xla",
    "trainer.strategy.devices_per_process": "tests/xla",
    "trainer.strategy.cpu_checkpointing": "tests/strategy",
    "trainer.strategy.fallback": "tests/xla",
    "trainer.strategy.hysteresis": "tests/strategy",
    "trainer.strategy.initial_scale_power": "tests/strategy",
    "trainer.strategy.learning_rate": "tests/train",
    "trainer.strategy.loss_scale": "tests/strategy",
    "trainer.strategy.loss_scale_window": "tests/strategy",
    "trainer.strategy.max_in_cpu": "tests/strategy",
    "trainer.strategy.min_loss_scale": "tests/strategy",
    "trainer.strategy.nvme_path": "tests/strategy",
    "trainer.strategy.offload_optimizer": "tests/strategy",
    "trainer.strategy.offload_optimizer_device": "tests/strategy",
    "trainer.strategy.offload_parameters": "tests/strategy",
    "trainer.strategy.offload_params_device": "tests/strategy",
    "trainer.strategy.optimizer_buffer_count": "tests/strategy",
    "trainer.strategy.overlap_comm": "tests/strategy",
    "trainer.strategy.overlap_events": "tests/strategy",
    "trainer.strategy.params_buffer_count": "tests/strategy",
    "trainer.strategy.params_buffer_size": "tests/strategy",
    "trainer.strategy.partition_activations": "tests/strategy",
    "trainer.strategy.pin_memory": "tests/strategy",
    "trainer.strategy.queue_depth": "tests/strategy",
    "trainer.strategy.pjrt_plugin": "tests/xla",
    "trainer.strategy.reduce_bucket_size": "tests/strategy",
    "trainer.strategy.reduce_in_program": "tests/xla",
    "trainer.strategy.reduce_scatter": "tests/strategy",
    "trainer.strategy.single_submit": "tests/strategy",
    "trainer.strategy.stage": "tests/strategy",
    "trainer.strategy.sub_group_size": "tests/strategy",
    "trainer.strategy.synchronize_checkpoint_boundary": "tests/strategy",
    "trainer.strategy.thread_count": "tests/strategy",
    "trainer.strategy.warmup_ratio": "tests/train",
    "trainer.strategy.warmup_steps": "tests/train",
    "trainer.strategy.zero_allow_untested_optimizer": "tests/strategy",
    "trainer.strategy.zero_optimization": "tests/strategy",
    "trainer.strategy.activation_offload": "tests/parallel",
    "trainer.strategy.cpu_offload": "tests/parallel",
    "trainer.strategy.offload_dir": "tests/parallel",
    "trainer.strategy.reduce_every_micro_batch": "tests/strategy",
    "trainer.precision.hysteresis": "tests/precision",
    "trainer.precision.consecutive_hysteresis": "tests/precision",
    "trainer.precision.dynamic": "tests/precision",
    "trainer.precision.growth_delay": "tests/precision",
    "trainer.precision.fails_at_min_scale": "tests/precision",
    "trainer.precision.min_scale": "tests/precision",
    "trainer.strategy.skip_all_reduce_unused_params": "tests/parallel",
    "trainer.strategy.ddp_comm_state.use_error_feedback": "tests/parallel",
    "trainer.strategy.ddp_comm_state.warm_start": "tests/parallel",
    "trainer.strategy.ddp_comm_state.orthogonalization_epsilon": "tests/parallel",
    "trainer.strategy.ddp_comm_state.random_seed": "tests/parallel",
    "trainer.strategy.backward_prefetch": "tests/parallel",
    "trainer.strategy.forward_prefetch": "tests/parallel",
    "trainer.strategy.ignored_modules": "tests/parallel",
    "trainer.strategy.limit_all_gathers": "tests/parallel",
    "trainer.strategy.release_after_every_operator": "tests/parallel",
    "trainer.strategy.sync_module_states": "tests/parallel",
    "trainer.async_checkpoint": "tests/train",
    "trainer.local_checkpoint.replication_factor": "tests/checkpoint",
    "trainer.min_epochs": "tests/train",
    "trainer.min_steps": "tests/train",
    "trainer.partial_window": "tests/train",
    "trainer.limit_predict_batches": "tests/train",
    "trainer.deterministic": "tests/train",
    "trainer.benchmark": "tests/train",
    "trainer.matmul_precision": "tests/train",
    "trainer.expandable_segments": "tests/cuda",
    "trainer.inference_mode": "tests/train",
    "trainer.reload_dataloaders_every_n_epochs": "tests/train",
    "trainer.sync_batchnorm": "tests/parity",
    "tune.scale_batch_size.steps_per_trial": "tests/train",
}


class Flags(ProgramTest):
    def succeed(self, *flags):
        result = self.digits(*flags)
        self.assertEqual(result.code, 0, result)
        return result

    def summary(self, *flags):
        self.succeed(*flags)
        return json.loads((self.folder / "run" / "summary.json").read_text())

    def weights(self, *flags):
        self.succeed(*ONE_EPOCH, "--seed_everything", 1, "--save_weights", self.folder / "weights", *flags)
        return (self.folder / "weights").read_bytes()

    def changes_weights(self, *flags):
        return self.weights() != self.weights(*flags)

    def refuses(self, code, word, *flags):
        result = self.digits(*flags)
        return result.code == code and word in result.err

    def collectives(self, *flags):
        result = self.digits(*DDP, "--fault.kind", "kill", "--fault.rank", 1, "--fault.step", 9, *flags)
        return int(re.search(r"seq (\d+)", result.err).group(1))

    def bytes_sent(self, *flags):
        return self.summary(*ONE_EPOCH, *DDP, *flags)["bytes_sent_per_step"]

    def scaler(self, *flags):
        """What a checkpoint holds of it; 45 steps."""
        self.succeed(*ONE_EPOCH, "--trainer.precision", "16-mixed", *flags)
        manifest = json.loads((self.folder / "run" / "checkpoints" / "last.ckpt" / "manifest.json").read_text())
        return manifest["state"].get("MixedPrecision", {}).get("tree")

    def with_damaged_optimizer(self, *flags):
        self.succeed(*ONE_EPOCH)
        saved = self.folder / "saved.ckpt"
        shutil.rmtree(saved, ignore_errors=True)
        shutil.copytree(self.folder / "run" / "checkpoints" / "last.ckpt", saved)
        data = bytearray((saved / "optimizer.safetensors").read_bytes())
        data[-1] ^= 1
        (saved / "optimizer.safetensors").write_bytes(data)
        return self.digits("test", "--ckpt_path", saved, *flags).code

    def local_checkpoints(self, every, name="memory"):
        """What a run that fails leaves in memory."""
        self.digits("--trainer.local_checkpoint.every_n_train_steps", every, "--trainer.local_checkpoint.folder", self.folder / name,
                    "--fault.kind", "throw", "--fault.step", 17)
        return [path.name for path in (self.folder / name).glob("*/*")]

    EFFECTS = {
        "run_dir": lambda t: t.succeed(*ONE_EPOCH, "--run_dir", t.folder / "other") and (t.folder / "other" / "summary.json").exists(),
        "seed_everything": lambda t: t.weights() != t.weights("--seed_everything", 2),
        "init_weights": lambda t: t.weights() != t.weights("--init_weights", t.folder / "weights"),
        "save_weights": lambda t: len(t.weights()) > 30000,
        "ckpt_path": lambda t: t.refuses(1, "nothing of that name", "--ckpt_path", "none.ckpt"),
        "resume": lambda t: t.succeed(*ONE_EPOCH) and t.weights("--resume", "auto") != t.weights("--resume", "never"),
        "verify": lambda t: t.with_damaged_optimizer("--verify", "needed") == 0 and t.with_damaged_optimizer() == 1,
        "fault.kind": lambda t: t.refuses(3, "", "--fault.kind", "exit"),
        "fault.rank": lambda t: t.refuses(3, "rank 1", *DDP, "--fault.kind", "exit", "--fault.rank", 1),
        "fault.step": lambda t: t.collectives() < t.collectives("--fault.step", 20),
        "trainer.accelerator": lambda t: t.refuses(2, "tpu", "--trainer.accelerator", "tpu"),
        "trainer.devices": lambda t: t.summary(*ONE_EPOCH, "--trainer.devices", 2)["world_size"] == 2,
        "trainer.num_nodes": lambda t: t.refuses(2, "num_nodes", "--trainer.num_nodes", 2, "--trainer.devices", 1)
        and t.refuses(2, "MASTER_PORT", "--trainer.num_nodes", 2),
        "trainer.strategy": lambda t: t.summary(*ONE_EPOCH, "--trainer.strategy", "ddp")["strategy"] == "ddp",
        "trainer.precision": lambda t: t.changes_weights("--trainer.precision", "bf16-mixed")
        and t.refuses(2, "not built yet", "--trainer.precision", "transformer-engine"),
        "trainer.precision.init_scale": lambda t: t.scaler("--trainer.precision.init_scale", 8)["scale"] == 8,
        "trainer.precision.growth_interval": lambda t: t.scaler("--trainer.precision.growth_interval", 15)["_growth_tracker"] < 15,
        "trainer.precision.growth_factor": lambda t: t.scaler(
            "--trainer.precision.init_scale", 1, "--trainer.precision.growth_interval", 20, "--trainer.precision.growth_factor", 3)["scale"] == 9,
        "trainer.precision.backoff_factor": lambda t: t.scaler(
            "--trainer.precision.init_scale", 1e30, "--trainer.precision.backoff_factor", 1e-26)["scale"] < 2e4,
        "trainer.precision.enabled": lambda t: t.scaler("--trainer.precision.enabled", "false") is None,
        "trainer.strategy.bucket_cap_mb": lambda t: t.collectives() < t.collectives("--trainer.strategy.bucket_cap_mb", 0.0001),
        "trainer.strategy.ddp_comm_hook": lambda t: 1.9 < t.bytes_sent() / t.bytes_sent("--trainer.strategy.ddp_comm_hook", "bf16_compress") < 2.1,
        "trainer.strategy.ddp_comm_wrapper": lambda t: 1.9 < t.bytes_sent() / t.bytes_sent("--trainer.strategy.ddp_comm_wrapper", "fp16_compress") < 2.1,
        "trainer.strategy.ddp_comm_state.start_powerSGD_iter": lambda t: t.bytes_sent(*POWER_SGD) < t.bytes_sent(*POWER_SGD[:3], 20),
        "trainer.strategy.ddp_comm_state.matrix_approximation_rank": lambda t: t.bytes_sent(*POWER_SGD)
        < t.bytes_sent(*POWER_SGD, "--trainer.strategy.ddp_comm_state.matrix_approximation_rank", 2),
        "trainer.strategy.ddp_comm_state.min_compression_rate": lambda t: t.bytes_sent(*POWER_SGD)
        < t.bytes_sent(*POWER_SGD, "--trainer.strategy.ddp_comm_state.min_compression_rate", 1000),
        "trainer.strategy.timeout": lambda t: t.refuses(1, "within 3s", *DDP, "--trainer.strategy.timeout", "3s", "--fault.kind", "stop", "--fault.rank", 1)
        or t.refuses(1, "", *DDP, "--trainer.strategy.timeout", "3s", "--fault.kind", "stop", "--fault.rank", 1),
        "trainer.strategy.process_group_backend": lambda t: t.refuses(2, "expected auto, sockets, gloo; got mpi", *DDP, "--trainer.strategy.process_group_backend", "mpi")
        and all(t.summary(*ONE_EPOCH, *DDP, "--trainer.strategy.process_group_backend", name)["comm_backend"] == used
                for name, used in (("auto", "sockets"), ("sockets", "sockets"), ("gloo", "gloo"))),
        "trainer.strategy.reduction": lambda t: t.summary(*ONE_EPOCH, *DDP, "--trainer.strategy.reduction", "fast")["bytes_sent_per_step"]
        != t.summary(*ONE_EPOCH, *DDP, "--trainer.devices", 3)["bytes_sent_per_step"],
        "trainer.strategy.check_collectives": lambda t: t.refuses(1, "did not come", *STOPPED)
        and t.refuses(1, "failed", *STOPPED, "--trainer.strategy.check_collectives", "false"),
        "trainer.strategy.start_method": lambda t: t.summary(*ONE_EPOCH, *DDP, "--trainer.strategy.start_method", "spawn")["start_to_first_collective_s"] > 0,
        "trainer.strategy.cluster_environment": lambda t: t.refuses(
            2, "PyTorchJob", "--trainer.strategy", "ddp", "--trainer.strategy.cluster_environment", "Kubeflow")
        and t.refuses(2, "TorchElastic", *DDP, "--trainer.strategy.cluster_environment", "PBS"),
        "trainer.max_epochs": lambda t: t.summary("--trainer.max_epochs", 2)["epochs"] == 2,
        "trainer.max_steps": lambda t: t.summary("--trainer.max_steps", 3)["steps"] == 3,
        "trainer.max_time": lambda t: t.summary("--trainer.max_epochs", -1, "--trainer.max_time", "200ms")["status"] == "success",
        "trainer.fast_dev_run": lambda t: t.summary("--trainer.fast_dev_run", 3)["steps"] == 3,
        "trainer.overfit_batches": lambda t: t.summary(*ONE_EPOCH, "--trainer.overfit_batches", 4)["steps"] == 4,
        "trainer.val_check_interval": lambda t: t.rows("--trainer.val_check_interval", 0.25) > t.rows(),
        "trainer.limit_train_batches": lambda t: t.summary(*ONE_EPOCH, "--trainer.limit_train_batches", 0.5)["steps"] == 22,
        "trainer.limit_val_batches": lambda t: "val_loss" not in t.summary(*ONE_EPOCH, "--trainer.limit_val_batches", 0)["metrics"],
        "trainer.limit_test_batches": lambda t: t.summary("test", "--trainer.limit_test_batches", 1)["metrics"]["test_loss"]
        != t.summary("test")["metrics"]["test_loss"],
        "trainer.check_val_every_n_epoch": lambda t: "val_loss" not in t.summary(*ONE_EPOCH, "--trainer.check_val_every_n_epoch", 2)["metrics"],
        "trainer.num_sanity_val_steps": lambda t: t.digits("--trainer.max_epochs", 0, "--trainer.num_sanity_val_steps", -1).code == 0,
        "trainer.accumulate_grad_batches": lambda t: t.summary(*ONE_EPOCH, "--trainer.accumulate_grad_batches", 9)["steps"] == 5,
        "trainer.profiler": lambda t: "FIT Profiler Report" in t.succeed(*ONE_EPOCH, "--trainer.profiler", "simple").err
        and t.refuses(2, "xla", "--trainer.profiler", "xla"),
        "trainer.enable_model_summary": lambda t: "Trainable params" in t.succeed(*ONE_EPOCH).out
        and "Trainable params" not in t.succeed(*ONE_EPOCH, "--trainer.enable_model_summary", "false").out,
        "trainer.enable_autolog_hparams": lambda t: t.has_hparams() and not t.has_hparams("--trainer.enable_autolog_hparams", "false"),
        "trainer.barebones": lambda t: not t.summary(*ONE_EPOCH, "--trainer.barebones")["metrics"]
        and t.refuses(2, "barebones", "--trainer.barebones", "--trainer.fast_dev_run", "true"),
        "trainer.use_distributed_sampler": lambda t: t.summary(*ONE_EPOCH, *DDP, "--trainer.use_distributed_sampler", "false")["steps"] == 45,
        "trainer.callbacks": lambda t: t.summary("--trainer.callbacks", "{class_path: EarlyStopping, init_args: {monitor: val_loss, stopping_threshold: 9}}")["steps"] == 45
        and t.summary("--trainer.callbacks+=EarlyStopping", "--trainer.callbacks.monitor=val_loss", "--trainer.callbacks.stopping_threshold=9")["steps"] == 45,
        "trainer.default_root_dir": lambda t: t.run_below_root(),
        "trainer.strategy.sharding_strategy": lambda t: t.summary(*ONE_EPOCH, *FSDP)["bytes_sent_per_step"]
        > t.summary(*ONE_EPOCH, *FSDP, "--trainer.strategy.sharding_strategy", "NO_SHARD")["bytes_sent_per_step"],
        "trainer.strategy.device_mesh": lambda t: t.refuses(2, "device_mesh", *FSDP, "--trainer.strategy.device_mesh", "1,2"),
        "trainer.strategy.auto_wrap_policy": lambda t: t.refuses(2, "auto_wrap_policy", *FSDP, "--trainer.strategy.auto_wrap_policy", "LSTM"),
        "trainer.strategy.activation_checkpointing": lambda t: t.weights(*FSDP)
        == t.weights(*FSDP, "--trainer.strategy.activation_checkpointing", "Linear")
        and t.refuses(2, "activation_checkpointing", *FSDP, "--trainer.strategy.activation_checkpointing", "LSTM"),
        "trainer.strategy.mixed_precision": lambda t: t.weights(*FSDP) != t.weights(*FSDP, "--trainer.strategy.mixed_precision", "bfloat16")
        and t.refuses(2, "keep_low_precision_grads", *FSDP, "--trainer.strategy.mixed_precision", "{keep_low_precision_grads: true}"),
        "trainer.strategy.state_dict_type": lambda t: t.succeed(*ONE_EPOCH, *FSDP, "--trainer.strategy.state_dict_type", "sharded")
        and (t.folder / "run" / "checkpoints" / "last.ckpt" / "model-00001-of-00002.safetensors").exists(),
        "trainer.gradient_clip_val": lambda t: t.changes_weights("--trainer.gradient_clip_val", 0.01),
        "trainer.gradient_clip_algorithm": lambda t: t.weights("--trainer.gradient_clip_val", 0.01)
        != t.weights("--trainer.gradient_clip_val", 0.01, "--trainer.gradient_clip_algorithm", "value"),
        "trainer.detect_anomaly": lambda t: t.refuses(1, "detect_anomaly", "--trainer.detect_anomaly", "--optimizer.name", "sgd", "--optimizer.lr", 1e30),
        "trainer.log_every_n_steps": lambda t: t.rows("--trainer.log_every_n_steps", 5) > t.rows(),
        "trainer.logger": lambda t: t.succeed(*ONE_EPOCH, "--trainer.logger", "csv,jsonl") and (t.folder / "run" / "metrics.jsonl").exists()
        and shutil.rmtree(t.folder / "run") is None and t.succeed(*ONE_EPOCH, "--trainer.logger", "false") and not (t.folder / "run" / "metrics.csv").exists(),
        "trainer.enable_checkpointing": lambda t: t.succeed(*ONE_EPOCH, "--trainer.enable_checkpointing", "false")
        and not (t.folder / "run" / "checkpoints" / "last.ckpt").exists(),
        "trainer.local_checkpoint.every_n_train_steps": lambda t: t.local_checkpoints(9) == ["step=9"] and t.local_checkpoints(0) == ["step=9"],
        "trainer.local_checkpoint.folder": lambda t: t.local_checkpoints(9, "elsewhere") == ["step=9"],
        "trainer.enable_progress_bar": lambda t: t.succeed(
            *ONE_EPOCH, "--trainer.enable_progress_bar", "false", "--trainer.enable_model_summary", "false").out == "",
        "tune.batch_size": lambda t: "lr" in t.tuned("--tune.batch_size", "false") and "batch_size" not in t.tuned("--tune.batch_size", "false"),
        "tune.lr": lambda t: "lr" not in t.tuned("--tune.lr", "false"),
        "tune.scale_batch_size.mode": lambda t: t.batch_size("--tune.scale_batch_size.mode", "binsearch") == 60,
        "tune.scale_batch_size.margin": lambda t: t.batch_size("--tune.scale_batch_size.mode", "binsearch", "--tune.scale_batch_size.margin", 0.5) == 32,
        "tune.scale_batch_size.max_trials": lambda t: t.batch_size("--tune.scale_batch_size.max_trials", 3) == 8,
        "tune.scale_batch_size.max_val": lambda t: t.batch_size("--tune.scale_batch_size.max_val", 48) == 48,
        "tune.scale_batch_size.init_val": lambda t: t.batch_size("--tune.scale_batch_size.init_val", 3, "--tune.scale_batch_size.max_trials", 2) == 6,
        "tune.lr_find.min_lr": lambda t: t.tuned("--tune.lr_find.min_lr", 0.1, "--tune.lr_find.early_stop_threshold", "null")["lr"] >= 0.1,
        "tune.lr_find.max_lr": lambda t: t.tuned("--tune.lr_find.max_lr", 1e-6)["lr"] < 1e-6,
        "tune.lr_find.num_training": lambda t: t.points("--tune.lr_find.num_training", 33) == 33,
        "tune.lr_find.mode": lambda t: "logarithmic" in t.curve() and "logarithmic" not in t.curve("--tune.lr_find.mode", "linear"),
        "tune.lr_find.early_stop_threshold": lambda t: t.refuses(1, "got 2 steps", *t.TUNE, "--tune.batch_size", "false", "--tune.lr_find.early_stop_threshold", 0.5),
        "data.file": lambda t: t.refuses(1, "nowhere", "--data.file", "nowhere"),
        "data.batch_size": lambda t: t.summary(*ONE_EPOCH, "--data.batch_size", 1000)["steps"] == 2,
        "data.val_fraction": lambda t: t.summary(*ONE_EPOCH, "--data.val_fraction", 0.5)["samples"] == 899,
        "data.num_workers": lambda t: t.refuses(2, "num_workers", "--data.num_workers", -1) and t.succeed(*ONE_EPOCH, "--data.num_workers", 2),
        "model.hidden": lambda t: len(t.weights()) > len(t.weights("--model.hidden", "4,4")),
        "optimizer.name": lambda t: t.changes_weights("--optimizer.name", "sgd"),
        "optimizer.lr": lambda t: t.changes_weights("--optimizer.lr", 0.5),
    }

    TUNE = ["tune", "--seed_everything", 1, "--tune.scale_batch_size.max_val", 64, "--tune.lr_find.num_training", 30]

    def tuned(self, *flags):
        return self.summary(*self.TUNE, *flags)["tuned"]

    def batch_size(self, *flags):
        return self.tuned("--tune.lr", "false", *flags)["batch_size"]

    def curve(self, *flags):
        self.succeed(*self.TUNE, "--tune.batch_size", "false", *flags)
        return (self.folder / "run" / "lr_find.svg").read_text()

    def points(self, *flags):
        return len(re.search(r'points="([^"]*)"', self.curve(*flags)).group(1).split())

    def has_hparams(self, *flags):
        shutil.rmtree(self.folder / "run", ignore_errors=True)
        self.succeed(*ONE_EPOCH, *flags)
        return (self.folder / "run" / "hparams.yaml").exists()

    def run_below_root(self):
        root = self.folder / "root"
        data = SOURCE / "data" / "digits.csv.gz"
        result = self.run_program(DIGITS, *ONE_EPOCH, "--trainer.default_root_dir", root, "--data.file", data)
        self.assertEqual(result.code, 0, result)
        return (root / "runs" / "digits" / "version_0" / "summary.json").exists()

    def rows(self, *flags):
        self.succeed(*ONE_EPOCH, *flags)
        return len((self.folder / "run" / "metrics.csv").read_text().splitlines())

    def test_every_flag_is_looked_at(self):
        flags = set(re.findall(r"^  --([A-Za-z_.]+)", self.succeed("--help").out, re.M)) - {"config", "completion", "print_config", "help", "version"}
        self.assertEqual(flags, set(self.EFFECTS) | set(ELSEWHERE))
        for key, folder in ELSEWHERE.items():
            name = key.rsplit(".", 1)[1]
            self.assertTrue(any(name in file.read_text() for file in (SOURCE / folder).rglob("*.cpp")), f"{name} in {folder}")

    def test_every_flag_has_an_effect(self):
        for key, effect in self.EFFECTS.items():
            with self.subTest(key):
                shutil.rmtree(self.folder / "run", ignore_errors=True)
                self.assertTrue(effect(self))


if __name__ == "__main__":
    unittest.main()
