"""A training step of a transformer on ranks that share its parameters out: PyTorch's FSDP2, and its DDP.

Usage: fsdp2.py RESULTS SIZE RANKS STRATEGY STEPS; SIZE 10m or 85m, STRATEGY fsdp, fsdp_bf16 or ddp. The model, its first
weights, the data and the optimizer are those of sharded/sharded_bench.cpp.

FSDP2's collectives are counted as they are called, each at what it must move: an all-gather of n bytes, and a
reduce-scatter, n * (ranks - 1) / ranks from each rank. (Gloo's reduce-scatter is an all-reduce, and moves
twice that.) DDP's are called from C++, out of sight: its gradients count once, as an all-reduce.
"""
import math
import statistics
import sys
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils._python_dispatch import TorchDispatchMode

from common import Results, run_ranks

VOCAB, TOKENS = 256, 128  # of one sample, which is a rank's batch
WARMUP_STEPS = 2
INIT_STD = 0.02
SHAPES = {"10m": (6, 6, 384), "85m": (12, 12, 768)}  # layers, heads, width


def linear(inputs, outputs, std=INIT_STD):
    layer = nn.Linear(inputs, outputs)
    nn.init.normal_(layer.weight, 0, std)
    nn.init.zeros_(layer.bias)
    return layer


def embedding(rows, width):
    table = nn.Embedding(rows, width)
    nn.init.normal_(table.weight, 0, INIT_STD)
    return table


class Attention(nn.Module):
    def __init__(self, layers, heads, width):
        super().__init__()
        self.heads = heads
        self.query_key_value = linear(width, 3 * width)
        self.projection = linear(width, width, INIT_STD / math.sqrt(2 * layers))

    def forward(self, x):
        query, key, value = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
                             for part in self.query_key_value(x).chunk(3, -1))
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.projection(mixed.transpose(1, 2).flatten(2))


class Mlp(nn.Module):
    def __init__(self, layers, width):
        super().__init__()
        self.expand = linear(width, 4 * width)
        self.contract = linear(4 * width, width, INIT_STD / math.sqrt(2 * layers))

    def forward(self, x):
        return self.contract(F.gelu(self.expand(x), approximate="tanh"))


class Block(nn.Module):
    def __init__(self, layers, heads, width):
        super().__init__()
        self.attention_norm, self.attention = nn.LayerNorm(width), Attention(layers, heads, width)
        self.mlp_norm, self.mlp = nn.LayerNorm(width), Mlp(layers, width)

    def forward(self, x):
        x = x + self.attention(self.attention_norm(x))
        return x + self.mlp(self.mlp_norm(x))


class Gpt(nn.Module):
    def __init__(self, layers, heads, width, tied=True):
        super().__init__()
        self.token_embedding = embedding(VOCAB, width)
        self.position_embedding = embedding(TOKENS, width)
        self.blocks = nn.ModuleList(Block(layers, heads, width) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = None if tied else embedding(VOCAB, width).weight

    def forward(self, tokens):
        x = self.token_embedding(tokens) + self.position_embedding(torch.arange(tokens.size(1)))
        for block in self.blocks:
            x = block(x)
        return F.linear(self.norm(x), self.token_embedding.weight if self.head is None else self.head)


class BytesSent(TorchDispatchMode):
    """Adds up what the collectives that Python calls must send."""
    GATHERED = "_allgather_base_"
    REDUCED = "_reduce_scatter_base_"

    def __init__(self):
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function.namespace == "c10d":
            name, ranks = function.name(), dist.get_world_size()
            output, source = args[0], args[1]
            if self.GATHERED in name:
                self.bytes += output.nbytes * (ranks - 1) // ranks
            elif self.REDUCED in name:
                self.bytes += source.nbytes * (ranks - 1) // ranks
        return function(*args, **(kwargs or {}))


def shard(model, strategy):
    """As FSDP2's tutorial does: each block, then what is left."""
    dtype = torch.bfloat16 if strategy == "fsdp_bf16" else None
    policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=dtype)
    for block in model.blocks:
        fully_shard(block, mp_policy=policy)
    return fully_shard(model, mp_policy=policy)


def memory_bytes(key):
    """VmRSS, what this process holds in memory, or VmHWM, the most that it ever held."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith(key + ":"))


def train(model, optimizer, tokens, steps):
    """Returns the seconds and the loss of each step."""
    seconds, losses = [], []
    for _ in range(steps):
        start = time.perf_counter()
        loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seconds.append(time.perf_counter() - start)
        losses.append(loss.item())
    return seconds, losses


def gradient_bytes(model):
    ranks = dist.get_world_size()
    return 2 * 4 * sum(parameter.numel() for parameter in model.parameters()) * (ranks - 1) // ranks


def measure(size, strategy, steps, results):
    results.add("rss_before", bytes=memory_bytes("VmRSS"))
    torch.manual_seed(0)
    model = Gpt(*SHAPES[size])
    sent = gradient_bytes(model)
    is_sharded = strategy.startswith("fsdp")
    model = shard(model, strategy) if is_sharded else DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    torch.manual_seed(1 + dist.get_rank())
    tokens = torch.randint(VOCAB, (1, TOKENS + 1))
    train(model, optimizer, tokens, WARMUP_STEPS)
    dist.barrier()
    seconds, losses = train(model, optimizer, tokens, steps)
    results.add("peak_rss", bytes=memory_bytes("VmHWM"))
    if is_sharded:  # afterwards, since a mode that looks at each operator takes time
        with BytesSent() as count:
            train(model, optimizer, tokens, 1)
        sent = count.bytes
    results.add("sent", bytes=sent)
    if dist.get_rank() == 0:
        results.add("step", ns=statistics.median(seconds) * 1e9)
        print(f"fsdp2.py: {strategy}, {size}, loss {losses[0]:.6f} -> {losses[-1]:.6f}")


def run_rank(rank, store, ranks, size, strategy, steps, results):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=ranks)
    measure(size, strategy, steps, results)
    dist.barrier()
    dist.destroy_process_group()


def main():
    results, size, world, strategy, steps = Results(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4], int(sys.argv[5])
    run_ranks(world, run_rank, world, size, strategy, steps, results)


if __name__ == "__main__":
    main()
