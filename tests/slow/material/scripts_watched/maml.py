"""Learning to learn: an inner step by functional_call, its second-order gradient by the outer one."""

import torch
from show import show
from torch import nn
from torch.func import functional_call

torch.manual_seed(19)
net = nn.Sequential(nn.Linear(1, 24), nn.Tanh(), nn.Linear(24, 1))
optimizer = torch.optim.Adam(net.parameters(), 1e-2)
for step in range(1, 81):
    optimizer.zero_grad()
    losses = []
    for _task in range(3):
        height, shift = torch.rand(2)
        x = torch.rand(20, 1) * 6 - 3
        y = height * torch.sin(x + shift)
        weights = dict(net.named_parameters())
        inner = nn.functional.mse_loss(functional_call(net, weights, x[:10]), y[:10])
        gradients = torch.autograd.grad(
            inner, list(weights.values()), create_graph=True
        )
        steps = dict(zip(weights, gradients, strict=True))
        fast = {name: weight - 0.1 * steps[name] for name, weight in weights.items()}
        losses.append(
            nn.functional.mse_loss(functional_call(net, fast, x[10:]), y[10:])
        )
    loss = torch.stack(losses).mean()
    loss.backward()
    show(step, loss.item(), net=net)
    optimizer.step()
