"""Nets for the tests of playing a backward pass: each with everything that makes its graph special, and small."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

CLASSES = 3


def batch(n: int = 6, features: int = 8, seed: int = 1) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, features, generator=generator), torch.arange(n) % CLASSES


class Residual(nn.Module):
    """A skip and a branch that meet."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.head = (
            nn.Linear(8, 8),
            nn.Linear(8, 8),
            nn.Linear(8, CLASSES),
        )
        self.relu = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        x = self.a(x)
        self.kept = x + self.relu(self.b(x))
        return self.head(self.kept)


class Recurrent(nn.Module):
    """An LSTM, and a GRUCell that is called again and again."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(4, 5, 2, batch_first=True, bidirectional=True)
        self.cell = nn.GRUCell(10, 10)
        self.head = nn.Linear(10, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        sequence, _ = self.lstm(x.view(len(x), 2, 4))
        state = sequence[:, 0]
        for step in range(3):
            state = self.cell(sequence[:, step % 2], state)
        return self.head(state)


class Shared(nn.Module):
    """One layer called three times, and one weight that is two layers'."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.tied, self.head = (
            nn.Linear(8, 8),
            nn.Linear(8, 8),
            nn.Linear(8, CLASSES),
        )
        self.tied.weight = self.one.weight

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(3):
            x = self.one(x).tanh()
        return self.head(self.tied(x))


class Looped(nn.Module):
    """One weight that is used more often than parts of a sum are kept."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.head = nn.Linear(8, 8), nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(10):
            x = self.one(x).tanh()
        return self.head(x)


class Twice(torch.autograd.Function):
    """Two inputs, two outputs, one of which goes unused; a number that is no tensor."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: float, y: Tensor) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(x, y)
        ctx.factor = factor
        return x * y * factor, x + y

    @staticmethod
    def backward(
        ctx: Any, product: Tensor, total: Tensor
    ) -> tuple[Tensor, None, Tensor]:
        x, y = ctx.saved_tensors
        assert total is not None  # a Function is given zeros where nothing arrives
        return product * y * ctx.factor + total, None, product * x * ctx.factor + total


class Custom(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.head = (
            nn.Linear(8, 8),
            nn.Linear(8, 8),
            nn.Linear(8, CLASSES),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.head(Twice.apply(self.a(x), 1.5, self.b(x))[0])


class Checkpointed(nn.Module):
    """A part that is computed again in backward, with dropout in it: the same elements have to be dropped."""

    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        self.reentrant = reentrant
        self.a, self.head = nn.Linear(8, 8), nn.Linear(8, CLASSES)
        self.inner = nn.Sequential(
            nn.Linear(8, 8),
            nn.BatchNorm1d(8),
            nn.Dropout(0.5),
            nn.Sigmoid(),
            nn.Linear(8, 8),
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.a(x)
        x = x + checkpoint(self.inner, x, use_reentrant=self.reentrant)
        return self.head(x)


class Sparse(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(9, 4, sparse=True), nn.Linear(4, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        ids = x.mul(3).long().remainder(9)
        return self.head(self.embed(ids).mean(1) + self.embed(ids[:, :1]).sum(1))


class Several(nn.Module):
    """Three outputs: one inside the graph of another, one that requires no gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.head = nn.Linear(8, 4), nn.Linear(4, CLASSES)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        hidden = self.a(x).tanh()
        return {"hidden": hidden, "logits": self.head(hidden), "input": x.detach()}


class Complex(nn.Module):
    """A real weight that works on complex numbers, and one that is broadcast."""

    def __init__(self) -> None:
        super().__init__()
        self.filter = nn.Parameter(torch.linspace(0.5, 1.5, 5))
        self.scale, self.head = nn.Parameter(torch.ones(1)), nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        spectrum = torch.fft.rfft(x) * self.filter
        return self.head(torch.fft.irfft(spectrum, n=8) * self.scale)


class Convolutions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(1, 4, 3, padding=1),
            nn.BatchNorm2d(4),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
            nn.Dropout(0.25),
            nn.Flatten(),
            nn.Linear(8, 8),
            nn.LayerNorm(8),
            nn.GELU(),
            nn.Linear(8, CLASSES),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x.view(len(x), 1, 2, 4))


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attn, self.head = (
            nn.MultiheadAttention(4, 2, batch_first=True),
            nn.Linear(4, CLASSES),
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x.view(len(x), 2, 4)
        return self.head(self.attn(x, x, x)[0].mean(1))


NETS: dict[str, Callable[[], nn.Module]] = {
    "residual": Residual,
    "recurrent": Recurrent,
    "shared": Shared,
    "looped": Looped,
    "custom": Custom,
    "checkpoint": lambda: Checkpointed(False),
    "reentrant": lambda: Checkpointed(True),
    "sparse": Sparse,
    "complex": Complex,
    "convolutions": Convolutions,
    "attention": Attention,
}

loss = F.cross_entropy


class DoesMuch(nn.Module):
    """Gradients inside the forward pass, functorch, parametrizations, autocast, casts, writes into views, a dict."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.normed = nn.utils.parametrizations.weight_norm(nn.Linear(4, 4))
        self.last = nn.Linear(4, 2)
        self.w = nn.Parameter(torch.randn(4, 3))
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor | int]:
        self.calls += 1
        slope = torch.func.grad(lambda a: (a @ self.w).exp().mean())(x)
        own = x.clone().requires_grad_()
        (inner,) = torch.autograd.grad(
            self.normed(own).tanh().sum(), own, create_graph=True
        )
        rows = torch.vmap(lambda row: row @ self.w)(x)
        kept = x.new_zeros(x.shape)
        kept[:, :3] = rows
        with torch.autocast("cpu", torch.bfloat16):
            half = self.last(slope + inner + kept)
        return {"y": half.float(), "n": len(x)}
