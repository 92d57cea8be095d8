#!/usr/bin/env python3
"""Writes golden_optimizers.json: what other people's optimizers do to a few parameters.

Usage: make_golden_optimizers.py > golden_optimizers.json, with a Python that has torch 2.13 and DeepSpeed
0.19 (which compiles its CPU Adam and Lion at first use).
Each case holds the values of all parameters after STEPS steps. Start and gradients are fractions that float32
holds exactly, so the test repeats them; none is 0, for which DeepSpeed's Lion takes a step and ours does not.
Adagrad and Muon are torch.optim's, Lion is DeepSpeedCPULion, Adam without bias correction DeepSpeedCPUAdam. Muon leaves the parameters that are no hidden
matrices to torch.optim.AdamW, as its documentation says. FusedLamb runs on CUDA alone: `lamb_step` follows its
kernel (csrc/lamb/fused_lamb_cuda_kernel.cu).
"""
import contextlib
import json
import sys

import torch

STEPS = 6
SHAPES = {"hidden.weight": (6, 4), "wide.weight": (3, 8), "embed.weight": (5, 3), "conv.weight": (2, 3, 4),
          "hidden.bias": (13,)}


def values(shape, seed):
    count = torch.Size(shape).numel()
    numbers = [(2 * ((i * 37 + seed * 101) % 97) - 97) / 128 for i in range(count)]
    return torch.tensor(numbers).reshape(shape)


def parameters():
    return {name: torch.nn.Parameter(values(shape, k)) for k, (name, shape) in enumerate(SHAPES.items())}


def set_gradients(model, step):
    for k, parameter in enumerate(model.values()):
        parameter.grad = values(parameter.shape, 10 + 7 * step + k)


def trained(*makes):
    model = parameters()
    steps = [make(model) for make in makes]
    for step in range(STEPS):
        set_gradients(model, step)
        for one in steps:
            one()
    return {name: [round(x, 9) for x in parameter.detach().flatten().tolist()] for name, parameter in model.items()}


def of(kind, chosen=lambda name, parameter: True, **options):
    def make(model):
        return kind([p for n, p in model.items() if chosen(n, p)], **options).step
    return make


def is_hidden_matrix(name, parameter):
    return parameter.dim() == 2 and "embed" not in name


def is_other(name, parameter):
    return not is_hidden_matrix(name, parameter)


@torch.no_grad()
def lamb_step(p, state, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0, bias_correction=True,
              eps_inside_sqrt=False, max_coeff=10.0, min_coeff=0.01):
    state["step"] = state.get("step", 0) + 1
    m = state.setdefault("m", torch.zeros_like(p))
    v = state.setdefault("v", torch.zeros_like(p))
    m.copy_(betas[0] * m + (1 - betas[0]) * p.grad)
    v.copy_(betas[1] * v + (1 - betas[1]) * p.grad * p.grad)
    denominator = torch.sqrt(v + eps) if eps_inside_sqrt else torch.sqrt(v) + eps
    update = m / denominator + weight_decay * p
    weight_norm, update_norm = p.norm(), update.norm()
    coefficient = 1.0
    if weight_norm != 0 and update_norm != 0:
        coefficient = min(max((weight_norm / update_norm).item(), min_coeff), max_coeff)
    step_size = lr
    if bias_correction:
        step_size = lr * (1 - betas[1] ** state["step"]) ** 0.5 / (1 - betas[0] ** state["step"])
    p.sub_(step_size * coefficient * update)


def lamb(**options):
    def make(model):
        states = {name: {} for name in model}
        return lambda: [lamb_step(p, states[name], **options) for name, p in model.items()]
    return make


def cases():
    from deepspeed.ops.adam import DeepSpeedCPUAdam as Adam
    from deepspeed.ops.lion import DeepSpeedCPULion as Lion
    from torch.optim import Adagrad, AdamW, Muon
    return {
        "adam_uncorrected": trained(of(Adam, lr=0.02, betas=(0.8, 0.95), weight_decay=0.1, bias_correction=False,
                                       adamw_mode=False)),
        "adamw_uncorrected": trained(of(Adam, lr=0.02, betas=(0.8, 0.95), eps=1e-3, weight_decay=0.1,
                                        bias_correction=False)),
        "adagrad": trained(of(Adagrad)),
        "adagrad_options": trained(of(Adagrad, lr=0.1, lr_decay=0.2, weight_decay=0.1, initial_accumulator_value=0.5,
                                      eps=1e-3, maximize=True)),
        "lion": trained(of(Lion)),
        "lion_options": trained(of(Lion, lr=0.02, betas=(0.8, 0.95), weight_decay=0.1)),
        "lamb": trained(lamb()),
        "lamb_options": trained(lamb(lr=0.05, betas=(0.8, 0.95), eps=0.01, weight_decay=0.1, bias_correction=False,
                                     eps_inside_sqrt=True)),
        "lamb_bounds": trained(lamb(lr=0.05, min_coeff=0.4, max_coeff=0.5)),
        "muon": trained(of(Muon, is_hidden_matrix),
                        of(AdamW, is_other, lr=3e-4, betas=(0.9, 0.95), eps=1e-10, weight_decay=0.1)),
        "muon_options": trained(of(Muon, is_hidden_matrix, lr=0.05, weight_decay=0.2, momentum=0.8, nesterov=False,
                                   ns_coefficients=(3.0, -3.2, 1.2), ns_steps=3, adjust_lr_fn="match_rms_adamw"),
                                of(AdamW, is_other, lr=0.01, betas=(0.8, 0.9), eps=1e-3, weight_decay=0.2)),
    }


if __name__ == "__main__":
    with contextlib.redirect_stdout(sys.stderr):
        golden = cases()
    lines = [f'"{case}": {{\n' + ",\n".join(f'  "{name}": {json.dumps(end)}' for name, end in model.items()) + "}"
             for case, model in golden.items()]
    print("{" + ",\n".join(lines) + "}")
