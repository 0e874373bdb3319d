"""A gradient scaler that unscales before clipping; every 40th step overflows and is left out."""

import torch
from show import show
from torch import nn

torch.manual_seed(5)
net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.SGD(net.parameters(), 0.05)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12, growth_interval=20)
step = 0
for number in range(1, 121):
    optimizer.zero_grad()
    loss = net(torch.randn(16, 8)).square().mean()
    scaler.scale(loss).backward()
    if number % 40 == 0:
        net[0].weight.grad[0, 0] = float("inf")
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    if number % 40:
        step += 1
        show(step, loss.item(), net=net)
    scaler.step(optimizer)
    scaler.update()
    print("scale", scaler.get_scale())
