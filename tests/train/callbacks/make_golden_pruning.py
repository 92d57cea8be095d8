#!/usr/bin/env python3
"""Writes golden_pruning.json: masks of torch.nn.utils.prune.

Usage: make_golden_pruning.py > golden_pruning.json, with a Python that has torch.
Each case prunes the same weight two times: the second time what is left of it.
"""
import json

import torch
from torch import nn
from torch.nn.utils import prune

WEIGHT = [[0.3, -0.1, 0.9, 0.05], [-0.7, 0.2, -0.4, 0.6], [0.01, -0.02, 0.03, 0.8]]


def layer():
    made = nn.Linear(4, 3, bias=False)
    made.weight.data = torch.tensor(WEIGHT)
    return made


def masks(prune_once):
    pruned, found = layer(), []
    for _ in range(2):
        prune_once(pruned)
        found.append(pruned.weight_mask.int().tolist())
    return found


def global_masks(amount):
    layers = [layer(), layer()]
    layers[1].weight.data = layers[1].weight.data * 2 + 0.015
    found = []
    for _ in range(2):
        prune.global_unstructured([(one, "weight") for one in layers], prune.L1Unstructured, amount=amount)
        found.append([one.weight_mask.int().tolist() for one in layers])
    return found


CASES = {
    "l1_half": masks(lambda l: prune.l1_unstructured(l, "weight", 0.5)),
    "l1_three": masks(lambda l: prune.l1_unstructured(l, "weight", 3)),
    "ln_rows": masks(lambda l: prune.ln_structured(l, "weight", 1, n=2, dim=0)),
    "ln_columns": masks(lambda l: prune.ln_structured(l, "weight", 0.5, n=1, dim=-1)),
    "global": global_masks(0.4),
}

if __name__ == "__main__":
    cases = {"about": f"made by make_golden_pruning.py with torch {torch.__version__}", "weight": WEIGHT, **CASES}
    print("{\n" + ",\n".join(f' "{name}": {json.dumps(case)}' for name, case in cases.items()) + "\n}")
