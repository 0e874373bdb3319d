"""A small tape for tests: two layers, one of them called twice, an addition and a loss, captured from real modules."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from msgspec.structs import replace

from app.source.generated import InputSpec, Source
from app.util.frozen import FrozenMap

if TYPE_CHECKING:
    from app.autograd.tape import Tape

TEXT = """from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 4, 3, padding=1)
        self.relu1 = nn.ReLU()
        self.fc1 = nn.Linear(256, 10)

    def forward(self, x):
        x = self.conv1(x)
        y = self.relu1(x)
        x = x + y
        x = x.flatten(1)
        return self.fc1(x)
"""
SOURCE = Source(
    TEXT,
    (InputSpec("x", (1, 8, 8)),),
    ("out",),
    FrozenMap(n1=(7, 12), n2=(8, 13), n3=(14,), n4=(15,), n5=(9, 16)),
    FrozenMap(n1="conv1", n2="relu1", n5="fc1"),
)


@cache
def small_tape() -> Tape:
    import torch

    from app.autograd.batch import compile_batch
    from app.autograd.tape import Label

    labels = {
        "n1": Label("conv1", "conv", "Conv2d"),
        "n2": Label("relu1", "act", "ReLU"),
        "n3": Label("add1", "merge"),
        "n4": Label("flatten1", "shape"),
        "n5": Label("fc1", "linear", "Linear"),
    }
    x = torch.ones(3, 1, 8, 8)
    made = compile_batch(
        SOURCE, x, torch.tensor([1, 2, 3]), torch.nn.CrossEntropyLoss(), 0
    )
    return replace(made, labels=labels).capture()
