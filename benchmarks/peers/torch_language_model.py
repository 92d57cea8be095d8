#!/usr/bin/env python3
"""The language model of examples/05_fsdp_transformer in eager PyTorch on a GPU: tokens per second, beside those that the example's
ThroughputMonitor writes. Usage: torch_language_model.py [BATCH_SIZE [STEPS]]"""
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

LAYERS, HEADS, WIDTH, CONTEXT, VOCABULARY = 12, 12, 768, 1024, 256


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention_norm, self.mlp_norm = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.query_key_value, self.projection = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.expand, self.contract = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        heads = [part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in self.query_key_value(self.attention_norm(x)).chunk(3, -1)]
        x = x + self.projection(F.scaled_dot_product_attention(*heads, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.contract(F.gelu(self.expand(self.mlp_norm(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks, self.norm = nn.Sequential(*(Block() for _ in range(LAYERS))), nn.LayerNorm(WIDTH)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.size(1), device=tokens.device))
        return F.linear(self.norm(self.blocks(x)), self.tokens.weight)


def measure(batch_size, steps, dtype, reads_loss, max_norm=None):
    torch.manual_seed(0)
    model = Gpt().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), fused=True)
    data, target = (torch.randint(0, VOCABULARY, (batch_size, CONTEXT)).pin_memory() for _ in range(2))

    def step():
        optimizer.zero_grad(set_to_none=True)
        tokens, next_tokens = data.cuda(non_blocking=True), target.cuda(non_blocking=True)
        with torch.autocast("cuda", dtype, enabled=dtype is not None):
            loss = F.cross_entropy(model(tokens).flatten(0, 1), next_tokens.flatten())
        loss.backward()
        if max_norm is not None:
            nn.utils.clip_grad_norm_(model.parameters(), max_norm)
        optimizer.step()
        return loss.item() if reads_loss else loss

    for _ in range(10):
        step()
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(steps):
        step()
    torch.cuda.synchronize()
    seconds = time.perf_counter() - begin
    print(f"eager PyTorch {torch.__version__}, {dtype or torch.float32}, loss {'read' if reads_loss else 'not read'} each step, "
          f"clipped at {max_norm}: {batch_size * CONTEXT * steps / seconds:.0f} tokens/s, {1e3 * seconds / steps:.2f} ms per step", flush=True)


if __name__ == "__main__":
    size, count = (int(argument) for argument in (sys.argv[1:] + ["16", "60"][len(sys.argv) - 1:])[:2])
    measure(size, count, torch.bfloat16, reads_loss=False)
    measure(size, count, torch.bfloat16, reads_loss=True)
    measure(size, count, torch.bfloat16, reads_loss=False, max_norm=1.0)
    measure(size, count // 3, None, reads_loss=False)
