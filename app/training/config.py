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
class StartWeights:
    """What a run starts from: a `.safetensors` file whose keys are those of the net, and the hash that it must have.

    `keys` are those that are taken, all of the file if there are none named; the rest of the net is drawn with the
    seed. `name` is what a person knows the weights by, such as the file that they were read from.
    """

    path: str
    sha256: str
    keys: tuple[str, ...] = ()
    name: str = ""


@dataclass(frozen=True)
class TrainingConfig:
    """`device` is "auto", "cpu", "cuda:0", "mps" ...; "auto" takes the fastest that is present.

    Weights are drawn with `seed`, and then those of `start` are put in their place.
    """

    epochs: int = 20
    batch_size: int = 64
    seed: int = 0
    device: str = "auto"
    optimizer: Choice = Choice("Adam", FrozenMap(lr=0.001))
    loss: Choice = Choice("CrossEntropyLoss")
    start: StartWeights | None = None
