"""What the peers share: the tiny network, a source of batches that keeps time, and the results file."""
import json
import multiprocessing
import sys
import tempfile
import time

import numpy
import torch
from torch import nn
from torch.utils.data import TensorDataset

BATCH_SIZE = 32
WARMUP_STEPS = 200


def tiny_mlp():
    """8,970 parameters: so small that what surrounds the arithmetic shows."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


def tiny_batch():
    torch.manual_seed(1)
    return torch.randn(BATCH_SIZE, 64), torch.randint(10, (BATCH_SIZE,))


def digits(path):
    """UCI's handwritten digits as tensors: 64 numbers from 0 to 1, and a class."""
    rows = torch.from_numpy(numpy.loadtxt(path, delimiter=",", dtype="float32"))
    return TensorDataset(rows[:, :-1] / 16, rows[:, -1].long())


class Source:
    """Gives out one ready-made batch `steps` times and notes when the timed part began and ended.

    Stands for the data of every loop alike, so that no loop is charged for a data loader.
    """

    def __init__(self, batch, steps, warmup=WARMUP_STEPS):
        self.batch, self.steps, self.warmup = batch, steps, warmup
        self.first = self.last = 0

    def __len__(self):
        return self.warmup + self.steps + 1

    def __iter__(self):
        for index in range(len(self)):
            if index == self.warmup:
                self.first = time.perf_counter_ns()
            if index == self.warmup + self.steps:
                self.last = time.perf_counter_ns()
            yield self.batch

    def ns_per_step(self):
        return (self.last - self.first) / self.steps


class Results:
    """JSON lines {"case", "ns"}, {"case", "at_ns"}, {"case", "processor_ns"} or {"case", "bytes"}, appended to a file: stdout
    belongs to the program."""

    def __init__(self, path):
        self.path = path

    def add(self, case, **value):
        with open(self.path, "a") as file:
            file.write(json.dumps({"case": case, **value}) + "\n")


def run_ranks(count, run_rank, *args):
    """Forks `count` ranks that call run_rank(rank, store, *args), `store` being a file to meet at; exits as the worst did."""
    fork = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as folder:
        ranks = [fork.Process(target=run_rank, args=(rank, f"{folder}/store", *args)) for rank in range(count)]
        for rank in ranks:
            rank.start()
        for rank in ranks:
            rank.join()
    sys.exit(max(abs(rank.exitcode) for rank in ranks))
