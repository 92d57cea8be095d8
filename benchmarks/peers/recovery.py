"""The first step after a rank was killed, under torchrun --max-restarts 3. Usage: torchrun ... recovery.py RESULTS"""
import os
import pathlib
import signal
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from common import Results, tiny_batch, tiny_mlp

FAULTY_RANK, FAULTY_STEP, STEPS = 1, 20, 30
CHECKPOINT = pathlib.Path("last.pt")

dist.init_process_group("gloo")
rank, is_restarted = dist.get_rank(), os.environ["TORCHELASTIC_RESTART_COUNT"] != "0"
results = Results(sys.argv[1])
model = DistributedDataParallel(tiny_mlp())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
done = 0
if is_restarted:
    state = torch.load(CHECKPOINT)
    model.module.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    done = state["step"]
data, target = tiny_batch()
for step in range(done + 1, STEPS + 1):
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(data), target).backward()
    optimizer.step()
    if rank == 0:
        torch.save({"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, "partial.pt")
        os.replace("partial.pt", CHECKPOINT)  # the rank may be stopped while it writes
    if is_restarted and rank == 0 and step == done + 1:
        results.add("again", at_ns=time.monotonic_ns())
    if not is_restarted and rank == FAULTY_RANK and step == FAULTY_STEP:
        results.add("fault", at_ns=time.monotonic_ns())
        os.kill(os.getpid(), signal.SIGKILL)
dist.destroy_process_group()
