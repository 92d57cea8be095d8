"""An epoch of the README's program in Lightning: data loader, training, validation, logging.

Usage: epoch.py RESULTS DIGITS EPOCHS [RANKS]
"""
import logging
import sys
import tempfile
import time
import warnings

import lightning as L
import torch
import torch.nn.functional as F
from lightning.pytorch.loggers import CSVLogger
from torch import nn
from torch.utils.data import DataLoader, random_split

from common import Results, digits


class Classifier(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))

    def training_step(self, batch, batch_idx):
        data, target = batch
        loss = F.cross_entropy(self.net(data), target)
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch, batch_idx):
        data, target = batch
        self.log("val_loss", F.cross_entropy(self.net(data), target), sync_dist=True)

    def on_train_epoch_start(self):
        if self.current_epoch == 1:
            self.first_ns = time.perf_counter_ns()

    def on_train_end(self):
        self.last_ns = time.perf_counter_ns()

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=3e-4)


def main():
    results, data, epochs = Results(sys.argv[1]), digits(sys.argv[2]), int(sys.argv[3])
    ranks = int(sys.argv[4]) if len(sys.argv) > 4 else 1
    warnings.filterwarnings("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    train, val = random_split(data, [0.8, 0.2], torch.Generator().manual_seed(0))
    model = Classifier()
    with tempfile.TemporaryDirectory() as folder:
        trainer = L.Trainer(accelerator="cpu", devices=ranks, strategy="ddp" if ranks > 1 else "auto", max_epochs=epochs + 1,
                            logger=CSVLogger(folder), default_root_dir=folder)
        trainer.fit(model, DataLoader(train, batch_size=32, shuffle=True), DataLoader(val, batch_size=256))
    if trainer.is_global_zero:
        results.add("epoch", ns=(model.last_ns - model.first_ns) / epochs)
    if ranks > 1:  # Lightning has started this program again for each other rank
        results.add("run", at_ns=time.monotonic_ns())
        results.add("run_processor_time", processor_ns=time.process_time_ns())


if __name__ == "__main__":
    main()
