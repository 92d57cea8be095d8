"""Every value that README.md gives for a field of case.json is read, and does what it does in PyTorch.

Each is tried in a short run of its own: schedules, optimizers and models beside plain torch, strategies beside ddp, and
what is not among the values is refused by name.
"""
import json
import math
import os
import pathlib
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "programs"))
from harness import BINARY, ProgramTest, use_peers  # noqa: E402

use_peers("safetensors")
import torch  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

PARITY_CASE = BINARY / "bin" / "parity_case"
ROWS, BATCH, EPOCHS = 96, 8, 2
STEPS = EPOCHS * ROWS // BATCH
SGD = {"name": "sgd", "lr": 0.05, "momentum": 0.9, "dampening": 0.0, "weight_decay": 0.0, "nesterov": False}
ADAMW = {"name": "adamw", "lr": 0.002, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.1}
OPTIMIZERS = [
    SGD,
    ADAMW,
    {**SGD, "momentum": 0.0},
    {**SGD, "dampening": 0.3, "weight_decay": 0.01},
    {**SGD, "nesterov": True},
    {**ADAMW, "betas": [0.8, 0.9], "eps": 1e-4, "weight_decay": 0.0},
]
ONE_CYCLE = {"type": "one_cycle", "max_lr": 0.1, "total_steps": STEPS}
SCHEDULERS = [
    {"type": "linear", "start_factor": 0.1, "end_factor": 0.8, "total_iters": 7},
    {"type": "cosine", "t_max": 10, "eta_min": 0.001},
    {"type": "exponential", "gamma": 0.9},
    {"type": "step", "step_size": 5, "gamma": 0.5},
    {"type": "sequential", "milestones": [4], "schedulers": [
        {"type": "linear", "start_factor": 0.25, "end_factor": 1.0, "total_iters": 4}, {"type": "cosine", "t_max": 20, "eta_min": 0.0}]},
    ONE_CYCLE,
    {**ONE_CYCLE, "anneal": "linear", "pct_start": 0.4, "div_factor": 10.0, "final_div_factor": 100.0},
    {**ONE_CYCLE, "anneal": "cos", "three_phase": True, "base_momentum": 0.7, "max_momentum": 0.9},
    {**ONE_CYCLE, "cycle_momentum": False},
    *({"type": kind, "min_lr": 0.001, "max_lr": 0.05, "num_steps": 6, "warmup_type": curve, **more}
      for kind, more in (("warmup", {}), ("warmup_decay", {"total_num_steps": 20})) for curve in ("log", "linear")),
]
MLP = {"type": "mlp", "layers": [64, 16, 10], "activation": "relu"}
MODELS = [
    MLP,
    {**MLP, "activation": "tanh"},
    {**MLP, "layers": [64, 10]},
    {**MLP, "frozen": ["0.weight"]},
    {**MLP, "unused": {"name": "spare", "in": 64, "out": 8}},
]
LM = {"type": "transformer_lm", "vocab": 96, "d_model": 16, "layers": 2, "heads": 2, "context": 8, "activation": "gelu",
      "layer_norm_eps": 1e-5}
MESH = {"replicate": 2, "shard": 1}
STRATEGIES = [
    *({"name": "fsdp", "sharding_strategy": "FULL_SHARD", "wrap": wrap, "activation_checkpointing": again}
      for wrap in ("each_linear", "each_block") for again in (False, True)),
    *({"name": "fsdp", "sharding_strategy": kind, "wrap": "each_block", "mesh": MESH}
      for kind in ("SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD")),
    *({"name": "deepspeed", "stage": stage, "config": {"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": stage}}}
      for stage in (1, 2, 3)),
]
BASE = {
    "model": MLP, "loss": {"type": "cross_entropy", "reduction": "mean"}, "world_size": 1, "strategy": {"name": "single"},
    "data": {"type": "classification", "file": "digits.safetensors", "x": "x", "y": "y", "rows": ROWS},
    "precision": "32-true", "optimizer": SGD, "schedulers": [], "batch_size": BATCH, "max_epochs": EPOCHS, "max_steps": None,
    "accumulate_grad_batches": 1, "semantics": "lightning", "gradient_clip": None,
    "sampler": {"type": "distributed", "seed": 0, "shuffle": False, "drop_last": False}, "loader": {"drop_last": False},
    "sync_batchnorm": False, "eval": {"rows": "all"}, "final_dtype": "float32",
}
BASE_LM = {
    **BASE, "model": LM, "world_size": 2, "strategy": {"name": "ddp"}, "optimizer": ADAMW, "batch_size": 4, "max_epochs": 1,
    "max_steps": 6, "data": {"type": "lm_windows", "file": "lm_tokens.safetensors", "tokens": "tokens", "stride": 8, "window": 9},
    "sampler": {"type": "windows"}, "eval": {"windows": [100, 110]},
}


class Mlp(nn.Module):
    def __init__(self, spec):
        super().__init__()
        sizes = spec["layers"]
        self.order = [nn.Linear(a, b) for a, b in zip(sizes, sizes[1:])]
        for i, layer in enumerate(self.order):
            self.add_module(str(2 * i), layer)
        if "unused" in spec:
            self.add_module(spec["unused"]["name"], nn.Linear(spec["unused"]["in"], spec["unused"]["out"]))
        for name in spec.get("frozen", []):
            self.get_parameter(name).requires_grad_(False)
        self.activation = {"relu": torch.relu, "tanh": torch.tanh}[spec["activation"]]

    def forward(self, x):
        for layer in self.order[:-1]:
            x = self.activation(layer(x))
        return self.order[-1](x)


def torch_scheduler(s, optimizer):
    kinds, type = torch.optim.lr_scheduler, s["type"]
    if type == "linear":
        return kinds.LinearLR(optimizer, s["start_factor"], s["end_factor"], s["total_iters"])
    if type == "cosine":
        return kinds.CosineAnnealingLR(optimizer, s["t_max"], s["eta_min"])
    if type == "exponential":
        return kinds.ExponentialLR(optimizer, s["gamma"])
    if type == "step":
        return kinds.StepLR(optimizer, s["step_size"], s["gamma"])
    if type == "sequential":
        return kinds.SequentialLR(optimizer, [torch_scheduler(part, optimizer) for part in s["schedulers"]], s["milestones"])
    if type == "one_cycle":
        given = {key: s[key] for key in ("pct_start", "cycle_momentum", "base_momentum", "max_momentum", "div_factor",
                                         "final_div_factor", "three_phase") if key in s}
        return kinds.OneCycleLR(optimizer, s["max_lr"], s["total_steps"], anneal_strategy=s.get("anneal", "cos"), **given)
    return kinds.LambdaLR(optimizer, lambda k: deepspeed_rate(s, k) / optimizer.defaults["lr"])


def deepspeed_rate(s, k):
    """DeepSpeed's WarmupLR and WarmupDecayLR: its first two steps use min_lr."""
    i, n = k - 1, s["num_steps"]
    if i < 0:
        share = 0.0
    elif i < n:
        share = math.log(i + 1) / math.log(n) if s["warmup_type"] == "log" else i / n
    elif s["type"] == "warmup":
        share = 1.0
    else:
        share = max(0.0, (s["total_num_steps"] - i) / max(1, s["total_num_steps"] - n))
    return s["min_lr"] + (s["max_lr"] - s["min_lr"]) * share


def torch_optimizer(o, model):
    parameters = [p for p in model.parameters() if p.requires_grad]
    if o["name"] == "sgd":
        return torch.optim.SGD(parameters, **{key: value for key, value in o.items() if key != "name"})
    return torch.optim.AdamW(parameters, lr=o["lr"], betas=o["betas"], eps=o["eps"], weight_decay=o["weight_decay"])


def train(case, model):
    """The run in plain torch: its learning rates and its gradients' norms by step."""
    data = load_file(HERE / "digits.safetensors")
    optimizer = torch_optimizer(case["optimizer"], model)
    schedulers = [torch_scheduler(s, optimizer) for s in case["schedulers"]]
    size, every, clip = case["batch_size"], case["accumulate_grad_batches"], case["gradient_clip"]
    lrs, norms, seen = [], [], 0
    for _ in range(case["max_epochs"]):
        starts = range(0, ROWS, size)
        for at, start in enumerate(starts):
            (F.cross_entropy(model(data["x"][start:min(start + size, ROWS)]), data["y"][start:min(start + size, ROWS)]) / every).backward()
            seen += 1
            carried = case["semantics"] == "deepspeed"
            if (seen if carried else at + 1) % every and (carried or at + 1 < len(starts)):
                continue
            trained = [p for p in model.parameters() if p.grad is not None]
            norms.append(torch.linalg.vector_norm(torch.stack([p.grad.norm() for p in trained])).item())
            if clip and clip["algorithm"] == "norm":
                nn.utils.clip_grad_norm_(trained, clip["value"])
            if clip and clip["algorithm"] == "value":
                nn.utils.clip_grad_value_(trained, clip["value"])
            lrs.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            optimizer.zero_grad()
            for spec, scheduler in zip(case["schedulers"], schedulers):
                if spec["interval"] == "step":
                    scheduler.step()
        for spec, scheduler in zip(case["schedulers"], schedulers):
            if spec["interval"] == "epoch":
                scheduler.step()
    return lrs, norms


class Values(ProgramTest):
    def setUp(self):
        super().setUp()
        for name in ("digits", "lm_tokens"):
            os.symlink(HERE / f"{name}.safetensors", self.folder / f"{name}.safetensors")
        (self.folder / "case").mkdir()

    def start_case(self, case, init):
        (self.folder / "case" / "case.json").write_text(json.dumps(case))
        save_file(init, self.folder / "case" / "init.safetensors")
        return self.run_program(PARITY_CASE, self.folder / "case", self.folder / "out")

    def run_case(self, case, init):
        result = self.start_case(case, init)
        self.assertEqual(result.code, 0, result)
        return json.loads((self.folder / "out" / "result.json").read_text()), load_file(self.folder / "out" / "final.safetensors")

    def assert_near(self, got, expected, rtol, atol):
        torch.testing.assert_close(torch.tensor(got, dtype=torch.float64), torch.tensor(expected, dtype=torch.float64), rtol=rtol, atol=atol)

    def assert_as_in_torch(self, **changes):
        case = {**BASE, **changes}
        with self.subTest(changes):
            torch.manual_seed(1)
            model = Mlp(case["model"])
            result, final = self.run_case(case, {name: value.clone() for name, value in model.state_dict().items()})
            lrs, norms = train(case, model)
            self.assert_near(result["lrs"], lrs, 1e-9, 1e-12)
            self.assert_near(result["grad_norms"], norms, 1e-4, 1e-6)
            for name, value in model.state_dict().items():
                torch.testing.assert_close(final[name], value, rtol=0, atol=5e-5 if case["optimizer"]["name"] == "adamw" else 5e-6)

    def test_schedulers(self):
        for scheduler in SCHEDULERS:
            self.assert_as_in_torch(schedulers=[{**scheduler, "interval": "step"}])
        self.assert_as_in_torch(schedulers=[{**ONE_CYCLE, "interval": "step"}], optimizer=ADAMW)
        self.assert_as_in_torch(schedulers=[{"type": "exponential", "gamma": 0.5, "interval": "epoch"}])

    def test_optimizers_and_models(self):
        for optimizer in OPTIMIZERS:
            self.assert_as_in_torch(optimizer=optimizer)
        for model in MODELS:
            self.assert_as_in_torch(model=model, optimizer=ADAMW)

    def test_windows_and_limits_of_gradients(self):
        for semantics in ("lightning", "deepspeed"):
            self.assert_as_in_torch(accumulate_grad_batches=5, semantics=semantics)
        for algorithm in ("norm", "value"):
            self.assert_as_in_torch(gradient_clip={"algorithm": algorithm, "value": 0.05})

    def lm_init(self):
        torch.manual_seed(1)
        width, sizes = LM["d_model"], {"tok.weight": (LM["vocab"], LM["d_model"]), "pos.weight": (LM["context"], LM["d_model"])}
        for i in range(LM["layers"]):
            sizes.update({f"blocks.{i}.attn.qkv.weight": (3 * width, width), f"blocks.{i}.attn.proj.weight": (width, width),
                          f"blocks.{i}.attn.proj.bias": (width,), f"blocks.{i}.mlp.fc.weight": (4 * width, width),
                          f"blocks.{i}.mlp.fc.bias": (4 * width,), f"blocks.{i}.mlp.proj.weight": (width, 4 * width),
                          f"blocks.{i}.mlp.proj.bias": (width,)})
        init = {name: 0.1 * torch.randn(size) for name, size in sizes.items()}
        for norm in ("ln_f", *(f"blocks.{i}.ln{j}" for i in range(LM["layers"]) for j in (1, 2))):
            init.update({f"{norm}.weight": torch.ones(width), f"{norm}.bias": torch.zeros(width)})
        return init

    def test_strategies(self):
        init = self.lm_init()
        expected, weights = self.run_case(BASE_LM, init)
        for strategy in STRATEGIES:
            with self.subTest(strategy):
                case = {**BASE_LM, "strategy": strategy, "semantics": "deepspeed" if strategy["name"] == "deepspeed" else "lightning"}
                result, final = self.run_case(case, init)
                self.assert_near(result["losses_per_rank"], expected["losses_per_rank"], 1e-5, 1e-6)
                for name, value in weights.items():
                    torch.testing.assert_close(final[name], value, rtol=0, atol=5e-5)

    def test_activations_of_the_language_model(self):
        init = self.lm_init()
        losses = {name: self.run_case({**BASE_LM, "model": {**LM, "activation": name}}, init)[0]["losses_per_rank"][0][0]
                  for name in ("gelu", "gelu_tanh")}
        self.assertNotEqual(*losses.values())
        self.assertAlmostEqual(*losses.values(), delta=1e-3)

    def test_precisions(self):
        torch.manual_seed(1)
        init = Mlp(MLP).state_dict()
        deepspeed = {"train_micro_batch_size_per_gpu": BATCH, "bf16": {"enabled": True}, "zero_optimization": {"stage": 1}}
        for precision, changes, final_type in (
                ("32-true", {}, torch.float32), ("bf16-mixed", {}, torch.float32), ("16-mixed", {}, torch.float32),
                ("bf16-true", {"strategy": {"name": "deepspeed", "stage": 1, "config": deepspeed}}, torch.bfloat16)):
            with self.subTest(precision):
                result, final = self.run_case({**BASE, **changes, "precision": precision}, init)
                self.assertEqual({value.dtype for value in final.values()}, {final_type})
                self.assertEqual(result["steps"], STEPS)

    def test_others_are_refused_by_name(self):
        init = Mlp(MLP).state_dict()
        fsdp = {"name": "fsdp", "sharding_strategy": "FULL_SHARD", "wrap": "root"}
        for field, changes in (
                ("schedulers.type", {"schedulers": [{"type": "wavy", "interval": "step"}]}),
                ("schedulers", {"schedulers": [{**SCHEDULERS[0], "interval": "step"}] * 2}),
                ("optimizer.name", {"optimizer": {**SGD, "name": "wavy"}}), ("strategy.name", {"strategy": {"name": "wavy"}}),
                ("strategy.wrap", {"strategy": {**fsdp, "wrap": "wavy"}}),
                ("strategy.sharding_strategy", {"strategy": {**fsdp, "sharding_strategy": "wavy"}}),
                ("model.activation", {"model": {**MLP, "activation": "wavy"}}), ("model.type", {"model": {"type": "wavy"}}),
                ("gradient_clip.algorithm", {"gradient_clip": {"algorithm": "wavy", "value": 1.0}}),
                ("semantics", {"semantics": "wavy"}), ("precision", {"precision": "wavy"})):
            with self.subTest(field):
                result = self.start_case({**BASE, **changes}, init)
                self.assertNotEqual(result.code, 0, result)
                self.assertIn(f"case.json: {field}", result.err)

    def test_the_page_names_every_value(self):
        page = (HERE / "README.md").read_text()
        names = [s["type"] for s in SCHEDULERS] + [o["name"] for o in OPTIMIZERS] + [m["type"] for m in (MLP, LM)]
        names += [s["name"] for s in STRATEGIES] + [s["wrap"] for s in STRATEGIES if "wrap" in s]
        names += [s["sharding_strategy"] for s in STRATEGIES if "wrap" in s]
        names += ["relu", "tanh", "gelu", "gelu_tanh", "norm", "value", "lightning", "deepspeed", "bf16-mixed", "bf16-true", "16-mixed", "32-true"]
        self.assertEqual([name for name in names if f"`{name}`" not in page], [])


if __name__ == "__main__":
    unittest.main()
