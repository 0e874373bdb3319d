"""A skip-gram with sparse gradients and SparseAdam."""

import torch
from show import show
from torch import nn


class SkipGram(nn.Module):
    def __init__(self):
        super().__init__()
        self.word, self.context = (
            nn.Embedding(200, 16, sparse=True),
            nn.Embedding(200, 16, sparse=True),
        )

    def forward(self, word, context):
        return (self.word(word) * self.context(context)).sum(-1)


torch.manual_seed(20)
model = SkipGram()
optimizer = torch.optim.SparseAdam(list(model.parameters()), 1e-2)
for step in range(1, 121):
    word = torch.randint(0, 200, (32,))
    near, far = (word + 1) % 200, torch.randint(0, 200, (32,))
    loss = (
        -nn.functional.logsigmoid(model(word, near)).mean()
        - nn.functional.logsigmoid(-model(word, far)).mean()
    )
    optimizer.zero_grad()
    loss.backward()
    show(step, loss.item(), model=model)
    optimizer.step()
