#!/usr/bin/env python3
"""Writes golden_metrics.json: what torchmetrics computes for small random inputs.

Usage: make_golden_metrics.py > golden_metrics.json, with a Python that has torch and torchmetrics.
"inputs" are lists of batches. A case names its inputs, a class of torchmetrics and its arguments; "value" is what
compute() gives after all batches, "forward" what forward() gives for the first one. NaN and infinity are text.
"""
import itertools
import json
import math
import warnings

import torch
import torchmetrics
from torchmetrics import aggregation, regression

warnings.filterwarnings("ignore")
SIZES = (7, 1, 12)
CLASSES, LABELS = 5, 4
AVERAGES = ("micro", "macro", "weighted", "none")


def number(value):
    return value if isinstance(value, int) or math.isfinite(value) else str(value)


def stored(tensor):
    dtype = "float" if tensor.is_floating_point() else "long"
    return {"dtype": dtype, "shape": list(tensor.shape), "data": [number(v) for v in tensor.flatten().tolist()]}


def generator(name):
    return torch.Generator().manual_seed(sum(name.encode()))


def batches(name, make):
    g = generator(name)
    return [make(n, g) for n in SIZES]


def rand(g, *shape):
    return torch.rand(shape, generator=g)


def randn(g, *shape):
    return 2 * torch.randn(shape, generator=g)


def randint(g, high, *shape):
    return torch.randint(high, shape, generator=g)


def ignored(target, value, g):
    return torch.where(rand(g, *target.shape) < 0.3, torch.full_like(target, value), target)


def tied(scores):
    return (scores * 4).round() / 4


def pairs(make_preds, make_target):
    return lambda n, g: {"preds": make_preds(n, g), "target": make_target(n, g)}


INPUTS = {
    "binary_probabilities": pairs(lambda n, g: rand(g, n), lambda n, g: randint(g, 2, n)),
    "binary_logits": pairs(lambda n, g: randn(g, n, 2), lambda n, g: randint(g, 2, n, 2)),
    "binary_classes": pairs(lambda n, g: randint(g, 2, n), lambda n, g: randint(g, 2, n)),
    "binary_ties": pairs(lambda n, g: tied(rand(g, n, 3)), lambda n, g: randint(g, 2, n, 3)),
    "binary_ignored": pairs(lambda n, g: rand(g, n), lambda n, g: ignored(randint(g, 2, n), -1, g)),
    "binary_negative": pairs(lambda n, g: rand(g, n) * 0.4, lambda n, g: torch.zeros(n, dtype=torch.long)),
    "binary_positive": pairs(lambda n, g: rand(g, n), lambda n, g: torch.ones(n, dtype=torch.long)),
    "multiclass_probabilities": pairs(lambda n, g: randn(g, n, CLASSES).softmax(1), lambda n, g: randint(g, CLASSES, n)),
    "multiclass_logits": pairs(lambda n, g: randn(g, n, CLASSES, 3), lambda n, g: randint(g, CLASSES, n, 3)),
    "multiclass_classes": pairs(lambda n, g: randint(g, CLASSES, n), lambda n, g: randint(g, CLASSES, n)),
    "multiclass_rare": pairs(lambda n, g: randint(g, 3, n), lambda n, g: 2 * randint(g, 2, n)),
    "multiclass_rare_scores": pairs(lambda n, g: randn(g, n, CLASSES), lambda n, g: 2 * randint(g, 2, n)),
    "multiclass_ignored": pairs(lambda n, g: randn(g, n, CLASSES), lambda n, g: ignored(randint(g, CLASSES, n), -100, g)),
    "multilabel_probabilities": pairs(lambda n, g: rand(g, n, LABELS), lambda n, g: randint(g, 2, n, LABELS)),
    "multilabel_logits": pairs(lambda n, g: randn(g, n, LABELS, 2), lambda n, g: randint(g, 2, n, LABELS, 2)),
    "multilabel_classes": pairs(lambda n, g: randint(g, 2, n, LABELS), lambda n, g: randint(g, 2, n, LABELS)),
    "multilabel_ignored": pairs(lambda n, g: rand(g, n, LABELS), lambda n, g: ignored(randint(g, 2, n, LABELS), -1, g)),
    "numbers": pairs(lambda n, g: randn(g, n, 2), lambda n, g: randn(g, n, 2)),
    "columns": pairs(lambda n, g: randn(g, n, 3), lambda n, g: randn(g, n, 3)),
    "values": lambda n, g: {"value": randn(g, n, 2)},
    "weighted_values": lambda n, g: {"value": randn(g, n, 2), "weight": rand(g, 2)},
    "nan_values": lambda n, g: {"value": torch.where(rand(g, n) < 0.4, torch.nan, randn(g, n))},
}
MADE = {name: batches(name, make) for name, make in INPUTS.items()}


def task_arguments(inputs):
    task = inputs.split("_")[0]
    arguments = {"task": task}
    if task == "multiclass":
        arguments["num_classes"] = CLASSES
    if task == "multilabel":
        arguments["num_labels"] = LABELS
    if inputs.endswith("_ignored"):
        arguments["ignore_index"] = -100 if task == "multiclass" else -1
    return arguments


def plain(value):
    value = value.double() if value.is_floating_point() else value
    return {"shape": list(value.shape), "data": [number(v) for v in value.flatten().tolist()]}


def copy_of(batch):
    """torchmetrics writes into what it is given, where NaN is to be another number."""
    return {name: tensor.clone() for name, tensor in batch.items()}


def case(inputs, name, arguments):
    metric = getattr(torchmetrics, name, None) or getattr(aggregation, name, None) or getattr(regression, name)
    first, whole = metric(**arguments), metric(**arguments)
    forward = first(**copy_of(MADE[inputs][0]))
    for batch in MADE[inputs]:
        whole.update(**copy_of(batch))
    return {"inputs": inputs, "metric": name, "arguments": arguments, "forward": plain(forward),
            "value": plain(whole.compute())}


def score_cases(inputs):
    task = task_arguments(inputs)
    averages = ("micro",) if task["task"] == "binary" else AVERAGES
    for average in averages:
        yield inputs, "Accuracy", task | {"average": average}
        yield inputs, "F1Score", task | {"average": average}
        yield inputs, "FBetaScore", task | {"average": average, "beta": 2.0}
        for zero_division in (0, 1):
            arguments = task | {"average": average, "zero_division": zero_division}
            yield inputs, "Precision", arguments
            yield inputs, "Recall", arguments
            yield inputs, "FBetaScore", arguments | {"beta": 0.5}


def top_k_cases():
    for inputs in ("multiclass_probabilities", "multiclass_logits", "multiclass_rare_scores", "multiclass_ignored"):
        for name, average, top_k in itertools.product(("Accuracy", "Precision", "F1Score"), AVERAGES, (2, 3)):
            yield inputs, name, task_arguments(inputs) | {"average": average, "top_k": top_k}


def option_cases():
    for threshold in (0.3, 0.75):
        for inputs in ("binary_probabilities", "binary_logits", "multilabel_probabilities"):
            yield inputs, "Accuracy", task_arguments(inputs) | {"threshold": threshold}
            yield inputs, "Recall", task_arguments(inputs) | {"threshold": threshold, "average": "macro"}
    for inputs in ("multiclass_probabilities", "multiclass_classes"):  # a class that is there is not to count
        for name, average in itertools.product(("Accuracy", "Recall", "Precision"), AVERAGES):
            yield inputs, name, task_arguments(inputs) | {"average": average, "ignore_index": 2}


def matrix_cases(inputs):
    for normalize in ("none", "true", "pred", "all"):
        yield inputs, "ConfusionMatrix", task_arguments(inputs) | {"normalize": normalize}


def auroc_cases(inputs):
    task = task_arguments(inputs)
    averages = {"binary": ("macro",), "multiclass": AVERAGES[1:], "multilabel": AVERAGES}[task["task"]]
    for average, thresholds in itertools.product(averages, (None, 5, 50, [0.1, 0.25, 0.5, 0.9])):
        yield inputs, "AUROC", task | {"average": average, "thresholds": thresholds}
    if task["task"] == "binary":
        for max_fpr, thresholds in itertools.product((0.1, 0.5, 1.0), (None, 20)):
            yield inputs, "AUROC", task | {"max_fpr": max_fpr, "thresholds": thresholds}


def number_cases():
    for inputs, count in (("numbers", 1), ("columns", 3)):
        yield inputs, "MeanSquaredError", {"num_outputs": count}
        yield inputs, "MeanSquaredError", {"num_outputs": count, "squared": False}
        yield inputs, "MeanAbsoluteError", {"num_outputs": count}
    for name in ("MeanMetric", "SumMetric", "MinMetric", "MaxMetric"):
        yield "values", name, {}
        yield "nan_values", name, {"nan_strategy": "ignore"}
        yield "nan_values", name, {"nan_strategy": "disable"}
        yield "nan_values", name, {"nan_strategy": 0.5}
    yield "weighted_values", "MeanMetric", {}


def all_cases():
    classified = [name for name in INPUTS if name.split("_")[0] in ("binary", "multiclass", "multilabel")]
    for inputs in classified:
        yield from score_cases(inputs)
        yield from matrix_cases(inputs)
        if MADE[inputs][0]["preds"].is_floating_point():
            yield from auroc_cases(inputs)
    yield from top_k_cases()
    yield from option_cases()
    yield from number_cases()


def main():
    inputs = {name: [{key: stored(t) for key, t in batch.items()} for batch in made] for name, made in MADE.items()}
    cases = [case(*arguments) for arguments in all_cases()]
    print(json.dumps({"torchmetrics": torchmetrics.__version__}, indent=None)[:-1] + ",")
    print('"inputs": {' + ",\n".join(f'"{name}": {json.dumps(made)}' for name, made in inputs.items()) + "},")
    print('"cases": [\n' + ",\n".join(json.dumps(each) for each in cases) + "\n]}")


if __name__ == "__main__":
    main()
