#!/usr/bin/env python3
"""Prints the table of deepspeed_rates.inc: learning rates and betas that DeepSpeed's own schedulers set.

    python3 deepspeed_rates.py > deepspeed_rates.inc     (needs deepspeed; made with 0.19.8)

Each row is a case of lr_schedules_test.cpp by its name, the time t = last_batch_iteration, the learning rate of
the group, and for OneCycle its two betas.
"""
import logging

import torch
from deepspeed.runtime import lr_schedules as schedules
from deepspeed.utils import logger

logger.setLevel(logging.ERROR)

TIMES = [-1, 0, 1, 2, 3, 5, 8, 9, 10, 11, 15, 19, 20, 24, 25, 26, 30, 31, 40, 100]
CASES = {
    "warmup_log": ("WarmupLR", dict(warmup_max_lr=0.01, warmup_num_steps=10)),
    "warmup_linear": ("WarmupLR", dict(warmup_min_lr=1e-4, warmup_num_steps=10, warmup_type="linear")),
    "warmup_one_step": ("WarmupLR", dict(warmup_num_steps=1)),
    "decay_log": ("WarmupDecayLR", dict(total_num_steps=30, warmup_min_lr=1e-5, warmup_num_steps=10)),
    "decay_linear": ("WarmupDecayLR",
                     dict(total_num_steps=30, warmup_max_lr=0.02, warmup_num_steps=10, warmup_type="linear")),
    "decay_too_short": ("WarmupDecayLR", dict(total_num_steps=5, warmup_num_steps=10)),
    "cosine": ("WarmupCosineLR", dict(total_num_steps=30, warmup_num_steps=10)),
    "cosine_ratios": ("WarmupCosineLR", dict(total_num_steps=30, warmup_min_ratio=0.1, warmup_num_steps=8,
                                             cos_min_ratio=0.05, warmup_type="linear")),
    "cycle": ("OneCycle", dict(cycle_min_lr=1e-3, cycle_max_lr=1e-2, cycle_first_step_size=10,
                               decay_lr_rate=0.5, decay_step_size=3, decay_mom_rate=0.01)),
    "cycle_uneven": ("OneCycle", dict(cycle_min_lr=1e-3, cycle_max_lr=1e-2, cycle_first_step_size=7,
                                      cycle_second_step_size=18, cycle_min_mom=0.85, cycle_max_mom=0.95)),
    "cycle_stairs": ("OneCycle", dict(cycle_min_lr=1e-3, cycle_max_lr=1e-2, cycle_first_step_size=9,
                                      cycle_second_step_size=16, cycle_first_stair_count=3,
                                      cycle_second_stair_count=4)),
    "cycle_one_way": ("OneCycle", dict(cycle_min_lr=1e-3, cycle_max_lr=1e-2, cycle_first_step_size=10,
                                       cycle_second_step_size=0)),
    "range": ("LRRangeTest", dict(lr_range_test_min_lr=1e-4, lr_range_test_step_size=7)),
    "range_stairs": ("LRRangeTest", dict(lr_range_test_min_lr=1e-4, lr_range_test_step_size=7,
                                         lr_range_test_step_rate=2.5, lr_range_test_staircase=True)),
}


def rows(name):
    kind, params = CASES[name]
    optimizer = torch.optim.Adam([torch.zeros(1, requires_grad=True)], lr=3e-3)
    scheduler = getattr(schedules, kind)(optimizer, **params)
    for time in range(-1, max(TIMES) + 1):
        if time >= 0:
            scheduler.step()
        if time in TIMES:
            group = optimizer.param_groups[0]
            betas = group["betas"] if kind == "OneCycle" else (0.0, 0.0)
            yield f'{{"{name}", {time}, {group["lr"]!r}, {betas[0]!r}, {betas[1]!r}}},'


print("// Made by deepspeed_rates.py with DeepSpeed 0.19.8: case, t, learning rate, betas.")
for case in CASES:
    print("\n".join(rows(case)))
