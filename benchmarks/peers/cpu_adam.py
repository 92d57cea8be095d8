"""One step of DeepSpeedCPUAdam, DeepSpeed's optimizer for offloaded states.

Usage: cpu_adam.py RESULTS. Its model is 10M of optim/adamw_bench.cpp. DeepSpeed compiles the kernel for this machine when it
is first asked for; that is before anything is measured.
"""
import os
import sys
import time

os.environ.setdefault("DS_ACCELERATOR", "cpu")
os.environ.setdefault("DEEPSPEED_LOG_LEVEL", "ERROR")

import torch  # noqa: E402
from deepspeed.ops.adam import DeepSpeedCPUAdam  # noqa: E402

from common import Results  # noqa: E402

TENSORS, ROWS, COLUMNS = 10, 1000, 1000
WARMUP_STEPS, STEPS = 3, 10


def main():
    torch.set_num_threads(1)
    parameters = [torch.nn.Parameter(torch.randn(ROWS, COLUMNS)) for _ in range(TENSORS)]
    for parameter in parameters:
        parameter.grad = torch.randn(ROWS, COLUMNS)
    optimizer = DeepSpeedCPUAdam(parameters)
    for _ in range(WARMUP_STEPS):
        optimizer.step()
    start = time.perf_counter_ns()
    for _ in range(STEPS):
        optimizer.step()
    Results(sys.argv[1]).add("10M", ns=(time.perf_counter_ns() - start) / STEPS)


if __name__ == "__main__":
    main()
