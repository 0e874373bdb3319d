"""Data settings of a project."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from app.util.frozen import FrozenMap


@dataclass(frozen=True)
class Transform:
    """A class of `torchvision.transforms.v2` by name, with the parameters that differ from the defaults shown here."""

    name: str
    params: FrozenMap[str, Any] = field(default_factory=FrozenMap)


@dataclass(frozen=True)
class DataConfig:
    """`source` is a key of `app.data.sources.SOURCES`; the split is seeded and stratified by class.

    `validation_fraction` and `test_fraction` are the shares of samples held out to validate and to test with; of a
    source that its authors split, `test_fraction` is the share of the part held out by them that is kept for the test.
    `shuffle` draws a new order for every epoch; `drop_last` leaves out a last batch that is not full. With
    `class_weights` the loss, or each of several that can, weighs rare classes as much as common ones. `options` are the
    source's own, those that differ from its defaults; `path` is the file or folder of a source that reads one; what of
    it cannot be read is left out where `bad` is "skip", and stops the run before it begins where it is "stop".
    Pictures go through `train_transforms` when they are learnt from, through `eval_transforms` when they are not.
    """

    source: str = "sklearn.digits"
    validation_fraction: float = 0.2
    split_seed: int = 0
    shuffle: bool = True
    drop_last: bool = False
    test_fraction: float = 0.0
    class_weights: bool = False
    path: str = ""
    options: FrozenMap[str, Any] = field(default_factory=FrozenMap)
    bad: str = "stop"
    train_transforms: tuple[Transform, ...] = ()
    eval_transforms: tuple[Transform, ...] = ()
