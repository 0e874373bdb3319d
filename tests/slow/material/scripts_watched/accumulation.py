"""Gradients accumulated over four batches."""

import math

import torch
from show import show
from torch import nn

torch.manual_seed(6)
net = nn.Sequential(nn.Linear(10, 32), nn.SiLU(), nn.Linear(32, 2))
optimizer = torch.optim.AdamW(net.parameters(), 1e-2)
losses, step = [], 0
for number in range(1, 321):
    x = torch.randn(8, 10)
    loss = nn.functional.cross_entropy(net(x), (x.sum(1) > 0).long()) / 4
    loss.backward()
    losses.append(loss.item())
    if number % 4 == 0:
        step += 1
        show(step, math.fsum(losses), net=net)
        losses.clear()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
