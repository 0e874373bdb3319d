"""Load a project's data into tensors and split them, as the exported `train.py` does."""

from __future__ import annotations

import csv
import threading
from collections.abc import Callable, Hashable, Mapping
from functools import partial
from math import prod
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import torch
from msgspec import Struct
from msgspec.structs import replace
from torch import Tensor
from torch.utils.data import IterableDataset

from app.data import readers, stand_ins, streams, synthetic_fields
from app.data.config import DataConfig
from app.data.dataset import Dataset
from app.data.drawn_samples import drawn_by_batch
from app.data.fields import Fields
from app.data.known_sources import DIGITS, PICTURES
from app.data.own_files import cache, dataset_class, own_dataset, pictures, tables
from app.data.own_files import readers as file_readers
from app.data.own_files import survey as surveys
from app.data.samples import TensorSamples
from app.data.sources import SOURCES, Watch, check, is_present, options_of, spec_of
from app.data.spec import (
    CLASSES,
    VALUES,
    ColumnScale,
    DataError,
    DataInfo,
    FieldInfo,
    NotDownloadedError,
    ReadingCancelledError,
    SourceSpec,
    TargetInfo,
)
from app.data.splits import column_scale, split_in_order, standardised, stratified_split
from app.data.targets import first
from app.data.transforms import readying
from app.util import regular_files
from app.util.formatting import counted, plural, shape_text
from app.util.frozen import FrozenMap
from app.util.rng import borrowed
from app.util.torchvision_import import import_torchvision
from app.util.user_folders import default_root

Pair = tuple[
    Any, Any
]  # inputs: a tensor, Fields, or Streamed; labels: a tensor, or Fields
Parts = tuple[Pair, Pair, Pair]
Units = FrozenMap[str, tuple[tuple[float, ...], tuple[float, ...]]]


def read_spec(
    config: DataConfig, watch: Watch = lambda done, total, name: None
) -> SourceSpec:
    """Return `spec_of` after reading the user's files if they were not cached. Raises UnknownSourceError, DataError."""
    spec = spec_of(config)
    if spec.is_read:
        return spec
    read_files(config, watch)
    return spec_of(config)


def load(
    config: DataConfig,
    root: str | Path | None = None,
    watch: Watch = lambda done, total, name: None,
) -> Dataset:
    """Load the data of `config` and split them.

    Raises UnknownSourceError, NotDownloadedError, or DataError for files that are damaged or a split that leaves
    nothing.
    """
    check(config)
    return read(config, Path(root) if root else default_root(), watch)


def read(config: DataConfig, root: Path, watch: Watch) -> Dataset:
    """Load the data of a validated config. Raises NotDownloadedError, DataError."""
    options = options_of(config)
    if SOURCES[config.source].own_split:
        spec = spec_of(config)
        if stand_ins.is_used(config, root):
            spec = stand_ins.described(spec)
            return _dataset(
                config, spec, _held_out(config, stand_ins.parts(spec)), spec.notes[0]
            )
        return _dataset(config, spec, _authors_parts(config, spec, root))
    if SOURCES[config.source].picks:
        loaded = read_files(config, watch)
        spec, samples = loaded.spec, (loaded.inputs, loaded.labels)
        if spec.bad and config.bad == "stop":
            raise DataError(
                bad_samples_text(spec)
                + " Fix the data, or skip such samples (Training, Data)."
            )
    else:
        inputs, labels = _WHOLE[config.source](options)
        inputs, labels = (
            Fields(tensors) if isinstance(tensors, dict) else tensors
            for tensors in (inputs, labels)
        )
        spec, samples = spec_of(config), (inputs, labels)
    split = _split_rows(config, spec, samples[1])
    inputs, labels = samples
    scales = {}
    if options.get("standardise"):
        input_fields = inputs.parts if isinstance(inputs, Fields) else {"": inputs}
        scales = {
            name: ColumnScale(
                *(statistic.numpy() for statistic in column_scale(tensor, split[0]))
            )
            for name, tensor in input_fields.items()
            if tensor.is_floating_point()
        }
        inputs = standardised(inputs, split[0])
    units = (
        _units(spec, labels, split[0])
        if options.get("standardise_target")
        else FrozenMap()
    )
    labels = standardised(labels, split[0]) if units else labels
    streamed = isinstance(inputs, streams.Streamed)
    training, validation, test = (
        (inputs.part(p) if streamed else inputs[p], labels[p]) for p in split
    )
    rows = dict(zip(("training", "validation", "test"), split, strict=True))
    dataset = _dataset(config, spec, (training, validation, test))
    return replace(
        dataset, rows=rows, scales=scales, info=replace(dataset.info, units=units)
    )


def bad_samples_text(spec: SourceSpec) -> str:
    """Describe unreadable samples in one sentence."""
    first = "; ".join(spec.bad[:3])
    more = f" and {len(spec.bad) - 3:,} more" if len(spec.bad) > 3 else ""
    return f"{counted(len(spec.bad), 'sample')} of {spec.label} cannot be read: {first}{more}."


class LoadedSamples(Struct, frozen=True):
    """The content of a user's files: all samples before the split."""

    spec: SourceSpec
    inputs: Any  # a tensor, Fields, or Streamed
    labels: Any  # a tensor, or Fields


def read_files(config: DataConfig, watch: Watch) -> LoadedSamples:
    """Read a user's files, or return the cached result. Raises DataError, which is remembered as well."""
    key = cache.key_of(config)
    with _READING:
        if _last and _last[0][0] == key:
            return _last[0][1]
        _last.clear()  # first, so that not both are held
        try:
            loaded = _read_files(config, watch)
        except DataError as error:
            if not isinstance(
                error, ReadingCancelledError | dataset_class.NotTrustedError
            ):  # both may be otherwise the next time
                cache.remember(key, error)
            raise
        _last.append((key, loaded))
        cache.remember(key, loaded.spec)
        return loaded


_READING = threading.Lock()
_last: list[tuple[Hashable, LoadedSamples]] = []


def _read_files(config: DataConfig, watch: Watch) -> LoadedSamples:
    spec, path = SOURCES[config.source], Path(config.path)
    try:
        _check_kind(path, spec.picks)
        reports = {"watch": watch}
        survey = surveys.SURVEYS[spec.key](
            path, options_of(config), **(reports if spec.key == PICTURES else {})
        )
        more = reports if spec.key in (PICTURES, dataset_class.KEY) else {}
        inputs, labels, bad = _FILES[spec.key](path, **survey.arguments, **more)
    except dataset_class.NotTrustedError:
        raise
    except FileNotFoundError as error:
        raise DataError(
            f"{error.filename} does not exist. Choose the {spec.picks} again."
        ) from error
    except (
        OSError,
        ValueError,
        TypeError,
        KeyError,
        RuntimeError,
        csv.Error,
        BadZipFile,
        MemoryError,
    ) as error:
        raise DataError(f"{path.name} cannot be read: {error}") from error
    if not len(inputs):
        first = f" The first: {bad[0]}." if bad else ""
        raise DataError(f"{path} has no readable sample.{first}")
    inputs, labels = (
        Fields(tensors) if isinstance(tensors, dict) else tensors
        for tensors in (inputs, labels)
    )
    return LoadedSamples(
        _described(spec, path, survey, inputs, labels, tuple(bad)), inputs, labels
    )


def _check_kind(path: Path, picks: str) -> None:
    """Reject anything but regular files: opening a pipe would block. Raises DataError,
    FileNotFoundError.
    """
    if picks == "folder" and path.is_dir():
        return
    try:
        regular_files.check(path)
    except FileNotFoundError:
        raise
    except OSError as error:
        name = str(path).replace("\0", "␀")
        raise DataError(
            f"{name} cannot be read: {error.strerror}. Choose the {picks} again."
        ) from error


def _described(
    spec: SourceSpec,
    path: Path,
    survey: surveys.FileSurvey,
    inputs: Any,
    labels: Any,
    bad: tuple[str, ...],
) -> SourceSpec:
    """Return the metadata of files that were read."""
    targets = survey.targets
    fields = described_fields(inputs)
    inputs = first(inputs)
    told_targets = labels.parts if isinstance(labels, Fields) else {"": labels}
    if isinstance(labels, Fields) and not targets:
        targets = tuple(
            _target(survey, name, inputs, tensor)
            for name, tensor in labels.parts.items()
        )
    labels = first(labels)
    infers_task = spec.key in ("file.tensors", dataset_class.KEY)
    task, classes = (
        surveys.task_of(inputs, labels) if infers_task else survey.task,
        survey.classes,
    )
    if infers_task and task != VALUES:
        classes = targets[0].classes if targets else _class_names(survey, "", labels)
    per_class = (
        torch.bincount(labels, minlength=len(classes)).tolist()
        if task == CLASSES
        else [len(labels)]
    )
    return replace(
        spec,
        label=path.name,
        shape=tuple(inputs.shape[1:]),
        classes=classes,
        per_class=tuple(per_class),
        dtype="float32"
        if inputs.dtype == torch.uint8
        else str(inputs.dtype).removeprefix("torch."),
        task=task,
        label_shape=tuple(labels.shape[1:]),
        columns=survey.columns,
        notes=(*survey.notes, *_fields_note(fields), *_targets_note(targets)),
        bad=bad,
        arguments=FrozenMap(survey.arguments),
        as_bytes=inputs.dtype == torch.uint8,
        all_columns=survey.all_columns,
        targets=targets,
        inputs=fields,
        target_scales=_scales(told_targets, task),
        label_form=surveys.form_of(labels) if infers_task else "",
    )


def _scales(
    labels: Mapping[str, Any], task: str
) -> FrozenMap[str, tuple[float, float]]:
    """Return mean and standard deviation of the values to predict, by target."""
    numeric_labels = {
        name: label
        for name, label in labels.items()
        if label.is_floating_point() and label.numel()
    }
    return FrozenMap(
        {
            name: (
                float(label.double().mean()),
                float(label.double().std(correction=0)),
            )
            for name, label in numeric_labels.items()
            if name or task == VALUES
        }
    )


def described_fields(inputs: Any) -> tuple[FieldInfo, ...]:
    """Return names, shapes and dtypes of several inputs; empty for one."""
    if not isinstance(inputs, Fields):
        return ()
    return tuple(
        FieldInfo(
            name, tuple(tensor.shape[1:]), str(tensor.dtype).removeprefix("torch.")
        )
        for name, tensor in inputs.parts.items()
    )


def _fields_note(fields: tuple[FieldInfo, ...]) -> tuple[str, ...]:
    """Summarise the inputs, if there are several."""
    descriptions = [
        f"{field.name} ({shape_text(field.shape, 'one number')} {field.dtype})"
        for field in fields
    ]
    return (f"Inputs: {', '.join(descriptions)}.",) if descriptions else ()


def _targets_note(targets: tuple[TargetInfo, ...]) -> tuple[str, ...]:
    """Summarise the targets, if there are several."""
    descriptions = [
        f"{target.name} ({counted(len(target.classes), 'class', 'classes')})"
        if target.task != VALUES
        else f"{target.name} ({prod(target.label_shape)} {plural(prod(target.label_shape), 'value')})"
        for target in targets
    ]
    return (f"Targets: {', '.join(descriptions)}.",) if descriptions else ()


def _target(
    survey: surveys.FileSurvey, name: str, inputs: Tensor, labels: Tensor
) -> TargetInfo:
    task = surveys.task_of(inputs, labels)
    classes = () if task == VALUES else _class_names(survey, name, labels)
    return TargetInfo(
        name, task, classes, tuple(labels.shape[1:]), surveys.form_of(labels)
    )


def _class_names(
    survey: surveys.FileSurvey, name: str, labels: Tensor
) -> tuple[str, ...]:
    """Return the class names of a target: its numbered values, or the numbers. Raises DataError.

    That of an only target is "".
    """
    class_values = survey.arguments.get("classes", {})
    if values := class_values.get(name or next(iter(class_values), "")):
        return tuple(map(str, values))
    surveys.check_class_ids(f"“{name}”" if name else "these data", labels)
    return tuple(map(str, range(int(labels.max()) + 1)))


def _split_rows(
    config: DataConfig, spec: SourceSpec, labels: Any
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the rows of each part, among those that could be read. Raises DataError."""
    shares = config.validation_fraction, config.test_fraction
    if config.shuffle and spec.arguments.get("in_order"):
        raise DataError(
            f"{spec.label}: the samples of an iterable dataset come in a fixed order. Disable shuffle (Training, "
            "Data), or keep them in memory."
        )
    if spec.key == "file.text" or spec.arguments.get("in_order"):
        return split_in_order(len(labels), *shares)
    ids = first(labels) if spec.task == CLASSES else torch.zeros(len(labels))
    return stratified_split(ids, *shares, config.split_seed)


def _units(spec: SourceSpec, labels: Any, training: Tensor) -> Units:
    """Return mean and standard deviation of the values to predict over the rows `training`, by target."""
    units = {}
    for target in spec.known_targets:
        values = labels[target.name] if isinstance(labels, Fields) else labels
        if target.task == VALUES and values.is_floating_point():
            mean, spread = column_scale(values, training)
            units[target.name] = (
                tuple(mean.flatten().tolist()),
                tuple(spread.flatten().tolist()),
            )
    return FrozenMap(units)


def _authors_parts(config: DataConfig, spec: SourceSpec, root: Path) -> Parts:
    """Return the training and held-out splits chosen by the authors of the data."""
    if not is_present(spec.key, root):
        raise NotDownloadedError(spec, root)
    try:
        training, held_out = (
            _AUTHORS[spec.key](root, train) for train in (True, False)
        )
    except (ValueError, OSError, KeyError, RuntimeError) as error:
        raise DataError(
            f"The {spec.label} files in {root} cannot be read: {error}. Download them again."
        ) from error
    return _held_out(config, (training, held_out))


def _held_out(config: DataConfig, parts: tuple[Pair, Pair]) -> Parts:
    """Split the held-out samples into validation and test samples."""
    training, (inputs, labels) = parts
    validation, _, test = stratified_split(
        labels, 0.0, config.test_fraction, config.split_seed
    )
    return (
        training,
        (inputs[validation], labels[validation]),
        (inputs[test], labels[test]),
    )


def _dataset(
    config: DataConfig, spec: SourceSpec, parts: Parts, stand_in: str = ""
) -> Dataset:
    as_bytes = not isinstance(parts[0][0], Fields) and parts[0][0].dtype == torch.uint8
    learning, seeing = (
        readying(transforms, as_bytes)
        for transforms in (config.train_transforms, config.eval_transforms)
    )
    training, validation, test = (
        TensorSamples(*pair, ready)
        for pair, ready in zip(parts, (learning, seeing, seeing), strict=True)
    )
    if not len(training):
        raise DataError(
            f"{spec.label}: no samples are left for training. Reduce validation_fraction."
        )
    with borrowed():
        try:
            inputs, _ = next(training.batches([torch.arange(1)]))
        except OSError as error:  # SampleLostError: it was there a moment ago
            raise DataError(f"{spec.label}: {error}") from error
    inputs = first(inputs)
    counts = FrozenMap(
        {target.name: _counts(training.labels, target) for target in spec.known_targets}
    )
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
        counts[spec.known_targets[0].name],
        spec.label_shape,
        spec.notes,
        spec.targets,
        counts,
        spec.inputs,
        stand_in,
        spec.label_form,
    )
    return Dataset(training, validation, test, info)


def _counts(labels: Any, target: TargetInfo) -> tuple[int, ...]:
    """Return the number of samples per class of each target; empty for regression."""
    if target.task == VALUES:
        return ()
    ids = labels[target.name] if isinstance(labels, Fields) else labels
    return tuple(torch.bincount(ids[ids >= 0], minlength=len(target.classes)).tolist())


def _points(name: str, options: Mapping[str, Any]) -> Pair:
    return readers.make_points(name, **options)


def _noise(options: Mapping[str, Any]) -> Pair:
    by_batch = drawn_by_batch(options["shape"], options["count"])
    return (
        streams.stream_noise(**options) if by_batch else readers.make_noise(**options)
    )


def _idx(name: str, root: Path, train: bool) -> Pair:
    return readers.read_mnist(root / name / "raw", "train" if train else "t10k")


def _cifar(name: str, root: Path, train: bool) -> Pair:
    import_torchvision("datasets")  # as it can be imported here; the reader finds it so
    return readers.read_cifar(root, name, train)


_WHOLE: dict[str, Callable[[Mapping[str, Any]], Pair]] = {
    DIGITS: lambda options: readers.read_digits(),
    "made.moons": partial(_points, "moons"),
    "made.circles": partial(_points, "circles"),
    "made.own": lambda options: readers.read_points(**options),
    "made.pairs": lambda options: readers.make_pairs(**options),
    "made.shapes": lambda options: readers.make_shapes(**options),
    "made.dates": lambda options: readers.make_dates(**options),
    "made.fake": _noise,
    "made.fields": lambda options: readers.make_fields(
        **synthetic_fields.arguments_of(options)
    ),
    **{
        f"sklearn.{name}": lambda options, name=name: readers.read_table(name)  # type: ignore[misc]
        for name in ("iris", "wine", "breast_cancer")
    },
}


def _pictures(path: Path, *, watch: Watch, **how: Any) -> tuple[Any, Tensor, list[str]]:
    return (streams.stream_pictures if "pin" in how else pictures.read_pictures)(
        path, watch=watch, **how
    )


def _read_own_class(
    path: Path,
    name: str,
    workers: int,
    timeout: float,
    watch: Watch,
    pin: bool | None = None,
    in_order: bool = False,
) -> tuple[Any, Any, list[str]]:
    dataset: Any = own_dataset.make(path, name)
    if workers and not isinstance(dataset, IterableDataset):
        dataset = own_dataset.Sent(dataset_class.file_of(path), name)
    if pin is not None:
        return streams.stream_dataset(dataset, workers, timeout, pin, watch, borrowed)
    return file_readers.read_dataset(dataset, workers, timeout, watch, borrowed)


_FILES: dict[str, Callable[..., tuple[Tensor, Tensor, list[str]]]] = {
    "file.csv": tables.read_csv,
    "file.tensors": file_readers.read_tensors,
    PICTURES: _pictures,
    "file.text": file_readers.read_text,
    dataset_class.KEY: _read_own_class,
}
_AUTHORS: dict[str, Callable[[Path, bool], Pair]] = {
    **{
        f"torchvision.{name}": partial(_idx, name)
        for name in ("MNIST", "FashionMNIST", "KMNIST")
    },
    **{
        f"torchvision.{name}": partial(_cifar, name) for name in ("CIFAR10", "CIFAR100")
    },
    "torchvision.SVHN": lambda root, train: readers.read_svhn(
        root / f"{'train' if train else 'test'}_32x32.mat"
    ),
    "torchvision.STL10": lambda root, train: readers.read_stl10(
        root / "stl10_binary", "train" if train else "test"
    ),
}
