"""Data settings of a project."""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field

from app.util.frozen import FrozenMap


class Transform(Struct, frozen=True):
    """A class of `torchvision.transforms.v2` by name, with the parameters that differ from the defaults shown here."""

    name: str
    params: FrozenMap[str, Any] = field(default_factory=FrozenMap)


class DataConfig(Struct, frozen=True):
    """Data settings: `source` is a key of `app.data.sources.SOURCES`; the split is seeded and stratified by class.

    `validation_fraction` and `test_fraction` are the fractions of samples held out for validation and test; for a
    source with a split of its authors, `test_fraction` is the fraction of their held-out part reserved for the test.
    `shuffle` draws a new order for every epoch; `drop_last` drops an incomplete last batch. With `class_weights` losses
    that support it weigh rare classes as much as common ones. `options` are the source's own, those that differ from
    its defaults; `path` is the file or folder of a source that reads one; unreadable samples are skipped if `bad` is
    "skip", and prevent the run if it is "stop". Pictures pass `train_transforms` in training, `eval_transforms`
    otherwise.
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
