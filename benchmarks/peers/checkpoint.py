"""torch.save and torch.load of the tensors of bench_checkpoint. Usage: checkpoint.py RESULTS FOLDER"""
import os
import pathlib
import shutil
import sys
import time

import torch

from common import Results

TENSORS, ELEMENTS = 32, 4 << 20


def ns_of(act):
    start = time.monotonic_ns()
    act()
    return time.monotonic_ns() - start


def save(model, path, durable):
    with open(path, "wb") as file:
        torch.save(model, file)
        if durable:
            os.fsync(file.fileno())


def load(path, model):
    for name, tensor in torch.load(path).items():
        model[name].copy_(tensor)


def main():
    results, folder = Results(sys.argv[1]), pathlib.Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    model = {f"layer.{i}.weight": torch.randn(ELEMENTS) for i in range(TENSORS)}
    results.add("save", ns=ns_of(lambda: save(model, folder / "a.pt", True)))
    os.remove(folder / "a.pt")
    results.add("save_cached", ns=ns_of(lambda: save(model, folder / "a.pt", False)))
    results.add("load", ns=ns_of(lambda: load(folder / "a.pt", model)))
    copies = {name: torch.empty_like(tensor).fill_(0) for name, tensor in model.items()}
    results.add("copy", ns=ns_of(lambda: [copies[name].copy_(tensor) for name, tensor in model.items()]))
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
