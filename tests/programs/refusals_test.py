"""Every flag of the Trainer refuses what it cannot take, before anything starts: exit code 2, the flag, the value, and what
would be accepted."""
import re
import unittest

from harness import ProgramTest

# Flag -> refused value and words of what is accepted.
REFUSED = {
    "accelerator": [("gpu", "accelerator cuda is not there", "libtorch_cuda.so"), ("cuda", "libtorch_cuda.so"),
                    ("mps", "docs/status.md"), ("tpu", "LOCKSTEP_PJRT_PLUGIN", "docs/xla.md"), ("xla", "LOCKSTEP_PJRT_PLUGIN"), ("gpuu", "auto, gpu, cpu, cuda")],
    "devices": [("0", "a number >= 1"), ("-2", "a number >= 1"), ("abc", "a number of devices"), ("1,3", "no device indices"), ("MIG-1", "no device indices")],
    "cuda_graphs": [("maybe", "true")],
    "expandable_segments": [("maybe", "true")],
    "num_nodes": [("0", ">= 1"), ("-1", ">= 1"), ("two", "integer")],
    "strategy": [("dpd", "ddp"), ("dp", "gone from Lightning 2", "use ddp"), ("xla", "LOCKSTEP_PJRT_PLUGIN", "PJRT_DEVICE", "docs/xla.md"), ("xla_debug", "use xla"),
                 ("xla_fsdp", "docs/status.md")],
    "precision": [("8", "16-mixed"), ("transformer-engine", "not built yet")],
    "precision.init_scale": [("0", "> 0")],
    "precision.growth_factor": [("0.5", "> 1")],
    "precision.backoff_factor": [("1.5", "")],
    "precision.growth_interval": [("0", ">= 1")],
    "precision.hysteresis": [("0", ">= 1")],
    "precision.consecutive_hysteresis": [("maybe", "true")],
    "precision.dynamic": [("maybe", "true")],
    "precision.growth_delay": [("-1", ">= 0")],
    "precision.fails_at_min_scale": [("maybe", "true")],
    "precision.min_scale": [("-1", ">= 0")],
    "precision.enabled": [("maybe", "true")],
    "max_epochs": [("-2", ">= -1"), ("many", "integer"), ("1.5", "integer")],
    "min_epochs": [("-1", ">= 0")],
    "max_steps": [("-2", ">= -1")],
    "min_steps": [("-1", ">= 0")],
    "max_time": [("soon", "a duration"), ("-5s", "> 0"), ("0s", "> 0")],
    "fast_dev_run": [("-1", ""), ("x", "true")],
    "limit_train_batches": [("-1", ""), ("1.5", ""), ("some", "")],
    "limit_val_batches": [("-1", ""), ("1.5", "")],
    "limit_test_batches": [("-1", ""), ("1.5", "")],
    "limit_predict_batches": [("-1", ""), ("1.5", "")],
    "overfit_batches": [("-0.5", ""), ("1.5", "")],
    "val_check_interval": [("0", ""), ("1.5", ""), ("often", "")],
    "check_val_every_n_epoch": [("0", ">= 1"), ("-1", ">= 1")],
    "num_sanity_val_steps": [("-2", ">= -1")],
    "reload_dataloaders_every_n_epochs": [("-1", ">= 0")],
    "accumulate_grad_batches": [("0", ""), ("-1", ""), ("1.5", "")],
    "partial_window": [("some", "")],
    "gradient_clip_val": [("-1", ">= 0"), ("a", "")],
    "gradient_clip_algorithm": [("max", "norm, value")],
    "sync_batchnorm": [("maybe", "true")],
    "detect_anomaly": [("maybe", "true")],
    "log_every_n_steps": [("-1", ">= 0")],
    "logger": [("wandb", "csv")],
    "enable_autolog_hparams": [("maybe", "true")],
    "profiler": [("xla", "simple", "pytorch")],
    "enable_checkpointing": [("maybe", "true")],
    "async_checkpoint": [("maybe", "true")],
    "local_checkpoint.every_n_train_steps": [("-1", ">= 0"), ("often", "integer")],
    "local_checkpoint.replication_factor": [("0", ">= 1")],
    "enable_progress_bar": [("maybe", "true")],
    "enable_model_summary": [("maybe", "true")],
    "barebones": [("maybe", "true")],
    "deterministic": [("maybe", "warn")],
    "benchmark": [("maybe", "true")],
    "matmul_precision": [("low", "highest"), ("1", "medium")],
    "inference_mode": [("maybe", "true")],
    "use_distributed_sampler": [("maybe", "true")],
    "callbacks": [("EarlyStoping", "expected one of ModelCheckpoint, EarlyStopping", "did you mean EarlyStopping?"),
                  ("my.module.Pace", "ls::register_callback"), ("RichModelSummary", "name ModelSummary"),
                  ("EarlyStopping", "trainer.callbacks[0]: EarlyStopping: monitor"),
                  ("[{class_path: Timer}", "malformed YAML")],
}
TAKES_ANY_TEXT = {"default_root_dir", "local_checkpoint.folder"}
# Options of one strategy: refused in tests/strategy and tests/parallel.
ELSEWHERE = "strategy."


class Refusals(ProgramTest):
    def test_every_flag_has_a_row(self):
        flags = set(re.findall(r"^  --trainer\.([A-Za-z_.]+)", self.digits("--help").out, re.M))
        self.assertEqual({flag for flag in flags if not flag.startswith(ELSEWHERE)}, set(REFUSED) | TAKES_ANY_TEXT)

    def test_every_flag_refuses(self):
        for flag, rows in REFUSED.items():
            needs = ("--trainer.precision", "16-mixed") if flag.startswith("precision.") else ()
            for value, *words in rows:
                with self.subTest(flag=flag, value=value):
                    result = self.digits(*needs, f"--trainer.{flag}={value}")
                    self.assert_refused(result, 2, flag.rsplit(".", 1)[-1], value, *words)
                    self.assertFalse((self.folder / "run" / "metrics.csv").exists())

    def test_seed(self):
        self.assert_refused(self.digits("--seed_everything", -1), 2, "seed_everything", "-1")

    def test_flags_that_exclude_each_other(self):
        barebones = ["--trainer.barebones", "true"]
        for flag, value in (("detect_anomaly", "true"), ("fast_dev_run", "true"), ("profiler", "simple"),
                            ("local_checkpoint.every_n_train_steps", "5")):
            with self.subTest(flag):
                self.assert_refused(self.digits(*barebones, f"--trainer.{flag}", value), 2, "barebones", flag)
        self.assert_refused(self.digits("--trainer.check_val_every_n_epoch", "null", "--trainer.val_check_interval", 0.5), 2,
                            "val_check_interval", "check_val_every_n_epoch", "0.5")


if __name__ == "__main__":
    unittest.main()
