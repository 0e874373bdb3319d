"""A plain loop over epochs and batches."""

import torch
from show import show
from torch import nn

torch.manual_seed(0)
x, y = torch.randn(320, 10), torch.randint(0, 3, (320,))
net = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 3))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
step = 0
for _epoch in range(15):
    for batch in torch.randperm(320).split(32):
        step += 1
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(x[batch]), y[batch])
        loss.backward()
        show(step, loss.item(), net=net)
        optimizer.step()
