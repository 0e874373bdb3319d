"""Data settings of a project."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from app.util.described import About
from app.util.frozen import FrozenMap

MOST_SEED = 2**63 - 1
Fraction = Annotated[float, Meta(ge=0, lt=1)]
Seed = Annotated[int, Meta(ge=0, le=MOST_SEED)]
SPLIT, LOADING, BAD = "Split", "Loading", "Unreadable samples"  # sections


class Transform(Struct, frozen=True):
    """A class of `torchvision.transforms.v2` by name, with the parameters that differ from the defaults shown here."""

    name: str
    params: FrozenMap[str, Any] = FrozenMap()


class DataConfig(Struct, frozen=True):
    """Data settings: `source` is a key of `app.data.sources.SOURCES`; the split is seeded and stratified by class.

    For a source with a split of its authors, `test_fraction` is the fraction of their held-out part reserved for the
    test. With `class_weights` losses that support it weigh rare classes as much as common ones. `options` are the
    source's own, those that differ from its defaults; `path` is the file or folder of a source that reads one.
    Pictures pass `train_transforms` in training, `eval_transforms` otherwise.
    """

    source: str = "sklearn.digits"
    validation_fraction: Annotated[
        Fraction, About(SPLIT, "Fraction of samples held out for validation.")
    ] = 0.2
    test_fraction: Annotated[
        Fraction, About(SPLIT, "Fraction of samples held out for testing.")
    ] = 0.0
    split_seed: Annotated[
        Seed,
        About(
            SPLIT,
            "Seed of the random split, which is stratified: each class is split by the same fractions, unless all have "
            "too few samples for that.",
        ),
    ] = 0
    shuffle: Annotated[bool, About(LOADING, "Shuffles the samples in every epoch.")] = (
        True
    )
    drop_last: Annotated[
        bool, About(LOADING, "Drops the last batch if it is incomplete.")
    ] = False
    class_weights: Annotated[
        bool,
        About(
            LOADING,
            "Weights classes in the loss by inverse frequency, in every loss that supports it.",
        ),
    ] = False
    path: str = ""
    options: FrozenMap[str, Any] = FrozenMap()
    bad: Annotated[
        Literal["stop", "skip"],
        About(BAD, "Unreadable samples: refuse to start the run, or skip them."),
    ] = "stop"
    train_transforms: tuple[Transform, ...] = ()
    eval_transforms: tuple[Transform, ...] = ()
