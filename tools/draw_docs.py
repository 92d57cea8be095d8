#!/usr/bin/env python3
"""Draws the pictures of docs/ from what the repository says in text.

Usage: tools/draw_docs.py [--check]. With --check it writes nothing: exit status 1 if a picture is not up to date. Sources: the modules'
table of tools/check_layers.py (levels.svg); the order of hooks that a test holds the Trainer to, tests/train/golden_hooks.json
(hooks.svg); the folder in docs/checkpoint-format.md (checkpoint-layout.svg); tables below (ddp-buckets.svg, sharding-states.svg).
"""
import json
import pathlib
import re
import sys

from check_layers import LEVELS, TORCH_FREE
from drawing import LINE, MARGIN, Drawing, width_of
from generated import write_or_check

ROOT = pathlib.Path(__file__).parent.parent
DOCS = ROOT / "docs"


# The modules, by level.

def levels():
    drawing = Drawing("The modules by level")
    width, height, gap = 100, 34, 14
    for number, level in enumerate(LEVELS, 1):
        y = MARGIN + (len(LEVELS) - number) * (height + gap)
        drawing.text(MARGIN, y + 22, str(number), "small")
        for place, module in enumerate(level):
            x = MARGIN + 24 + place * (width + gap)
            drawing.box(x, y, width, height, "" if module in TORCH_FREE else "a")
            drawing.text(x + width / 2, y + 22, module, "middle")
    y = MARGIN + len(LEVELS) * (height + gap) + 10
    drawing.text(MARGIN, y, "A module includes only modules of lower levels. Without colour: does not include LibTorch.", "small")
    return drawing


# The order of hooks.

def known_hooks():
    """The functions that modules, callbacks and data modules may override."""
    headers = (ROOT / "include" / "lockstep" / "train" / f"{name}.h" for name in ("hooks", "module", "data_module", "batch_transfer"))
    return set(re.findall(r"virtual [^;{]*?\b(\w+)\(", "".join(header.read_text() for header in headers)))


def hooks_of_fit():
    """Names in the order of calls: those of the module, which follow those of callbacks, and those that callbacks alone have."""
    known, names = known_hooks(), []
    for who, hook, detail, *_ in json.loads((ROOT / "tests" / "train" / "golden_hooks.json").read_text())["fit"]:
        if hook in known and not (who == "callback" and names and names[-1] == (hook, detail)):
            if not (who == "module" and names and names[-1] == (hook, detail)):
                names.append((hook, detail))
    return [hook for hook, _ in names]


def between(names, first, last, after=0):
    """The names from `first` to `last`, both included, and the place behind them."""
    begin = names.index(first, after)
    end = names.index(last, begin)
    return names[begin:end + 1], end + 1


def hook_groups():
    """Each stretch of a fit with its hooks: before, sanity check, start, an epoch's start, a batch that steps, validation, ends."""
    names = hooks_of_fit()
    before = names[:names.index("on_sanity_check_start")]
    sanity, at = between(names, "on_sanity_check_start", "on_sanity_check_end")
    start, at = between(names, "on_train_start", "on_train_start", at)
    first, at = between(names, "on_train_epoch_start", "on_train_epoch_start", at)
    moved = at
    for _ in range(2):  # the third batch is a window of its own: it has the hooks of all micro-batches
        moved = names.index("on_train_batch_end", moved) + 1
    batch, after = between(names, "on_before_batch_transfer", "on_train_batch_end", moved)
    validation, _ = between(names, "on_validation_start", "on_validation_end", after)
    moves = ("on_before_batch_transfer", "transfer_batch_to_device", "on_after_batch_transfer")
    validation = [name for place, name in enumerate(validation) if name not in validation[:place] and name not in moves]
    ends = names[len(names) - 1 - names[::-1].index("on_train_end"):]
    return {"begin": before, "sanity": sanity[:1] + sanity[-1:], "start": start, "epoch": first, "batch": batch,
            "validation": validation, "end": ends}


def listed(drawing, x, y, names):
    for name in names:
        drawing.text(x, y, name, "code")
        y += LINE
    return y


def column(drawing, x, y, title, names, kind="", least=0):
    """A box with a title and names; returns its right and lower edges."""
    width = max([width_of(name, "code") for name in names] + [width_of(title), least]) + 24
    height = 34 + LINE * len(names)
    drawing.box(x, y, width, height, kind)
    drawing.text(x + 12, y + 20, title, "strong")
    listed(drawing, x + 12, y + 40, names)
    return x + width, y + height


HOOK_NOTES = (
    "Of each hook, callbacks come first, in the order in which they were given, then the module.",
    "on_before_zero_grad and optimizer_zero_grad: where a micro-batch opens its accumulation window; on_before_optimizer_step and",
    "configure_gradient_clipping: where it closes the window; lr_scheduler_step: as often as the schedule is stepped.",
)


def hooks():
    drawing, groups = Drawing("The hooks of fit, in the order of their calls"), hook_groups()
    sanity = ["on_sanity_check_start", "(those of validation)", "on_sanity_check_end", *groups["start"]]
    least = max(width_of(name, "code") for name in (*groups["begin"], *sanity))
    right, bottom = column(drawing, MARGIN, MARGIN, "Before", groups["begin"], least=least)
    drawing.arrow((MARGIN + 20, bottom), (MARGIN + 20, bottom + 26))
    column(drawing, MARGIN, bottom + 26, "As training begins", sanity, least=least)
    frame, top = right + 44, MARGIN
    drawing.arrow((right, bottom + 46), (frame, bottom + 46))
    drawing.text(frame + 12, top + 22, "Each epoch", "strong")
    drawing.text(frame + 12, top + 44, "on_train_epoch_start", "code")
    drawing.arrow((frame + 30, top + 52), (frame + 30, top + 76))
    inner, end_of_batch = column(drawing, frame + 14, top + 76, "Each micro-batch", groups["batch"], "a")
    edge, _ = column(drawing, inner + 44, top + 76, "When validation is due", groups["validation"], "b")
    drawing.arrow((inner, top + 110), (inner + 44, top + 110))
    drawing.arrow((frame + 30, end_of_batch), (frame + 30, end_of_batch + 24))
    drawing.text(frame + 12, end_of_batch + 40, "on_train_epoch_end", "code")
    drawing.box(frame, top, edge + 14 - frame, end_of_batch + 54 - top, "frame")
    drawing.arrow((edge + 14, top + 40), (edge + 58, top + 40))
    column(drawing, edge + 58, top, "After the last", groups["end"])
    y = end_of_batch + 82
    for note in HOOK_NOTES:
        drawing.text(MARGIN, y, note, "small")
        y += LINE
    return drawing


# Buckets of DDP. Milliseconds are those of the picture: when gradients are ready, and how long a bucket is under way.

GRADIENTS = [("layers.3", 0, 60, 1), ("layers.2", 60, 130, 1), ("layers.1", 130, 200, 2), ("layers.0", 200, 270, 2), ("embedding", 270, 340, 3)]
BUCKETS = {1: ("bucket 1", 130, 240), 2: ("bucket 2", 270, 380), 3: ("bucket 3", 380, 470)}


def ddp_buckets():
    drawing, left, scale = Drawing("DDP's buckets: gradients are averaged while backward runs"), MARGIN + 120, 1.7
    rows = {"backward": MARGIN + 40, "all-reduce": MARGIN + 150, "step": MARGIN + 225}
    kinds = {1: "a", 2: "b", 3: "c"}
    drawing.text(left, MARGIN + 14, "time, on each rank alike", "small")
    drawing.arrow((left + 170, MARGIN + 10), (left + 250, MARGIN + 10))
    for name, title in (("backward", "backward"), ("all-reduce", "all-reduce"), ("step", "optimizer")):
        drawing.text(MARGIN, rows[name] + 24, title, "strong")
    for name, begin, end, bucket in GRADIENTS:
        drawing.box(left + begin * scale, rows["backward"], (end - begin) * scale - 4, 38, kinds[bucket])
        drawing.text(left + (begin + end) / 2 * scale - 2, rows["backward"] + 24, name, "code middle")
    for bucket, (title, begin, end) in BUCKETS.items():
        drawing.box(left + begin * scale, rows["all-reduce"], (end - begin) * scale - 4, 38, kinds[bucket])
        drawing.text(left + (begin + end) / 2 * scale - 2, rows["all-reduce"] + 24, title, "middle")
        full = max(e for _, _, e, b in GRADIENTS if b == bucket)
        x = left + full * scale - 12
        drawing.arrow((x, rows["backward"] + 38), (x, rows["all-reduce"] - 22), (max(x, left + begin * scale + 10), rows["all-reduce"] - 22),
                      (max(x, left + begin * scale + 10), rows["all-reduce"]))
    end = max(e for _, _, e in BUCKETS.values())
    drawing.box(left + end * scale, rows["step"], 110, 38)
    drawing.text(left + end * scale + 55, rows["step"] + 24, "step", "middle")
    drawing.arrow((left + end * scale - 20, rows["all-reduce"] + 38), (left + end * scale - 20, rows["step"] + 19),
                  (left + end * scale, rows["step"] + 19))
    y = rows["step"] + 62
    for line in ("Gradients are ready from the last layer to the first. A bucket is sent when its gradients and those of all buckets before",
                 "it are there, by one all-reduce, while backward computes the next ones. Gradients are averaged where they lie."):
        drawing.text(MARGIN, y, line, "small")
        y += LINE
    return drawing


# What a rank holds of a unit (a block of the model), for docs/fsdp.md and docs/choosing.md.

MOMENTS = ("between steps", "forward of the unit", "until backward", "backward of the unit", "until the step", "optimizer step")
WHOLE, SHARD, NONE, WAY = "whole", "shard", "none", "way"
STATES = (
    ("ddp", (WHOLE,) * 6, (NONE, NONE, NONE, WHOLE, WHOLE, WHOLE), (WHOLE,) * 6),
    ("deepspeed_stage_1, _2", (WHOLE,) * 6, (NONE, NONE, NONE, WAY, SHARD, SHARD), (SHARD,) * 6),
    ("fsdp SHARD_GRAD_OP", (SHARD, WHOLE, WHOLE, WHOLE, SHARD, SHARD), (NONE, NONE, NONE, WAY, SHARD, SHARD), (SHARD,) * 6),
    ("fsdp FULL_SHARD", (SHARD, WHOLE, SHARD, WHOLE, SHARD, SHARD), (NONE, NONE, NONE, WAY, SHARD, SHARD), (SHARD,) * 6),
)


def bar(drawing, x, y, state, kind):
    """A unit's numbers in four shards, of which this rank has the second."""
    width, height = 100, 16
    if state == NONE:
        return
    for shard in range(4):
        held = state == WHOLE or shard == 1
        drawing.box(x + shard * width / 4, y, width / 4 - 2, height, kind if held else "empty" if state == SHARD else f"{kind} way")
    if state == WAY:
        drawing.text(x + width + 2, y + 13, "\u2192 shard", "small")


def sharding_states():
    drawing, left, step = Drawing("What a rank holds of a unit, of four ranks"), MARGIN + 110, 178
    for place, moment in enumerate(MOMENTS):
        drawing.text(left + place * step, MARGIN + 12, moment, "strong")
    y = MARGIN + 34
    for name, *states in STATES:
        drawing.text(MARGIN, y + 14, name, "code strong")
        y += 22
        for row, (what, kind) in enumerate((("parameters", "a"), ("gradients", "b"), ("optimizer", "c"))):
            drawing.text(left - 10, y + row * 22 + 14, what, "small end")
            for place, state in enumerate(states[row]):
                bar(drawing, left + place * step, y + row * 22 + 1, state, kind)
        y += 82
    for line in ("Four ranks; this one keeps the second shard. Filled: in this rank's memory. \u2192 shard: summed over the ranks and dealt out (reduce-scatter).",
                 "deepspeed_stage_3 is as SHARD_GRAD_OP up to stage3_max_live_parameters elements, and as FULL_SHARD beyond."):
        drawing.text(MARGIN, y + 4, line, "small")
        y += LINE
    return drawing


# The folder of a checkpoint, as docs/checkpoint-format.md lists it.

def checkpoint_files():
    block = re.search(r"```\n(\S+\.ckpt/)\n(.*?)```", (DOCS / "checkpoint-format.md").read_text(), re.S)
    files = [re.match(r"  (\S+(?: \.\.\.)?)\s{2,}(.*)", line).groups() for line in block.group(2).strip("\n").splitlines()]
    return block.group(1), [(name, what.replace("`", "")) for name, what in files]


def checkpoint_layout():
    drawing = Drawing("The files of a checkpoint")
    folder, files = checkpoint_files()
    tensors = [file for file in files if "safetensors" in file[0]]
    others = {name: what for name, what in files if "safetensors" not in name}
    top, width = MARGIN + 34, max(width_of(what, "small") for _, what in tensors) + 28
    left_width = max(max(width_of(what, "small") for what in others.values()) + 28, 200)
    x = MARGIN + 14 + left_width + 130
    for place, (name, what) in enumerate(tensors):
        drawing.box(x, top + place * 66, width, 52, "a")
        drawing.text(x + 12, top + place * 66 + 21, name, "code strong")
        drawing.text(x + 12, top + place * 66 + 40, what, "small")
        drawing.arrow((MARGIN + 14 + left_width, top + 26), (x - 60, top + 26), (x - 60, top + place * 66 + 26), (x, top + place * 66 + 26))
    for place, (name, what) in enumerate(others.items()):
        drawing.box(MARGIN + 14, top + place * 132, left_width, 52, "c" if place else "b")
        drawing.text(MARGIN + 26, top + place * 132 + 21, name, "code strong")
        drawing.text(MARGIN + 26, top + place * 132 + 40, what, "small")
    drawing.arrow((MARGIN + 110, top + 132), (MARGIN + 110, top + 52))
    drawing.text(MARGIN + 122, top + 98, "checks every byte of it", "small")
    drawing.text(MARGIN + 14 + left_width + 6, top + 18, "place and", "small")
    drawing.text(MARGIN + 14 + left_width + 6, top + 44, "checksum", "small")
    bottom = top + 66 * (max(len(tensors), 3) - 1) + 52 + 14
    drawing.box(MARGIN, MARGIN + 4, x + width + 14 - MARGIN, bottom - MARGIN - 4, "frame")
    drawing.text(MARGIN + 12, MARGIN + 22, folder, "code strong")
    return drawing


PICTURES = {"levels.svg": levels, "hooks.svg": hooks, "ddp-buckets.svg": ddp_buckets, "sharding-states.svg": sharding_states,
            "checkpoint-layout.svg": checkpoint_layout}

if __name__ == "__main__":
    sys.exit(max([write_or_check(DOCS / name, draw().svg()) for name, draw in PICTURES.items()]))
