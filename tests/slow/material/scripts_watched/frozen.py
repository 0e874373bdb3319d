"""Fine-tuning: the body is frozen at first, then thawed with a parameter group and a rate of its own."""

import torch
from show import show
from torch import nn

torch.manual_seed(8)
model = nn.Sequential()
model.body = nn.Sequential(
    nn.Linear(12, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU()
)
model.head = nn.Linear(128, 3)
model.body.requires_grad_(False)
optimizer = torch.optim.Adam(model.head.parameters(), 1e-2)
x, y = torch.randn(1024, 12), torch.randint(0, 3, (1024,))
for step in range(1, 301):
    if step == 101:
        model.body.requires_grad_(True)
        optimizer.add_param_group({"params": model.body.parameters(), "lr": 1e-3})
    if step == 201:
        model.head.requires_grad_(False)
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    show(step, loss.item(), model=model)
    optimizer.step()
