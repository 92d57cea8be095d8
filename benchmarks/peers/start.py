"""The first all-reduce of a rank that torchrun started. Usage: torchrun ... start.py RESULTS"""
import os
import sys
import time

import torch
import torch.distributed as dist

from common import Results

dist.init_process_group("gloo")
value = torch.ones(1)
dist.all_reduce(value)
done = time.monotonic_ns()
assert value.item() == dist.get_world_size()
Results(sys.argv[1]).add("ranks_" + os.environ["WORLD_SIZE"], at_ns=done)
dist.destroy_process_group()
