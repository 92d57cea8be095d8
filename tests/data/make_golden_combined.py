#!/usr/bin/env python3
"""Writes golden_combined.json: what Lightning's CombinedLoader gives.

Usage: make_golden_combined.py > golden_combined.json, with a Python that has lightning.
Each case is a mode, the lengths of the loaders and the limits; loader i gives i * 1000 + 0, 1, ... The batches
are lists with None where a loader gives none; those of "sequential" are written the same way.
"""
import itertools
import json

import lightning
from lightning.pytorch.utilities import CombinedLoader

MODES = ("min_size", "max_size_cycle", "max_size", "sequential")
LENGTHS = ([3], [0], [2, 5], [5, 2], [4, 4], [3, 7, 2], [0, 3], [3, 0], [1, 1, 6], [2, 3, 4, 5])


def batches(mode, lengths, limits):
    loaders = [range(1000 * i, 1000 * i + n) for i, n in enumerate(lengths)]
    combined = CombinedLoader(loaders, mode)
    combined.limits = limits
    rows = []
    for batch, _, loader in itertools.islice(iter(combined), 100):
        if mode == "sequential":
            batch = [batch if i == loader else None for i in range(len(lengths))]
        rows.append(batch)
    return rows, len(combined)


cases = []
for mode in MODES:
    for lengths in LENGTHS:
        rows, length = batches(mode, lengths, None)
        cases.append({"mode": mode, "lengths": lengths, "limits": [], "length": length, "batches": rows})
for lengths, limits in (([3, 7, 2], [2, 2, 2]), ([3, 7, 2], [5, 1, 0]), ([4, 4], [0, 9])):
    rows, length = batches("sequential", lengths, limits)
    cases.append({"mode": "sequential", "lengths": lengths, "limits": limits, "length": length, "batches": rows})
head = {"lightning": lightning.__version__, "cases": cases}
print(json.dumps(head).replace('{"mode"', '\n{"mode"'))
