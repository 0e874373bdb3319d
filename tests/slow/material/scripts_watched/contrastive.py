"""Two encoders and a temperature, trained by one optimizer to find each other's pairs."""

import torch
from show import show
from torch import nn

torch.manual_seed(12)
image = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 8))
text = nn.Sequential(nn.EmbeddingBag(50, 16), nn.Linear(16, 8))
temperature = nn.Parameter(torch.tensor(2.0))
optimizer = torch.optim.AdamW(
    [*image.parameters(), *text.parameters(), temperature], 1e-2
)
for step in range(1, 101):
    words = torch.randint(0, 50, (16, 5))
    pictures = words[:, :4].float().repeat(1, 16).view(
        16, 8, 8
    ) / 50 + 0.1 * torch.randn(16, 8, 8)
    left, right = (
        nn.functional.normalize(image(pictures)),
        nn.functional.normalize(text(words)),
    )
    logits = temperature.exp() * left @ right.T
    wanted = torch.arange(16)
    loss = (
        nn.functional.cross_entropy(logits, wanted)
        + nn.functional.cross_entropy(logits.T, wanted)
    ) / 2
    optimizer.zero_grad()
    loss.backward()
    show(step, loss.item(), image=image, text=text)
    print("temperature", repr(temperature.grad.norm().item()))
    optimizer.step()
