"""A character model: truncated backpropagation, with the hidden state carried over."""

import torch
from show import show
from torch import nn


class Characters(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.rnn, self.out = (
            nn.Embedding(20, 12),
            nn.LSTM(12, 24),
            nn.Linear(24, 20),
        )

    def forward(self, x, state):
        inside, state = self.rnn(self.embedding(x), state)
        return self.out(inside), state


torch.manual_seed(13)
text = (torch.arange(1000) * 7 % 20).view(-1, 4)
model = Characters()
optimizer = torch.optim.Adam(model.parameters(), 1e-2)
step = 0
for _epoch in range(3):
    state = None
    for start in range(0, 240, 10):
        step += 1
        if state is not None:
            state = tuple(each.detach() for each in state)
        logits, state = model(text[start : start + 10], state)
        loss = nn.functional.cross_entropy(
            logits.flatten(0, 1), text[start + 1 : start + 11].flatten()
        )
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        show(step, loss.item(), model=model)
        optimizer.step()
