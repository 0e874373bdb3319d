"""Automatic mixed precision in bfloat16."""

import torch
from show import show
from torch import nn

torch.manual_seed(4)
net = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 5))
optimizer = torch.optim.AdamW(net.parameters(), 3e-3)
for step in range(1, 121):
    x, y = torch.randn(32, 16), torch.randint(0, 5, (32,))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = nn.functional.cross_entropy(net(x), y)
    optimizer.zero_grad()
    loss.backward()
    show(step, loss.item(), net=net)
    optimizer.step()
