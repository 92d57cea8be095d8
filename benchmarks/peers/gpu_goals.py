#!/usr/bin/env python3
"""What lockstep's goals on a GPU are compared with, by PyTorch on the same GPU: the rates of a copy and of products of matrices, the
step of a small network, the language model of examples/05 eager and compiled, and how often a step of Lightning's Trainer waits for
the GPU. Prints a line of JSON each. Usage: gpu_goals.py [ceilings] [small] [model] [waits]; all by default."""
import json
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

WAITS = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize", "cudaMemcpy")


def tell(name, **figures):
    print(json.dumps({"peer": name, **figures}), flush=True)


def seconds_of(body, calls=20, rounds=5):
    """Per call; the best round."""
    best = float("inf")
    for _ in range(rounds):
        body()
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(calls):
            body()
        torch.cuda.synchronize()
        best = min(best, (time.perf_counter() - begin) / calls)
    return best


def ceilings():
    x, y = torch.empty(124_000_000, device="cuda"), torch.empty(124_000_000, device="cuda")
    tell("a copy", bytes_per_second=8 * x.numel() / seconds_of(lambda: y.copy_(x)))
    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    tell("products of matrices in bfloat16", flops_per_second=2 * 8192**3 / seconds_of(lambda: a @ b))


def network():
    return nn.Sequential(*(layer for _ in range(3) for layer in (nn.Linear(128, 128), nn.ReLU())))


def small():
    """The network of `gpu_case steps`."""
    model = network().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    data, target = torch.randn(64, 128, device="cuda"), torch.randn(64, 128, device="cuda")

    def step():
        optimizer.zero_grad(set_to_none=True)
        F.mse_loss(model(data), target).backward()
        optimizer.step()

    tell("step of a small network", us=1e6 * seconds_of(step, calls=200))


def model():
    from torch_language_model import CONTEXT, VOCABULARY, Gpt

    for compiled in (False, True):
        torch.manual_seed(0)
        gpt = Gpt().cuda()
        forward = torch.compile(gpt) if compiled else gpt
        optimizer = torch.optim.AdamW(gpt.parameters(), lr=3e-4, betas=(0.9, 0.95), fused=True)
        data, target = (torch.randint(0, VOCABULARY, (16, CONTEXT), device="cuda") for _ in range(2))

        def step():
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast("cuda", torch.bfloat16):
                loss = F.cross_entropy(forward(data).flatten(0, 1), target.flatten())
            loss.backward()
            optimizer.step()

        for _ in range(5):
            step()
        tell("language model, " + ("torch.compile" if compiled else "eager"), tokens_per_second=16 * CONTEXT / seconds_of(step, calls=10))


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
                self.profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA])
                self.profiler.start()
            if batch_idx == 14:
                self.profiler.stop()
                calls = [event.name for event in self.profiler.events()]
                tell("waits of Lightning's Trainer", per_step=sum(name in WAITS for name in calls) / 10)

    loader = torch.utils.data.DataLoader(torch.randn(64 * 20, 128), batch_size=64)
    lightning.Trainer(max_epochs=1, accelerator="gpu", devices=1, logger=False, enable_checkpointing=False,
                      enable_progress_bar=False, callbacks=[Count()]).fit(Net(), loader)


PARTS = {"ceilings": ceilings, "small": small, "model": model, "waits": waits}

if __name__ == "__main__":
    if not torch.cuda.is_available():
        sys.exit("gpu_goals.py: PyTorch finds no GPU here")
    for part in sys.argv[1:] or PARTS:
        try:
            PARTS[part]()
        except ImportError as error:
            tell(part, not_run=str(error))
