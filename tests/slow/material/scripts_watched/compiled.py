"""A compiled model, traced by dynamo and run eagerly, so that no compiler is needed."""

import torch
from show import show
from torch import nn

torch.manual_seed(10)
net = torch.compile(
    nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 3)), backend="eager"
)
optimizer = torch.optim.AdamW(net.parameters(), 1e-2)
for step in range(1, 101):
    x = torch.randn(32, 10)
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(net(x), x[:, :3].argmax(1))
    loss.backward()
    show(step, loss.item(), net=net)
    optimizer.step()
