"""An exponential moving average of the weights beside the model."""

import torch
from show import show
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

torch.manual_seed(11)
net = nn.Sequential(nn.Linear(6, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Linear(24, 1))
average = AveragedModel(net, multi_avg_fn=get_ema_multi_avg_fn(0.9), use_buffers=True)
optimizer = torch.optim.Adam(net.parameters(), 1e-2)
for step in range(1, 101):
    x = torch.randn(32, 6)
    loss = nn.functional.mse_loss(net(x), x.prod(1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    show(step, loss.item(), net=net)
    optimizer.step()
    average.update_parameters(net)
    if step % 20 == 0:
        print("average", repr(average(x).square().mean().item()))
