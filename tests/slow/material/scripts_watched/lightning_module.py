"""A LightningModule and its Trainer; needs lightning."""

import logging

import lightning.pytorch as pl
import torch
from show import show
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class Lit(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(8, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 2)
        )
        self.seen = 0

    def training_step(self, batch, _place):
        self.loss = nn.functional.cross_entropy(self.net(batch[0]), batch[1])
        return self.loss

    def on_before_optimizer_step(self, optimizer):
        self.seen += 1
        show(self.seen, self.loss.item(), lit=self)

    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.parameters(), 1e-2)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.9)]


pl.seed_everything(21)
lit = Lit()
data = TensorDataset(torch.randn(256, 8), torch.randint(0, 2, (256,)))
trainer = pl.Trainer(
    max_epochs=6,
    accelerator="cpu",
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
    gradient_clip_val=1.0,
)
trainer.fit(lit, DataLoader(data, 16, shuffle=True))
