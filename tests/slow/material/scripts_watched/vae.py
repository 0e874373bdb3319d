"""A variational autoencoder with a loss of its own."""

import torch
from show import show
from torch import nn


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(16, 32), nn.ReLU())
        self.mean, self.log_variance = nn.Linear(32, 3), nn.Linear(32, 3)
        self.decoder = nn.Sequential(
            nn.Linear(3, 32), nn.ReLU(), nn.Linear(32, 16), nn.Sigmoid()
        )

    def forward(self, x):
        inside = self.encoder(x)
        mean, log_variance = self.mean(inside), self.log_variance(inside)
        drawn = mean + torch.randn_like(mean) * (log_variance / 2).exp()
        return self.decoder(drawn), mean, log_variance


def loss_function(made, x, mean, log_variance):
    missing = nn.functional.binary_cross_entropy(made, x, reduction="sum")
    return missing - 0.5 * torch.sum(
        1 + log_variance - mean.square() - log_variance.exp()
    )


torch.manual_seed(14)
model = VAE()
optimizer = torch.optim.Adam(model.parameters(), 1e-3)
for step in range(1, 101):
    x = torch.rand(32, 16)
    optimizer.zero_grad()
    made, mean, log_variance = model(x)
    loss = loss_function(made, x, mean, log_variance)
    loss.backward()
    show(step, loss.item(), model=model)
    optimizer.step()
