"""A GAN: two networks and two optimizers that take turns."""

import torch
from show import show
from torch import nn

torch.manual_seed(2)
generator = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
discriminator = nn.Sequential(nn.Linear(2, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))
optimizer_d = torch.optim.Adam(discriminator.parameters(), 1e-3, betas=(0.5, 0.999))
optimizer_g = torch.optim.Adam(generator.parameters(), 1e-3, betas=(0.5, 0.999))
criterion = nn.BCEWithLogitsLoss()
ones, zeros = torch.ones(32, 1), torch.zeros(32, 1)
for step in range(1, 121):
    real = torch.randn(32, 2) * 0.3 + 1
    fake = generator(torch.randn(32, 4))
    optimizer_d.zero_grad()
    loss_d = criterion(discriminator(real), ones) + criterion(
        discriminator(fake.detach()), zeros
    )
    loss_d.backward()
    show(step, loss_d.item(), discriminator=discriminator)
    optimizer_d.step()
    optimizer_g.zero_grad()
    loss_g = criterion(discriminator(fake), ones)
    loss_g.backward()
    print(
        "generator", repr(loss_g.item()), repr(generator[0].weight.grad.norm().item())
    )
    optimizer_g.step()
