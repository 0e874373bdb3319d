"""Gradient checkpointing, with dropout whose random state is put back."""

import torch
from show import show
from torch import nn
from torch.utils.checkpoint import checkpoint


class Blocks(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(16, 2, 32, 0.1, batch_first=True)
            for _ in range(3)
        )
        self.head = nn.Linear(16, 4)

    def forward(self, x):
        for number, block in enumerate(self.blocks):
            x = checkpoint(
                block, x, use_reentrant=number == 1
            )  # one of the older kind: a backward in the backward
        return self.head(x.mean(1))


torch.manual_seed(17)
model = Blocks()
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
for step in range(1, 61):
    x, y = torch.randn(8, 6, 16), torch.randint(0, 4, (8,))
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    show(step, loss.item(), model=model)
    optimizer.step()
