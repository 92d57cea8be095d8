"""Makes the folders beside this file: a small model trained and saved by DeepSpeed, on CPU ranks over Gloo.

Usage: make_folders.py OUTPUT (with the Python of build/peers). Each CASE gives OUTPUT/CASE/, as DeepSpeed's save_checkpoint
leaves it, without its copy of zero_to_fp32.py; OUTPUT/CASE.safetensors, what DeepSpeed's own conversion makes of
that; and OUTPUT/CASE.adam.safetensors, the moments of Adam for every parameter, as DeepSpeed's accessors give them. stage3_sub_groups has
groups of several sub-groups, behind one that is frozen as a whole.
"""
import os
import pathlib
import shutil
import sys

os.environ["DS_ACCELERATOR"] = "cpu"
os.environ["DEEPSPEED_LOG_LEVEL"] = "ERROR"
os.environ["TQDM_DISABLE"] = "1"

import deepspeed  # noqa: E402
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.multiprocessing as mp  # noqa: E402
from deepspeed.utils import safe_get_full_optimizer_state  # noqa: E402
from deepspeed.utils.zero_to_fp32 import convert_zero_checkpoint_to_fp32_state_dict  # noqa: E402
from safetensors.torch import save_file  # noqa: E402

# Shared memory that DeepSpeed builds with a compiler at the first run, and uses in inference alone.
sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None

CASES = {  # name: ranks, stage, bf16
    "stage0": (2, 0, False),
    "stage1": (2, 1, False),
    "stage2": (2, 2, False),
    "stage3": (2, 3, False),
    "stage3_three_ranks": (3, 3, False),
    "stage2_bf16": (2, 2, True),
    "stage3_bf16": (2, 3, True),
    "stage3_sub_groups": (2, 3, False),
}
STEPS = 3


class Net(torch.nn.Module):
    """A tied weight, a frozen parameter, buffers of two types, and parameters of 15, 35, 7 and 1 elements."""

    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(3, 5)
        self.hidden = torch.nn.Linear(5, 7)
        self.norm = torch.nn.LayerNorm(7)
        self.register_buffer("shift", torch.linspace(0, 1, 7))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.back = torch.nn.Linear(7, 5, bias=False)
        self.scale = torch.nn.Parameter(torch.ones(1))
        self.frozen = torch.nn.Parameter(torch.linspace(-1, 1, 35).reshape(7, 5), requires_grad=False)
        self.head = torch.nn.Linear(5, 3, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens):
        self.calls += 1
        hidden = self.norm(self.hidden(self.embed(tokens))) + self.shift.to(self.hidden.weight.dtype)
        hidden = hidden + self.embed(tokens) @ self.frozen.t()
        return self.head(self.back(torch.tanh(hidden))) * self.scale


def config(stage, bf16, has_sub_groups):
    sub_groups = {"sub_group_size": 10} if has_sub_groups else {}
    return {"train_micro_batch_size_per_gpu": 4, "gradient_clipping": 1.0, "steps_per_print": 1000000,
            "zero_allow_untested_optimizer": True, "bf16": {"enabled": bf16},
            "scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": 0.01, "warmup_num_steps": 4}},
            "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 0, **sub_groups}}


def groups(model, has_sub_groups):
    decayed = [p for p in model.parameters() if p.requires_grad and p.dim() > 1]
    others = [p for p in model.parameters() if p.requires_grad and p.dim() <= 1]
    frozen = [{"params": [model.frozen], "weight_decay": 0.3}] if has_sub_groups else []  # has no sub-group
    return frozen + [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]


def moments(engine, stage):
    """The states of Adam by the names of the parameters, whole."""
    if stage in (1, 2):  # else the accessor does not find what came to be in the first step
        engine.optimizer._hp_optimizer_states_linked = False
        engine.optimizer._lazy_init_hp_params_optimizer_state()
    found = {}
    for name, param in engine.module.named_parameters():
        if not param.requires_grad:
            continue
        for key in ("exp_avg", "exp_avg_sq"):
            if stage == 0:
                value = engine.optimizer.state[param][key]
            else:
                value = safe_get_full_optimizer_state(param, key)
            found[f"{name}/{key}"] = value.detach().clone().float().reshape(-1)
    return found


def run_rank(rank, ranks, stage, bf16, folder, store):
    has_sub_groups = folder.name.endswith("sub_groups")
    torch.set_num_threads(1)
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(ranks), LOCAL_SIZE=str(ranks),
                      MASTER_ADDR="127.0.0.1", MASTER_PORT="29511")
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=ranks)
    deepspeed.init_distributed(dist_backend="gloo", auto_mpi_discovery=False, verbose=False)
    torch.manual_seed(0)
    model = Net()
    optimizer = torch.optim.AdamW(groups(model, has_sub_groups), lr=0.01)
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config(stage, bf16, has_sub_groups))
    torch.manual_seed(1 + rank)
    for _ in range(STEPS):
        tokens = torch.randint(3, (4,))
        engine.backward(torch.nn.functional.cross_entropy(engine(tokens).float(), (tokens + 1) % 3))
        engine.step()
    engine.save_checkpoint(str(folder), client_state={"epoch": 2, "note": "of the program"})
    found = moments(engine, stage)
    if rank == 0:
        save_file(found, folder.parent / f"{folder.name}.adam.safetensors")
    dist.barrier()
    dist.destroy_process_group()


def convert(folder, stage):
    """What the weights are, by DeepSpeed's own script, which knows no stage 0."""
    file = folder.parent / f"{folder.name}.safetensors"
    if stage == 0:
        state = torch.load(next(folder.glob("global_step*")) / "mp_rank_00_model_states.pt", weights_only=False)["module"]
    else:
        out = folder.parent / "converted"
        convert_zero_checkpoint_to_fp32_state_dict(str(folder), str(out), max_shard_size=None)
        state = torch.load(out / "pytorch_model.bin")
        shutil.rmtree(out)
    save_file({name: value.clone().contiguous() for name, value in state.items()}, file)


def main():
    output = pathlib.Path(sys.argv[1]).absolute()
    output.mkdir(parents=True, exist_ok=True)
    wanted = sys.argv[2:] or CASES
    for name in wanted:
        ranks, stage, bf16 = CASES[name]
        folder, store = output / name, output / f".{name}.store"
        shutil.rmtree(folder, ignore_errors=True)
        store.unlink(missing_ok=True)
        mp.spawn(run_rank, args=(ranks, stage, bf16, folder, store), nprocs=ranks)
        store.unlink(missing_ok=True)
        for script in ("zero_to_fp32.py", "zero_to_torch.py"):
            (folder / script).unlink(missing_ok=True)
        convert(folder, stage)


if __name__ == "__main__":
    main()
