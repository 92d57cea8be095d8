"""A training step alone and under DistributedDataParallel, on two ranks at once.

Usage: ddp.py RESULTS STEPS
"""
import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from common import Results, Source, run_ranks, tiny_batch, tiny_mlp

RANKS = 2
MID_STEPS = 20
MID_WARMUP = 5


def mid_mlp():
    """2,109,770 parameters: 8 MB of gradients."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(),
                         nn.Linear(1024, 960), nn.ReLU(), nn.Linear(960, 10))


def train(model, source):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for data, target in source:
        loss = F.cross_entropy(model(data), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return source.ns_per_step()


def measure(name, make_model, make_source, results):
    for case, prepare in ((f"{name}_local", lambda model: model), (f"{name}_ddp", DistributedDataParallel)):
        model = prepare(make_model())
        dist.barrier()
        ns = train(model, make_source())
        if dist.get_rank() == 0:
            results.add(case, ns=ns)


def run_rank(rank, store, results, steps):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=RANKS)
    measure("tiny", tiny_mlp, lambda: Source(tiny_batch(), steps), results)
    measure("mid", mid_mlp, lambda: Source(tiny_batch(), MID_STEPS, MID_WARMUP), results)
    dist.barrier()
    dist.destroy_process_group()


def main():
    results, steps = Results(sys.argv[1]), int(sys.argv[2])
    run_ranks(RANKS, run_rank, results, steps)


if __name__ == "__main__":
    main()
