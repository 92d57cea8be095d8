#!/usr/bin/env python3
"""Writes golden_schedulers.json: learning-rate curves of torch.optim.lr_scheduler.

Usage: make_golden_schedulers.py > golden_schedulers.json, with a Python that has torch.
Each curve is what two parameter groups (base learning rates 0.1 and 0.02) of an SGD, or for momentum an
AdamW, optimizer have after k = 0, 1, ... scheduler steps. The test repeats each case by its name.
"""
import json
import warnings

import torch
from torch.optim import lr_scheduler as schedulers
from torch.optim.swa_utils import SWALR

warnings.filterwarnings("ignore")
STEPS = 60


def optimizer(kind):
    groups = [{"params": [torch.zeros(1)], "lr": lr} for lr in (0.1, 0.02)]
    return kind(groups, lr=1.0, **({"momentum": 0.9} if kind is torch.optim.SGD else {}))


def momentum_of(group):
    return group["betas"][0] if "betas" in group else group["momentum"]


def curve(make, kind=torch.optim.SGD, steps=STEPS):
    target = optimizer(kind)
    scheduler = make(target)
    lrs, momenta = [], []
    for k in range(steps):
        lrs.append([group["lr"] for group in target.param_groups])
        momenta.append(momentum_of(target.param_groups[0]))
        if k + 1 < steps:
            target.step()
            scheduler.step()
    return {"lrs": lrs, "momentum": momenta}


def metric(k):
    return 1.0 / (k + 1) if k < 8 else 0.1 + 0.01 * ((k * 7) % 13)


def plateau_curve(steps=STEPS, **options):
    target = optimizer(torch.optim.SGD)
    scheduler = schedulers.ReduceLROnPlateau(target, **options)
    lrs, metrics = [], []
    for k in range(steps):
        lrs.append([group["lr"] for group in target.param_groups])
        metrics.append(metric(k))
        scheduler.step(metrics[-1])
    return {"lrs": lrs, "metrics": metrics}


def sequential(o):
    first = schedulers.LinearLR(o, start_factor=0.1, total_iters=10)
    return schedulers.SequentialLR(o, [first, schedulers.CosineAnnealingLR(o, 77)], milestones=[10])


def three_in_a_row(o):
    parts = [schedulers.ConstantLR(o, factor=0.5, total_iters=3), schedulers.ExponentialLR(o, 0.9),
             schedulers.StepLR(o, 4)]
    return schedulers.SequentialLR(o, parts, milestones=[5, 20])


CASES = {
    "constant": curve(lambda o: schedulers.ConstantLR(o)),
    "linear": curve(lambda o: schedulers.LinearLR(o)),
    "linear_down": curve(lambda o: schedulers.LinearLR(o, start_factor=1.0, end_factor=0.25, total_iters=30)),
    "exponential": curve(lambda o: schedulers.ExponentialLR(o, 0.93)),
    "step": curve(lambda o: schedulers.StepLR(o, 7, gamma=0.5)),
    "multi_step": curve(lambda o: schedulers.MultiStepLR(o, [3, 11, 11, 40])),
    "cosine": curve(lambda o: schedulers.CosineAnnealingLR(o, 25, eta_min=0.001)),
    "lambda": curve(lambda o: schedulers.LambdaLR(o, lambda k: 0.95**k / (1 + k))),
    "one_cycle": curve(lambda o: schedulers.OneCycleLR(o, 0.5, total_steps=STEPS)),
    "one_cycle_linear": curve(lambda o: schedulers.OneCycleLR(
        o, 0.5, total_steps=STEPS, pct_start=0.4, anneal_strategy="linear",
        base_momentum=0.8, max_momentum=0.9, div_factor=10.0, final_div_factor=100.0)),
    "one_cycle_three_phase": curve(
        lambda o: schedulers.OneCycleLR(o, 0.5, total_steps=STEPS, three_phase=True), kind=torch.optim.AdamW),
    "one_cycle_fixed_momentum": curve(lambda o: schedulers.OneCycleLR(
        o, 0.5, total_steps=STEPS, pct_start=0.0, cycle_momentum=False)),
    "sequential": curve(sequential),
    "sequential_three": curve(three_in_a_row),
    "plateau": plateau_curve(),
    "plateau_cooldown": plateau_curve(factor=0.5, patience=3, cooldown=4, min_lr=0.004),
    "plateau_max_abs": plateau_curve(
        mode="max", patience=2, threshold=0.02, threshold_mode="abs", factor=0.8),
    "swa": curve(lambda o: SWALR(o, 0.05)),
    "swa_by_group": curve(lambda o: SWALR(o, [0.03, 0.2], anneal_epochs=7, anneal_strategy="linear")),
    "swa_at_once": curve(lambda o: SWALR(o, 0.05, anneal_epochs=0)),
}

if __name__ == "__main__":
    about = f"made by make_golden_schedulers.py with torch {torch.__version__}"
    lines = [f' "{name}": {json.dumps(case)}' for name, case in CASES.items()]
    print("{\n" + f' "about": "{about}",\n' + ",\n".join(lines) + "\n}")
