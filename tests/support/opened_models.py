"""Models of different kinds that no drawn net could be, in a file that tests open, and what each is called with."""

NETS = '''
from dataclasses import dataclass

import torch
from torch import nn


class Masked(nn.Module):
    """Keyword arguments, a mask that is given and a None, dropout; a dictionary with tensors of several kinds."""

    def __init__(self, width=4):
        super().__init__()
        self.first = nn.Linear(width, 8)
        self.drop = nn.Dropout(0.5)
        self.last = nn.Linear(8, 3)

    def forward(self, *, x, mask=None, weights=None, times=2):
        hidden = torch.tanh(self.first(x))
        if mask is not None and weights is None:
            hidden = hidden * mask
        return {"logits": self.last(self.drop(hidden)) * times, "hidden": [hidden, None], "count": torch.tensor(3)}


@dataclass
class Answer:
    loss: torch.Tensor
    logits: torch.Tensor


class WithLoss(nn.Module):
    """Its output has a loss."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(5, 6)
        self.head = nn.Linear(6, 5)

    def forward(self, ids):
        logits = self.head(self.words(ids))
        return Answer(nn.functional.cross_entropy(logits.flatten(0, 1), ids.flatten()), logits)


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return 3 * x * x * grad


class Tied(nn.Module):
    """One weight with two names, a layer that is called twice, a custom Function."""

    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(4, 4), nn.Linear(4, 4)
        self.two.weight = self.one.weight

    def forward(self, x):
        return self.two(Cube.apply(self.one(x))), [x.sum(), self.one(x)]


class Breaks(nn.Module):
    """Its root has no gradient of zero."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(2, 2)

    def forward(self, x):
        return torch.sqrt(self.fc(x) - self.fc(x)).sum()


class Pair(nn.Module):
    """Two inputs, of which no layer tells anything."""

    def forward(self, left, right):
        return left + right
'''
INPUTS = {
    "Masked": ("x=2x4", "mask=2x8"),
    "WithLoss": ("2x3:int64",),
    "Tied": ("2x4",),
    "Breaks": ("1x2",),
}
KINDS = ("Masked", "WithLoss", "Tied")
