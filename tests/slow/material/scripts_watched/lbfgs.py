"""LBFGS with a closure."""

import torch
from show import show
from torch import nn

torch.manual_seed(3)
x = torch.linspace(-2, 2, 100)[:, None]
net = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 1))
optimizer = torch.optim.LBFGS(
    net.parameters(), lr=0.8, max_iter=5, line_search_fn="strong_wolfe"
)


def closure():
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(net(x), torch.sin(3 * x))
    loss.backward()
    print("closure", repr(loss.item()))
    return loss


for step in range(1, 41):
    loss = optimizer.step(closure)
    show(step, loss.item(), net=net)
