"""A training step of a transformer under DeepSpeed's stages of ZeRO, on CPU ranks over Gloo.

Usage: zero.py RESULTS RANKS STAGE STEPS. The model, its first weights, the data and the optimizer are those of
sharded/sharded_bench.cpp --bench.size 14m.

Bytes are what DeepSpeed asks of torch.distributed, each collective at what it must move from each rank: an all-gather, a
reduce and a reduce-scatter of n bytes n * (ranks - 1) / ranks, an all-reduce twice that.
"""
import importlib
import os
import statistics
import sys

os.environ.setdefault("DS_ACCELERATOR", "cpu")
os.environ.setdefault("DEEPSPEED_LOG_LEVEL", "ERROR")

import deepspeed  # noqa: E402
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.nn.functional as F  # noqa: E402
import time  # noqa: E402

import fsdp2  # noqa: E402
from common import Results, run_ranks  # noqa: E402

# Shared memory that DeepSpeed builds with a compiler at the first run, and uses in inference alone.
importlib.import_module("deepspeed.comm.torch").build_shm_op = lambda: None

VOCAB, TOKENS, BATCH = 4096, 128, 4
LAYERS, HEADS, WIDTH = 6, 6, 384
WARMUP_STEPS = 2


def config(stage):
    return {"train_micro_batch_size_per_gpu": BATCH, "gradient_accumulation_steps": 1, "gradient_clipping": 0.0,
            "zero_allow_untested_optimizer": True, "steps_per_print": 1000000,
            "zero_optimization": {"stage": stage}}


class Counted:
    """Adds up what torch.distributed's collectives must send."""

    def __init__(self):
        self.bytes, self.is_on = 0, False
        for name, share in (("all_reduce", 2), ("reduce", 1), ("all_gather_into_tensor", 1), ("reduce_scatter_tensor", 1),
                            ("_all_gather_base", 1), ("_reduce_scatter_base", 1)):
            self.wrap(name, share)

    def wrap(self, name, share):
        inner = getattr(dist, name)

        def counted(*args, **kwargs):
            if self.is_on:
                ranks = dist.get_world_size()
                whole = max(value.nbytes for value in (*args, *kwargs.values()) if torch.is_tensor(value))
                self.bytes += share * whole * (ranks - 1) // ranks
            return inner(*args, **kwargs)
        setattr(dist, name, counted)


def train(engine, tokens, steps):
    seconds, losses = [], []
    for _ in range(steps):
        start = time.perf_counter()
        loss = F.cross_entropy(engine(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        engine.backward(loss)
        engine.step()
        seconds.append(time.perf_counter() - start)
        losses.append(loss.item())
    return seconds, losses


def measure(rank, ranks, stage, steps, results, counted):
    results.add("rss_before", bytes=fsdp2.memory_bytes("VmRSS"))
    torch.manual_seed(0)
    fsdp2.VOCAB = VOCAB
    model = fsdp2.Gpt(LAYERS, HEADS, WIDTH, tied=False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config(stage))
    torch.manual_seed(1 + rank)
    tokens = torch.randint(VOCAB, (BATCH, TOKENS + 1))
    train(engine, tokens, WARMUP_STEPS)
    dist.barrier()
    seconds, losses = train(engine, tokens, steps)
    results.add("peak_rss", bytes=fsdp2.memory_bytes("VmHWM"))
    counted.is_on = True
    train(engine, tokens, 1)
    results.add("sent", bytes=counted.bytes)
    if rank == 0:
        results.add("step", ns=statistics.median(seconds) * 1e9)
        print(f"zero.py: stage {stage}, loss {losses[0]:.6f} -> {losses[-1]:.6f}")


def run_rank(rank, store, ranks, stage, steps, results):
    torch.set_num_threads(1)
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(ranks), LOCAL_SIZE=str(ranks))
    counted = Counted()
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=ranks)
    deepspeed.init_distributed(dist_backend="gloo", auto_mpi_discovery=False, verbose=False)
    measure(rank, ranks, stage, steps, results, counted)
    dist.barrier()
    dist.destroy_process_group()


def main():
    results, world, stage, steps = Results(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    run_ranks(world, run_rank, world, stage, steps, results)


if __name__ == "__main__":
    main()
