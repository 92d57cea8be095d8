"""What PyTorch's DataLoader takes for a sample of the digits, shuffled, in batches of 32.

Usage: loader.py RESULTS DIGITS EPOCHS
"""
import sys
import time

import torch
from torch.utils.data import DataLoader

from common import Results, digits


def ns_per_sample(loader, epochs):
    for epoch in range(epochs + 1):  # the first epoch warms up
        if epoch == 1:
            first_ns, samples = time.perf_counter_ns(), 0
        for data, _ in loader:
            if epoch > 0:
                samples += len(data)
    return (time.perf_counter_ns() - first_ns) / samples


def main():
    results, data, epochs = Results(sys.argv[1]), digits(sys.argv[2]), int(sys.argv[3])
    torch.set_num_threads(1)
    for workers in (0, 2):
        loader = DataLoader(data, batch_size=32, shuffle=True, num_workers=workers, persistent_workers=workers > 0)
        results.add(f"workers_{workers}", ns=ns_per_sample(loader, epochs))


if __name__ == "__main__":
    main()
