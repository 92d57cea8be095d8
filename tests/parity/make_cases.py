#!/usr/bin/env python3
"""make_cases.py [NAME...]: writes the cases ddp_16_mixed, ddp_convnet_bn, ddp_groups, ddp_of_four,
ddp_unused_frozen and ddp_validation, or those named.

Runs plain PyTorch (DistributedDataParallel, DistributedSampler, torch.optim; CPU, Gloo) in processes of
its own and writes case.json, init.safetensors, expected.json and final.safetensors of each case beside this
file. Needs torch and safetensors. The format is described in README.md. To see what rounding does to a
run, each is done a second time with starting weights changed by 6e-8 of themselves: how far that moves the
numbers is written into tolerance_reason.
"""
import json
import os
import pathlib
import socket
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DistributedSampler

HERE = pathlib.Path(__file__).parent
ROWS, WORLD, BATCH = 1797, 2, 32
SEMANTICS_NOTE = "No accumulation: the optimizer steps after every micro batch."
SGD = {"name": "sgd", "lr": 0.05, "momentum": 0.9, "dampening": 0.0, "weight_decay": 0.0, "nesterov": False}
ADAMW = {"name": "adamw", "lr": 0.002, "betas": [0.9, 0.999], "eps": 1e-08, "weight_decay": 0.1}
MLP = {"type": "mlp", "layers": [64, 32, 24, 10], "activation": "relu"}
CONVNET = {
    "type": "convnet_bn",
    "input": [1, 8, 8],
    "layers": ["conv2d 1->8 k3", "batchnorm2d 8", "relu", "conv2d 8->16 k3", "batchnorm2d 16", "relu", "flatten", "linear 256->10"],
    "bn_eps": 1e-05,
    "bn_momentum": 0.1,
}
# (losses rtol, atol), (grad_norms rtol, atol), (eval and val loss rtol, atol), final
SGD_TOLERANCE = ((1e-5, 1e-6), (1e-5, 1e-6), (1e-5, 1e-6), {"rtol": 0, "atol": 2e-6, "rms": 5e-7})
ADAMW_TOLERANCE = ((1e-5, 2e-6), (1e-5, 1e-6), (1e-5, 1e-6), {"rtol": 0, "atol": 5e-5, "rms": 1e-6})
FP16_TOLERANCE = ((1e-2, 1e-2), (3e-2, 1e-2), (1e-2, 1e-2), {"rtol": 0, "atol": 3e-2, "rms": 2e-3})
BN_TOLERANCE = ((2e-5, 5e-6), (2e-5, 5e-6), (2e-5, 2e-6), {"rtol": 1e-6, "atol": 5e-6, "rms": 1e-6})


def ranges(start, stop):
    return [[i, min(i + 64, stop)] for i in range(start, stop, 64)]


CASES = {
    "ddp_16_mixed": {
        "title": "DDP, float16 autocast with a gradient scaler and float32 parameters",
        "model": MLP,
        "precision": "16-mixed",
        "optimizer": SGD,
        "tolerance": FP16_TOLERANCE,
    },
    "ddp_convnet_bn": {
        "title": "DDP, convolutional net with batch norm of each rank's own batch",
        "model": CONVNET,
        "optimizer": SGD,
        "tolerance": BN_TOLERANCE,
    },
    "ddp_groups": {
        "title": "DDP, AdamW with parameter groups, exponential schedule per epoch",
        "model": MLP,
        "optimizer": {
            **ADAMW,
            "groups": [
                {"parameters": ["0.bias", "2.bias", "4.bias"], "lr": 0.002, "weight_decay": 0.0},
                {"parameters": ["4.weight"], "lr": 0.0005, "weight_decay": 0.3},
                {"parameters": ["0.weight", "2.weight"], "lr": 0.002, "weight_decay": 0.1},
            ],
        },
        "schedulers": [{"type": "exponential", "interval": "epoch", "gamma": 0.5}],
        "tolerance": ADAMW_TOLERANCE,
    },
    "ddp_of_four": {
        "title": "DDP of four ranks, AdamW",
        "model": MLP,
        "world_size": 4,
        "optimizer": ADAMW,
        "tolerance": ADAMW_TOLERANCE,
    },
    "ddp_unused_frozen": {
        "title": "DDP, frozen parameters and a layer that is never called, AdamW with weight decay",
        "model": {**MLP, "unused": {"name": "spare", "in": 64, "out": 8}, "frozen": ["0.weight", "2.bias"]},
        "strategy": {"name": "ddp", "find_unused_parameters": True},
        "optimizer": ADAMW,
        "tolerance": ADAMW_TOLERANCE,
    },
    "ddp_validation": {
        "title": "DDP, validation after every epoch on ranks with unequal batches",
        "model": MLP,
        "optimizer": SGD,
        "validation": {"batches_per_rank": [ranges(0, 201), ranges(201, 401)]},
        "tolerance": SGD_TOLERANCE,
    },
}


def build_layer(text, model):
    kind, *rest = text.split()
    if kind == "conv2d":
        a, b = rest[0].split("->")
        return nn.Conv2d(int(a), int(b), int(rest[1][1:]))
    if kind == "batchnorm2d":
        return nn.BatchNorm2d(int(rest[0]), eps=model["bn_eps"], momentum=model["bn_momentum"])
    if kind == "linear":
        return nn.Linear(*map(int, rest[0].split("->")))
    return {"relu": nn.ReLU, "flatten": nn.Flatten}[kind]()


class Model(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.shape = model.get("input")
        self.order = []
        if model["type"] == "mlp":
            sizes = model["layers"]
            layers = [m for a, b in zip(sizes, sizes[1:]) for m in (nn.Linear(a, b), nn.ReLU())][:-1]
        else:
            layers = [build_layer(text, model) for text in model["layers"]]
        for i, layer in enumerate(layers):
            self.add_module(str(i), layer)
            self.order.append(layer)
        if "unused" in model:
            self.add_module(model["unused"]["name"], nn.Linear(model["unused"]["in"], model["unused"]["out"]))
        for name in model.get("frozen", []):
            self.get_parameter(name).requires_grad_(False)

    def forward(self, x):
        if self.shape:
            x = x.view(-1, *self.shape)
        for layer in self.order:
            x = layer(x)
        return x


def make_optimizer(spec, model):
    named = {n: p for n, p in model.named_parameters() if p.requires_grad}
    groups = [
        {"params": [named[n] for n in g["parameters"]], "lr": g["lr"], "weight_decay": g["weight_decay"]}
        for g in spec.get("groups", [{"parameters": list(named), "lr": spec["lr"], "weight_decay": spec["weight_decay"]}])
    ]
    if spec["name"] == "sgd":
        return torch.optim.SGD(groups, lr=spec["lr"], momentum=spec["momentum"])
    return torch.optim.AdamW(groups, lr=spec["lr"], betas=spec["betas"], eps=spec["eps"])


def validate(model, x, y, batches):
    model.eval()
    sums = torch.zeros(3, dtype=torch.float64)  # loss, correct, rows
    with torch.no_grad():
        for start, stop in batches:
            logits = model(x[start:stop])
            sums += torch.tensor([
                F.cross_entropy(logits, y[start:stop]).item() * (stop - start),
                (logits.argmax(1) == y[start:stop]).sum().item(),
                stop - start,
            ], dtype=torch.float64)
    model.train()
    dist.all_reduce(sums)
    return (sums[0] / sums[2]).item(), (sums[1] / sums[2]).item()


def train(rank, case, init, port, out):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=case["world_size"])
    data = load_file(HERE / case["data"]["file"])
    x, y = data["x"][:ROWS], data["y"][:ROWS]
    model = Model(case["model"])
    model.load_state_dict(init)
    optimizer = make_optimizer(case["optimizer"], model)
    schedulers = [torch.optim.lr_scheduler.ExponentialLR(optimizer, s["gamma"]) for s in case["schedulers"]]
    wrapped = DistributedDataParallel(model, find_unused_parameters=case["strategy"].get("find_unused_parameters", False))
    scaler = torch.amp.GradScaler("cpu", enabled=case["precision"] == "16-mixed")
    sampler = DistributedSampler(range(ROWS), case["world_size"], rank, shuffle=True, seed=case["sampler"]["seed"])
    seen = {"losses": [], "batches": [], "sizes": [], "lrs": [[] for _ in optimizer.param_groups], "norms": [], "val": []}
    for epoch in range(case["max_epochs"]):
        sampler.set_epoch(epoch)
        indices = list(sampler)
        for start in range(0, len(indices), BATCH):
            rows = indices[start:start + BATCH]
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.float16, enabled=scaler.is_enabled()):
                loss = F.cross_entropy(wrapped(x[rows]), y[rows])
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            grads = [p.grad for p in model.parameters() if p.grad is not None]
            seen["losses"].append(loss.item())
            seen["batches"].append(rows)
            seen["sizes"] += [len(rows)] if epoch == 0 else []
            seen["norms"].append(torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(g) for g in grads])).item())
            for lrs, group in zip(seen["lrs"], optimizer.param_groups):
                lrs.append(group["lr"])
            scaler.step(optimizer)
            scaler.update()
        if "validation" in case:
            seen["val"].append(validate(model, x, y, case["validation"]["batches_per_rank"][rank]))
        for scheduler in schedulers:
            scheduler.step()
    model.eval()
    with torch.no_grad():
        logits = model(x)
        seen["eval"] = (F.cross_entropy(logits, y).item(), (logits.argmax(1) == y).sum().item())
    torch.save((seen, model.state_dict()), f"{out}/{rank}.pt")
    dist.destroy_process_group()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def run(case, init, folder):
    world = case["world_size"]
    mp.spawn(train, (case, init, free_port(), str(folder)), nprocs=world)
    parts = [torch.load(folder / f"{rank}.pt") for rank in range(world)]
    for rank in range(world):
        (folder / f"{rank}.pt").unlink()
    return [seen for seen, _ in parts], parts[0][1]


def described(name, parameter):
    return {"shape": list(parameter.shape), "is": name if parameter.is_floating_point() else name + ", int64"}


def case_of(name, spec, state):
    keep = {k: v for k, v in spec.items() if k != "tolerance"}
    case = {
        "format": 1,
        "name": name,
        "title": keep.pop("title"),
        "model": keep.pop("model"),
        "parameter_names": {n: described(n, p) for n, p in state.items()},
        "loss": {"type": "cross_entropy", "reduction": "mean"},
        "data": {"type": "classification", "file": "digits.safetensors", "x": "x", "y": "y", "rows": ROWS},
        "world_size": WORLD,
        "strategy": {"name": "ddp"},
        "precision": "32-true",
        "schedulers": [],
        "batch_size": BATCH,
        "max_epochs": 3,
        "max_steps": None,
        "accumulate_grad_batches": 1,
        "gradient_clip": None,
        "sampler": {"type": "distributed", "seed": 0, "shuffle": True, "drop_last": False},
        "loader": {"drop_last": False},
        "semantics": "lightning",
        "semantics_note": SEMANTICS_NOTE,
        "sync_batchnorm": False,
        "eval": {"rows": "all, in stored order, one batch", "dtype": "float32"},
        "final_dtype": "float32",
        "peer": {"name": "torch DistributedDataParallel", "versions": {"torch": torch.__version__}, "device": "cpu", "backend": "gloo"},
    }
    return {**case, **keep}


def expected_of(case, seen, tolerance):
    losses, norms, means, final = [dict(zip(("rtol", "atol"), t)) if isinstance(t, tuple) else t for t in tolerance]
    exact = {"rtol": 0.0, "atol": 0.0}
    rates = {"rtol": 1e-9, "atol": 1e-12}
    values = {
        "losses_per_rank": ([s["losses"] for s in seen], losses),
        "lrs": (seen[0]["lrs"][0], rates),
        "grad_norms": (seen[0]["norms"], norms),
        "first_batches_per_rank": ([s["batches"][:3] for s in seen], exact),
        "batch_sizes_per_rank": ([s["sizes"] for s in seen], exact),
        "micro_batches": (len(seen[0]["losses"]), exact),
        "steps": (len(seen[0]["losses"]), exact),
        "eval_loss": (seen[0]["eval"][0], means),
        "eval_accuracy": (seen[0]["eval"][1] / ROWS, {"rtol": 0, "atol": 1.1 / ROWS}),
        "eval_correct": (seen[0]["eval"][1], {"rtol": 0, "atol": 1}),
    }
    if "groups" in case["optimizer"]:
        values["lrs_per_group"] = (seen[0]["lrs"], rates)
    if "validation" in case:
        rows = max(batches[-1][1] for batches in case["validation"]["batches_per_rank"])
        values["val_loss"] = ([loss for loss, _ in seen[0]["val"]], means)
        values["val_accuracy"] = ([accuracy for _, accuracy in seen[0]["val"]], {"rtol": 0, "atol": 1.1 / rows})
    return {
        "format": 1,
        "name": case["name"],
        **{key: value for key, (value, _) in values.items()},
        "optional": ["micro_batches", "batch_sizes_per_rank", "eval_correct"],
        "tolerance": {**{key: tol for key, (_, tol) in values.items()}, "final": final},
    }


def moved(seen, other, state, other_state):
    losses = max(abs(a - b) for s, o in zip(seen, other) for a, b in zip(s["losses"], o["losses"]))
    norms = max(abs(a - b) for a, b in zip(seen[0]["norms"], other[0]["norms"]))
    final = max((a.double() - other_state[n].double()).abs().max().item() for n, a in state.items())
    return f"starting weights changed by 6e-8 of themselves move losses by up to {losses:.1e}, norms by {norms:.1e}, final values by {final:.1e}"


def write(name, spec):
    folder = HERE / name
    folder.mkdir(exist_ok=True)
    torch.manual_seed(1234)
    init = {n: t.clone().contiguous() for n, t in Model(spec["model"]).state_dict().items()}
    case = case_of(name, spec, init)
    seen, final = run(case, init, folder)
    nudged = {n: t * (1 + 6e-8 * torch.sign(torch.randn_like(t))) if t.is_floating_point() else t for n, t in init.items()}
    other, other_final = run(case, nudged, folder)
    expected = expected_of(case, seen, spec["tolerance"])
    expected["tolerance_reason"] = moved(seen, other, final, other_final)
    for file, content in (("case.json", case), ("expected.json", expected)):
        (folder / file).write_text(json.dumps(content, indent=1) + "\n")
    save_file(init, folder / "init.safetensors")
    save_file({n: t.contiguous() for n, t in final.items()}, folder / "final.safetensors")
    print(name, expected["tolerance_reason"])


if __name__ == "__main__":
    for case_name in sys.argv[1:] or CASES:
        write(case_name, CASES[case_name])
