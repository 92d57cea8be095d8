"""A rank that dies, under torchrun: the peer of bench_fault. Usage: torchrun ... fault.py MOMENTS FOLDER

Ranks meet in a file of each attempt: over torchrun's own store those of PyTorch 2.13 do not find each other after a restart
("Gloo connectFullMesh failed").
"""
import os
import signal
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from common import Results, tiny_batch, tiny_mlp

STEPS, FAULT_STEP, FAULT_RANK = 30, 20, 1  # as bench_fault's


def save(path, model, optimizer, step):
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, f"{path}.draft")
    os.replace(f"{path}.draft", path)


def main():
    moments, folder = Results(sys.argv[1]), sys.argv[2]
    path, attempt, rank = f"{folder}/checkpoint.pt", os.environ["TORCHELASTIC_RESTART_COUNT"], int(os.environ["RANK"])
    is_first_attempt = attempt == "0"
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/attempt_{attempt}", rank=rank,
                            world_size=int(os.environ["WORLD_SIZE"]))
    model = DistributedDataParallel(tiny_mlp())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    first = 0
    if os.path.exists(path):
        saved = torch.load(path)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        first = saved["step"]
    data, target = tiny_batch()
    for step in range(first, STEPS):
        if is_first_attempt and (rank, step) == (FAULT_RANK, FAULT_STEP):
            moments.add("fault", at_ns=time.monotonic_ns())
            os.kill(os.getpid(), signal.SIGKILL)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(data), target).backward()
        optimizer.step()
        if not is_first_attempt and step == first:
            moments.add("training", at_ns=time.monotonic_ns())
        if rank == 0:
            save(path, model, optimizer, step + 1)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
