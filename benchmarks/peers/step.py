"""One training step of a tiny network: PyTorch, Lightning's Fabric and Lightning's Trainer.

Usage: step.py RESULTS STEPS [CASE...]. `forward` and `backward` (forward and backward) are parts of the loop.
"""
import logging
import sys
import tempfile
import warnings

import lightning as L
import torch
import torch.nn.functional as F
from lightning.pytorch.loggers import CSVLogger

from common import Results, Source, tiny_batch, tiny_mlp

LEARNING_RATE = 0.01


class Classifier(L.LightningModule):
    def __init__(self, logs):
        super().__init__()
        self.net, self.logs = tiny_mlp(), logs

    def training_step(self, batch, batch_idx):
        data, target = batch
        loss = F.cross_entropy(self.net(data), target)
        if self.logs:
            self.log("train_loss", loss, prog_bar=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=LEARNING_RATE)


def forward(source):
    model = tiny_mlp()
    for data, target in source:
        F.cross_entropy(model(data), target)


def backward(source):
    model = tiny_mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
    for data, target in source:
        loss = F.cross_entropy(model(data), target)
        optimizer.zero_grad()
        loss.backward()


def raw_loop(source):
    model = tiny_mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
    for data, target in source:
        loss = F.cross_entropy(model(data), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def fabric(source):
    runner = L.Fabric(accelerator="cpu", devices=1)
    model = tiny_mlp()
    model, optimizer = runner.setup(model, torch.optim.SGD(model.parameters(), lr=LEARNING_RATE))
    for data, target in source:
        loss = F.cross_entropy(model(data), target)
        optimizer.zero_grad()
        runner.backward(loss)
        optimizer.step()


def trainer_bare(source):
    trainer = L.Trainer(accelerator="cpu", max_epochs=1, logger=False, enable_checkpointing=False,
                        enable_progress_bar=False, enable_model_summary=False)
    trainer.fit(Classifier(logs=False), source)


def trainer_full(source):
    with tempfile.TemporaryDirectory() as folder:
        trainer = L.Trainer(accelerator="cpu", max_epochs=1, logger=CSVLogger(folder), default_root_dir=folder)
        trainer.fit(Classifier(logs=True), source)


CASES = {case.__name__: case for case in (forward, backward, raw_loop, fabric, trainer_bare, trainer_full)}


def main():
    results, steps, names = Results(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    warnings.filterwarnings("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    for name in names or CASES:
        source = Source(tiny_batch(), steps)
        CASES[name](source)
        results.add(name, ns=source.ns_per_step())


if __name__ == "__main__":
    main()
