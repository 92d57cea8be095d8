"""Runs of resume_case, the configurations that they are tried in, and what they leave."""
import json

from harness import BINARY, ProgramTest

CASE = BINARY / "bin" / "resume_case"
EPOCHS, BATCHES, VAL_BATCHES = 3, 11, 3  # of one rank: 88 samples, 2 ranks, 4 each

SINGLE = ["--case.batch_size", 8]
DDP = ["--trainer.strategy", "ddp", "--trainer.devices", 2]
FSDP = ["--trainer.strategy", "fsdp", "--trainer.devices", 2, "--trainer.strategy.auto_wrap_policy", "Linear"]
DEEPSPEED = ["--trainer.strategy", "deepspeed", "--trainer.devices", 2, "--trainer.strategy.stage"]
SPAWN = ["--trainer.strategy", "ddp", "--trainer.strategy.start_method", "spawn", "--trainer.devices", 2]
# Overflows at first, then grows every third step: the scale matters at every moment.
SCALED = ["--trainer.precision", "16-mixed", "--trainer.precision.init_scale", 2.0**22, "--trainer.precision.growth_interval", 3]
CONFIGURATIONS = {
    "single": SINGLE,
    "single_windows": [*SINGLE, "--trainer.accumulate_grad_batches", 4],
    "ddp": DDP,
    "ddp_windows_workers": [*DDP, "--trainer.accumulate_grad_batches", 3, "--case.num_workers", 2],
    "ddp_bucket_views": [*DDP, "--trainer.accumulate_grad_batches", 2, "--trainer.strategy.gradient_as_bucket_view", "true"],
    "ddp_own_buffers": [*DDP, "--trainer.strategy.broadcast_buffers", "false"],
    "ddp_static_graph": [*DDP, "--trainer.accumulate_grad_batches", 2, "--trainer.strategy.static_graph", "true"],
    "ddp_bf16": [*DDP, "--trainer.precision", "bf16-mixed", "--trainer.accumulate_grad_batches", 2],
    "ddp_carried_windows": [*DDP, "--trainer.accumulate_grad_batches", 3, "--trainer.partial_window", "carry"],
    "ddp_every_micro_batch": [*DDP, "--trainer.accumulate_grad_batches", 3, "--trainer.strategy.reduce_every_micro_batch", "true"],
    "single_64": [*SINGLE, "--trainer.precision", "64-true", "--trainer.accumulate_grad_batches", 2],
    "ddp_16": [*DDP, *SCALED, "--trainer.accumulate_grad_batches", 2],
    "single_16_clipped": [*SINGLE, *SCALED, "--trainer.gradient_clip_val", 0.5],
    "ddp_16_true": [*DDP, "--trainer.precision", "16-true", "--trainer.accumulate_grad_batches", 2],
    "ddp_bf16_true": [*DDP, "--trainer.precision", "bf16-true"],
    "ddp_power_sgd": [*DDP, "--trainer.strategy.ddp_comm_hook", "powerSGD",
                      "--trainer.strategy.ddp_comm_state.start_powerSGD_iter", 2,
                      "--trainer.strategy.ddp_comm_state.min_compression_rate", 1],
    "ddp_async": [*DDP, "--trainer.async_checkpoint", "true", "--trainer.accumulate_grad_batches", 2],
    "ddp_spawn": SPAWN,
    "ddp_accumulation_scheduler": [*DDP, "--case.callback", "accumulation"],
    "ddp_ema": [*DDP, "--case.callback", "ema"],
    "ddp_ema_own_buffers": [*DDP, "--case.callback", "ema", "--trainer.strategy.broadcast_buffers", "false"],
    "ddp_swa": [*DDP, "--case.callback", "swa"],
    "ddp_swa_sync": [*DDP, "--case.callback", "swa", "--trainer.sync_batchnorm", "true"],
    "ddp_finetuning": [*DDP, "--case.callback", "finetuning"],
    "ddp_finetuning_bucket_views": [*DDP, "--case.callback", "finetuning", "--trainer.strategy.gradient_as_bucket_view", "true"],
    "ddp_pruning": [*DDP, "--case.callback", "pruning"],
    "fsdp": FSDP,
    "fsdp_windows": [*FSDP, "--trainer.accumulate_grad_batches", 3],
    "fsdp_grad_op_sharded": [*FSDP, "--trainer.strategy.sharding_strategy", "SHARD_GRAD_OP", "--trainer.strategy.state_dict_type",
                             "sharded", "--trainer.accumulate_grad_batches", 2],
    "fsdp_no_shard": [*FSDP, "--trainer.strategy.sharding_strategy", "NO_SHARD"],
    "fsdp_bf16": [*FSDP, "--trainer.precision", "bf16-mixed", "--trainer.accumulate_grad_batches", 2],
    "fsdp_low_precision_grads": [*FSDP, "--trainer.precision", "bf16-mixed", "--trainer.accumulate_grad_batches", 2,
                                 "--trainer.strategy.mixed_precision", "{keep_low_precision_grads: true}"],
    "fsdp_16": [*FSDP, *SCALED, "--trainer.gradient_clip_val", 0.5],
    "fsdp_async": [*FSDP, "--trainer.async_checkpoint", "true", "--trainer.strategy.state_dict_type", "sharded"],
    "deepspeed_1": [*DEEPSPEED, 1, "--trainer.accumulate_grad_batches", 3],
    "deepspeed_2": [*DEEPSPEED, 2, "--trainer.accumulate_grad_batches", 3],
    "deepspeed_3_bf16": [*DEEPSPEED, 3, "--trainer.precision", "bf16-true", "--trainer.accumulate_grad_batches", 2],
    "deepspeed_2_16": [*DEEPSPEED, 2, "--trainer.precision", "16-mixed", "--trainer.strategy.initial_scale_power", 22,
                       "--trainer.strategy.loss_scale_window", 3],
    "deepspeed_3_disk": [*DEEPSPEED, 3, "--trainer.strategy.offload_optimizer", "true", "--trainer.strategy.offload_optimizer_device",
                         "nvme", "--trainer.strategy.offload_parameters", "true", "--trainer.strategy.offload_params_device", "nvme",
                         "--trainer.strategy.nvme_path", "."],
    "single_reloaded": [*SINGLE, "--case.val_loaders", 3, "--trainer.reload_dataloaders_every_n_epochs", 1],
    "ddp_reloaded": [*DDP, "--case.val_loaders", 2, "--trainer.reload_dataloaders_every_n_epochs", 2],
}


class ResumeTest(ProgramTest):
    def train(self, name, *flags):
        weights = self.folder / f"{name}.safetensors"
        result = self.run_program(CASE, "fit", "--run_dir", self.folder / name, "--save_weights", weights, *flags)
        self.assertEqual(result.code, 0, result)
        self.assertNotIn("training goes on", result.err)
        return weights.read_bytes(), result

    def optimizer_of(self, name):
        files = sorted((self.folder / name / "checkpoints" / "last.ckpt").glob("optimizer*.safetensors"))
        return [file.read_bytes() for file in files]

    def batches_of(self, name):
        """What all ranks drew together, batch by batch."""
        ranks = [file.read_text().splitlines() for file in self.folder.glob(f"{name}.record.*")]
        return [sorted(int(word) for line in lines for word in line.split()) for lines in zip(*ranks, strict=True)]

    def train_and_record(self, name, *flags):
        self.train(name, "--seed_everything", 5, *flags, "--case.record", self.folder / f"{name}.record")
        return self.batches_of(name)

    def summary_of(self, name):
        return json.loads((self.folder / name / "summary.json").read_text())

    def save_at(self, *moments):
        return ["--case.save_at", ",".join(moments), "--case.save_dir", self.folder]
