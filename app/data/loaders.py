"""Reading a project's data into tensors, and splitting them, as the exported `train.py` does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from app.data import readers
from app.data.config import DataConfig
from app.data.known import DIGITS
from app.data.samples import TensorSamples
from app.data.sources import Watch, is_present, options_of, spec_of
from app.data.spec import CLASSES, VALUES, DataError, DataInfo, Dataset, NotDownloaded, SourceSpec
from app.data.splits import standardised, stratified_split

Pair = tuple[Tensor, Tensor]
Parts = tuple[Pair, Pair, Pair]


def read(config: DataConfig, root: Path, watch: Watch) -> Dataset:
    """The data of a config that was checked. Raises NotDownloaded, DataError."""
    spec, options = spec_of(config), options_of(config)
    parts = _authors_parts(config, spec, root) if spec.own_split else _split(config, spec, options, watch)
    return _dataset(config, spec, parts)


def _split(config: DataConfig, spec: SourceSpec, options: Mapping[str, Any], watch: Watch) -> Parts:
    inputs, labels = _WHOLE[spec.key](options)
    ids = labels if spec.task == CLASSES else torch.zeros(len(labels))
    split = stratified_split(ids, config.validation_fraction, config.test_fraction, config.split_seed)
    if options.get("standardise"):
        inputs = standardised(inputs, split[0])
    training, validation, test = ((inputs[part], labels[part]) for part in split)
    return training, validation, test


def _authors_parts(config: DataConfig, spec: SourceSpec, root: Path) -> Parts:
    """What the authors of the data gave to learn from, and what they held out."""
    if not is_present(spec.key, root):
        raise NotDownloaded(spec, root)
    try:
        training, held_out = (_AUTHORS[spec.key](root, part) for part in (True, False))
    except (ValueError, OSError, KeyError, RuntimeError) as error:
        raise DataError(f"The {spec.label} files in {root} cannot be read: {error}. Download them anew.") from error
    inputs, labels = held_out
    validation, _, test = stratified_split(labels, 0.0, config.test_fraction, config.split_seed)
    return training, (inputs[validation], labels[validation]), (inputs[test], labels[test])


def _dataset(config: DataConfig, spec: SourceSpec, parts: Parts) -> Dataset:
    training, validation, test = (TensorSamples(*part, _ready(part[0])) for part in parts)
    if not len(training):
        raise DataError(f"{spec.label}: no sample is left to train on. Make validation_fraction smaller.")
    inputs, _ = next(training.batches([torch.arange(1)]))
    labels, classes = training.labels, len(spec.classes)
    info = DataInfo(
        spec.key,
        spec.label,
        tuple(inputs.shape[1:]),
        str(inputs.dtype).removeprefix("torch."),
        spec.classes,
        len(training),
        len(validation),
        spec.task,
        prod(spec.label_shape),
        len(test),
        () if spec.task == VALUES else tuple(torch.bincount(labels.flatten(), minlength=classes).tolist()),
        spec.label_shape,
        spec.notes,
    )
    return Dataset(training, validation, test, info)


def _ready(inputs: Tensor) -> Callable[[Tensor], Tensor] | None:
    """What makes numbers of samples that are kept as bytes, a quarter of the room."""
    return readers.as_floats if inputs.dtype == torch.uint8 else None


def _points(name: str, options: Mapping[str, Any]) -> Pair:
    return readers.make_points(name, **options)


def _idx(name: str, root: Path, train: bool) -> Pair:
    return readers.read_mnist(root / name / "raw", "train" if train else "t10k")


def _cifar(name: str, root: Path, train: bool) -> Pair:
    from app.torchvision_import import import_torchvision

    import_torchvision("datasets")  # as it can be imported here; the reader finds it so
    return readers.read_cifar(root, name, train)


_WHOLE: dict[str, Callable[[Mapping[str, Any]], Pair]] = {
    DIGITS: lambda options: readers.read_digits(),
    "made.moons": partial(_points, "moons"),
    "made.circles": partial(_points, "circles"),
    "made.fake": lambda options: readers.make_noise(**options),
    **{f"sklearn.{name}": lambda options, name=name: readers.read_table(name)  # type: ignore[misc]
       for name in ("iris", "wine", "breast_cancer")},
}  # fmt: skip
_AUTHORS: dict[str, Callable[[Path, bool], Pair]] = {
    **{f"torchvision.{name}": partial(_idx, name) for name in ("MNIST", "FashionMNIST", "KMNIST")},
    **{f"torchvision.{name}": partial(_cifar, name) for name in ("CIFAR10", "CIFAR100")},
    "torchvision.SVHN": lambda root, train: readers.read_svhn(root / f"{'train' if train else 'test'}_32x32.mat"),
    "torchvision.STL10": lambda root, train: readers.read_stl10(root / "stl10_binary", "train" if train else "test"),
}
