"""How a project is trained."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from app.frozen import FrozenMap


@dataclass(frozen=True)
class Choice:
    """A class of `torch.optim` or a loss of `torch.nn` by name, with the parameters that differ from its defaults."""

    name: str
    params: FrozenMap[str, Any] = field(default_factory=FrozenMap)


@dataclass(frozen=True)
class TrainingConfig:
    """`device` is "auto", "cpu", "cuda:0", "mps" ...; "auto" takes the fastest that is present."""

    epochs: int = 20
    batch_size: int = 64
    seed: int = 0
    device: str = "auto"
    optimizer: Choice = Choice("Adam", FrozenMap(lr=0.001))
    loss: Choice = Choice("CrossEntropyLoss")
