#!/usr/bin/env python3
"""What lockstep's goals on a GPU are compared with, by PyTorch on the same GPU: the rates of a copy and of products of matrices, the
step of a small network, and how often a step of Lightning's Trainer waits for the GPU; GPT-2 is in gpt2.py. Prints a line of JSON
each. Usage: gpu_goals.py [--cpu] [ceilings] [small] [waits]; all by default. --cpu is for tests: small tensors of the CPU."""
import json
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

DEVICE = "cpu" if "--cpu" in sys.argv else "cuda"
WAITS = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize", "cudaMemcpy")


def tell(name, **figures):
    print(json.dumps({"peer": name, **figures}), flush=True)


def synchronize():
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def seconds_of(body, calls=20, rounds=5):
    """Per call; the best round."""
    if DEVICE == "cpu":
        calls = rounds = 2
    best = float("inf")
    for _ in range(rounds):
        body()
        synchronize()
        begin = time.perf_counter()
        for _ in range(calls):
            body()
        synchronize()
        best = min(best, (time.perf_counter() - begin) / calls)
    return best


def ceilings():
    elements, size = (124_000_000, 8192) if DEVICE == "cuda" else (1_000_000, 128)
    x, y = torch.empty(elements, device=DEVICE), torch.empty(elements, device=DEVICE)
    tell("a copy", bytes_per_second=8 * elements / seconds_of(lambda: y.copy_(x)))
    a, b = (torch.randn(size, size, device=DEVICE, dtype=torch.bfloat16) for _ in range(2))
    tell("products of matrices in bfloat16", flops_per_second=2 * size**3 / seconds_of(lambda: a @ b))


def network():
    return nn.Sequential(*(layer for _ in range(3) for layer in (nn.Linear(128, 128), nn.ReLU())))


def small():
    """The network of `gpu_case steps`."""
    model = network().to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    data, target = torch.randn(64, 128, device=DEVICE), torch.randn(64, 128, device=DEVICE)

    def step():
        optimizer.zero_grad(set_to_none=True)
        F.mse_loss(model(data), target).backward()
        optimizer.step()

    tell("step of a small network", us=1e6 * seconds_of(step, calls=200))


def waits():
    import lightning

    class Net(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = network()

        def training_step(self, batch, _):
            return F.mse_loss(self.net(batch), batch)

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters(), lr=1e-3)

    class Count(lightning.Callback):
        def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
            if batch_idx == 4:
                self.profiler = torch.profiler.profile(activities=[getattr(torch.profiler.ProfilerActivity, DEVICE.upper())])
                self.profiler.start()
            if batch_idx == 14:
                self.profiler.stop()
                calls = [event.name for event in self.profiler.events()]
                tell("waits of Lightning's Trainer", per_step=sum(name in WAITS for name in calls) / 10)

    loader = torch.utils.data.DataLoader(torch.randn(64 * 20, 128), batch_size=64)
    lightning.Trainer(max_epochs=1, accelerator="gpu" if DEVICE == "cuda" else "cpu", devices=1, logger=False, enable_checkpointing=False,
                      enable_progress_bar=False, callbacks=[Count()]).fit(Net(), loader)


PARTS = {"ceilings": ceilings, "small": small, "waits": waits}

if __name__ == "__main__":
    if DEVICE == "cuda" and not torch.cuda.is_available():
        sys.exit("gpu_goals.py: PyTorch finds no GPU here")
    for part in [argument for argument in sys.argv[1:] if argument != "--cpu"] or PARTS:
        try:
            PARTS[part]()
        except ImportError as error:
            tell(part, not_run=str(error))
