"""One optimizer is made before its model is moved to another dtype, one after; then it goes on from a state_dict."""

import torch
from show import show
from torch import nn

torch.manual_seed(18)
first = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1))
optimizer = torch.optim.Adam(first.parameters(), 1e-2)
first.double()
for step in range(1, 61):
    loss = first(torch.randn(16, 6, dtype=torch.float64)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    show(step, loss.item(), first=first)
    optimizer.step()
state = optimizer.state_dict()
second = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1))
second.to("cpu", torch.float64).load_state_dict(first.state_dict())
del first
optimizer = torch.optim.Adam(second.parameters(), 1e-2)
optimizer.load_state_dict(state)
for step in range(61, 181):
    loss = second(torch.randn(16, 6, dtype=torch.float64)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    show(step, loss.item(), second=second)
    optimizer.step()
