#!/usr/bin/env python3
"""GPT-2 in PyTorch and in the program of examples/11_models_from_elsewhere, with the same weights, batches and optimizer: the losses
of a fine-tune beside each other, and tokens per second beside eager PyTorch and torch.compile. Prints a line of JSON each.
Usage: gpt2.py PROGRAM [--device cuda|cpu] [--tiny] [--compiler inductor]; --tiny has a network that a CPU trains in a second."""
import argparse
import csv
import json
import math
import os
import pathlib
import struct
import subprocess
import tempfile
import time

import torch
import torch.nn.functional as F
from torch import nn

WEIGHT_DECAY, EPSILON = 0.01, 1e-5
FIRST_STEP = 1e-3  # by which share the first loss may differ; later ones by twice what bfloat16 changes in PyTorch
# A sample of 1,025 tokens has 1,024 with a next one, and the program takes no sample beyond a model's context.
GPT2 = {"vocab_size": 50257, "n_positions": 1025, "n_embd": 768, "n_layer": 12, "n_head": 12}
TINY = {"vocab_size": 211, "n_positions": 33, "n_embd": 32, "n_layer": 2, "n_head": 2}


class Block(nn.Module):
    def __init__(self, shape):
        super().__init__()
        width = shape["n_embd"]
        self.heads = shape["n_head"]
        self.ln_1, self.ln_2 = nn.LayerNorm(width, EPSILON), nn.LayerNorm(width, EPSILON)
        self.attn = nn.ModuleDict({"c_attn": nn.Linear(width, 3 * width), "c_proj": nn.Linear(width, width)})
        self.mlp = nn.ModuleDict({"c_fc": nn.Linear(width, 4 * width), "c_proj": nn.Linear(4 * width, width)})

    def forward(self, x):
        heads = [part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.attn["c_attn"](self.ln_1(x)).chunk(3, -1)]
        x = x + self.attn["c_proj"](F.scaled_dot_product_attention(*heads, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.mlp["c_proj"](F.gelu(self.mlp["c_fc"](self.ln_2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    """With the names of transformers, and no dropout."""

    def __init__(self, shape):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(shape["vocab_size"], shape["n_embd"]), nn.Embedding(shape["n_positions"], shape["n_embd"])
        self.h = nn.Sequential(*(Block(shape) for _ in range(shape["n_layer"])))
        self.ln_f = nn.LayerNorm(shape["n_embd"], EPSILON)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def forward(self, tokens):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.size(1), device=tokens.device))
        return F.linear(self.ln_f(self.h(x)), self.wte.weight)

    def flops_per_token(self, shape):
        """6 for each parameter that is multiplied, and attention's, which looks back only: half of the context in the mean."""
        multiplied = sum(parameter.numel() for parameter in self.parameters()) - self.wpe.weight.numel()
        return 6 * multiplied + 6 * shape["n_layer"] * shape["n_positions"] * shape["n_embd"]


def write_safetensors(path, tensors):
    names = {torch.float32: "F32", torch.int64: "I64"}
    header, end = {}, 0
    for name, tensor in tensors.items():
        begin, end = end, end + tensor.numel() * tensor.element_size()
        header[name] = {"dtype": names[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for tensor in tensors.values():
            file.write(memoryview(tensor.contiguous().numpy()).cast("B") if tensor.numel() else b"")


def write_folder(folder, shape, model):
    """What save_pretrained of transformers writes, whose matrices lie the other way round."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"model_type": "gpt2", "layer_norm_epsilon": EPSILON, "embd_pdrop": 0.0, "attn_pdrop": 0.0,
                                                    "resid_pdrop": 0.0, **shape}))
    def as_theirs(name, tensor):
        return tensor.t() if name.startswith("h.") and tensor.dim() == 2 else tensor

    write_safetensors(folder / "model.safetensors",
                      {"transformer." + name: as_theirs(name, tensor.detach()) for name, tensor in model.named_parameters()})


def make_samples(shape, count):
    """Tokens that mostly follow from the one before, so that there is something to learn."""
    generator = torch.Generator().manual_seed(1)
    vocab = shape["vocab_size"]
    following = torch.randperm(vocab, generator=generator)
    columns = [torch.randint(0, vocab, (count,), generator=generator)]
    for _ in range(shape["n_positions"] - 1):
        is_free = torch.rand(count, generator=generator) < 0.2
        columns.append(torch.where(is_free, torch.randint(0, vocab, (count,), generator=generator), following[columns[-1]]))
    return torch.stack(columns, 1)


class Run:
    def __init__(self, options, folder):
        self.program, self.device, self.compiler = options.program, options.device, options.compiler
        self.shape = TINY if options.tiny else GPT2
        self.batch_size, self.steps, self.timed_steps, self.lr = (4, 12, 12, 3e-3) if options.tiny else (16, 40, 40, 3e-4)
        self.folder = pathlib.Path(folder)
        torch.manual_seed(0)
        model = Gpt2(self.shape)
        self.state = model.state_dict()
        self.parameters = sum(parameter.numel() for parameter in model.parameters())
        self.flops_per_token = model.flops_per_token(self.shape)
        self.samples = make_samples(self.shape, self.batch_size * self.steps)
        write_folder(self.folder / "gpt2", self.shape, model)
        write_safetensors(self.folder / "samples.safetensors", {"input_ids": self.samples})

    def synchronize(self):
        if self.device == "cuda":
            torch.cuda.synchronize()

    def torch_step(self, is_narrow, compiler=None):
        """A function that trains on a batch of tokens, and returns the loss."""
        model = Gpt2(self.shape)
        model.load_state_dict(self.state)
        model = model.to(self.device)
        forward = torch.compile(model, backend=compiler) if compiler else model
        optimizer = torch.optim.AdamW(model.parameters(), lr=self.lr, weight_decay=WEIGHT_DECAY, fused=True)

        def step(tokens):
            tokens = tokens.to(self.device, non_blocking=True)
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast(self.device, torch.bfloat16, enabled=is_narrow):
                loss = F.cross_entropy(forward(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
            loss.backward()
            optimizer.step()
            return loss.detach()

        return step

    def torch_losses(self, is_narrow):
        step = self.torch_step(is_narrow)
        return [step(batch).item() for batch in self.samples.split(self.batch_size)]

    def torch_rate(self, compiler=None):
        step = self.torch_step(is_narrow=True, compiler=compiler)
        batch = self.samples[:self.batch_size]
        batch = batch.pin_memory() if self.device == "cuda" else batch
        for _ in range(5):
            step(batch)
        self.synchronize()
        begin = time.perf_counter()
        for _ in range(self.timed_steps):
            step(batch)
        self.synchronize()
        return self.timed_steps * self.batch_size * (self.shape["n_positions"] - 1) / (time.perf_counter() - begin)

    def ours(self, name, *flags, **environment):
        """The rows of metrics.csv."""
        folder = self.folder / name
        command = [self.program, "fit", "--model.folder", self.folder / "gpt2", "--data.file", self.folder / "samples.safetensors",
                   "--data.batch_size", self.batch_size, "--data.shuffle", "false", "--optimizer.lr", self.lr, "--optimizer.weight_decay", WEIGHT_DECAY,
                   "--run_dir", folder, "--trainer.accelerator", "gpu" if self.device == "cuda" else "cpu", "--trainer.devices", 1,
                   "--trainer.enable_progress_bar", "false", "--trainer.enable_checkpointing", "false", *flags]
        result = subprocess.run([str(part) for part in command], capture_output=True, text=True, env={**os.environ, **environment})
        if result.returncode != 0:
            raise RuntimeError(f"{name}: exit status {result.returncode}: {result.stderr[-2000:]}")
        return list(csv.DictReader(open(folder / "metrics.csv")))

    def our_losses(self, precision):
        rows = self.ours("losses_" + precision, "--trainer.precision", precision, "--trainer.log_every_n_steps", 1)
        return [float(row["train_loss"]) for row in rows if row.get("train_loss")]

    def our_rate(self, name, *flags, **environment):
        rows = self.ours(name, "--trainer.precision", "bf16-mixed", "--trainer.max_epochs", 1000, "--trainer.max_steps", 3 * self.timed_steps,
                         "--trainer.log_every_n_steps", self.timed_steps, *flags, **environment)
        rates = [row[key] for row in rows for key in row if key and key.endswith("device/items_per_sec") and row[key]]
        return float(rates[-1])


def largest_difference(found, expected):
    if len(found) != len(expected):
        return math.inf
    return max(abs(one / other - 1) for one, other in zip(found, expected))


def tell(**line):
    print(json.dumps(line), flush=True)


def tell_curves(run):
    narrow, wide = run.torch_losses(True), run.torch_losses(False)
    ours, ours_wide = run.our_losses("bf16-mixed"), run.our_losses("32-true")
    noise = max(2 * largest_difference(narrow, wide), FIRST_STEP)
    first, all_steps, of_floats = abs(ours[0] / narrow[0] - 1), largest_difference(ours, narrow), largest_difference(ours_wide, wide)
    tell(check="fine-tune of GPT-2", ok=first <= FIRST_STEP and all_steps <= noise and of_floats <= FIRST_STEP, device=run.device, steps=len(ours),
         parameters=run.parameters, first_step=first, largest_difference=all_steps, noise=noise, of_float32=of_floats,
         first_loss=ours[0], last_loss=ours[-1])


def tell_rates(run):
    for name, compiler in (("eager", None), ("torch.compile", run.compiler)):
        try:
            tell(peer=f"GPT-2, {name}", tokens_per_second=run.torch_rate(compiler))
        except Exception as error:  # of a compiler that is not there, say
            tell(peer=f"GPT-2, {name}", not_run=str(error)[:300])
    size = {"device": run.device, "parameters": run.parameters, "flops_per_token": run.flops_per_token}
    tell(check="GPT-2", ok=True, tokens_per_second=run.our_rate("rate"), **size)
    if run.device == "cuda":
        tell(check="GPT-2 by our kernels", ok=True, tokens_per_second=run.our_rate("rate_of_kernels", LOCKSTEP_CUDA_KERNELS="1"), **size)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--compiler", default="inductor", help="backend of torch.compile")
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.exit(2, "gpt2.py: PyTorch finds no GPU here\n")
    with tempfile.TemporaryDirectory() as folder:
        run = Run(options, folder)
        tell_curves(run)
        tell_rates(run)


if __name__ == "__main__":
    main()
