#!/usr/bin/env python3
"""Says what DeepSpeed makes of the files of public_files.json, for its column "deepspeed".

Usage: run_public_files.py [NAME...], with a Python that has torch 2.13, DeepSpeed 0.19 and ninja. Prints the rows that
are not as the column says: "trains" (two steps, one rank on the CPU) or "refuses". What is "auto" is filled in before,
as HuggingFace's Trainer does, and batch sizes of two ranks are halved. Rows that need a GPU there are left out.
"""
import json
import os
import pathlib
import subprocess
import sys

FILE = pathlib.Path(__file__).parent / "public_files.json"
FILLED = {
    "train_batch_size": 8, "train_micro_batch_size_per_gpu": 8, "gradient_accumulation_steps": 1, "gradient_clipping": 0.0,
    "lr": 1e-3, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.0, "warmup_min_lr": 0, "warmup_max_lr": 1e-3,
    "warmup_num_steps": 1, "total_num_steps": 20, "enabled": False, "reduce_bucket_size": 1000, "stage3_prefetch_bucket_size": 900,
    "stage3_param_persistence_threshold": 10, "stage": 2, "device": "none", "nvme_path": None,
    "stage3_gather_16bit_weights_on_model_save": False,
}


def filled(section):
    return {key: filled(value) if isinstance(value, dict) else FILLED.get(key, value) if value == "auto" else value
            for key, value in section.items()}


def train(row):
    import deepspeed
    import torch
    config = filled(row["file"])
    if config.get("train_batch_size") in (16, 32):
        config["train_batch_size"] //= 2
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Linear(16, 1))
    for parameter in model.parameters():
        parameter.use_muon = parameter.dim() == 2
    deepspeed.init_distributed("gloo")
    own = torch.optim.AdamW(model.parameters()) if row["own"] else None
    engine, *_ = deepspeed.initialize(model=model, optimizer=own, model_parameters=list(model.parameters()), config=config)
    for _ in range(2):
        engine.backward(engine(torch.randn(8, 8)).pow(2).mean())
        engine.step()


def outcome(row, number):
    alone = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(29600 + number),
             "DS_ACCELERATOR": "cpu"}
    process = subprocess.run([sys.executable, __file__, "--train", row["name"]], env=os.environ | alone, text=True, capture_output=True)
    return "trains" if process.returncode == 0 else "refuses", process.stderr.strip().rpartition("\n")[2]


def main(names):
    rows = json.loads(FILE.read_text())
    if names[:1] == ["--train"]:
        return train(next(row for row in rows if row["name"] == names[1]))
    for number, row in enumerate(rows):
        if row["deepspeed"] == "needs a GPU" or (names and row["name"] not in names):
            continue
        found, why = outcome(row, number)
        if found != row["deepspeed"]:
            print(f"{row['name']}: {found}: {why}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
