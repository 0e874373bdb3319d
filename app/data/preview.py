"""Preview of the batch that a run trains on first."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from msgspec.structs import replace
from torch import Tensor

from app.data import stand_ins
from app.data.config import DataConfig
from app.data.dataset import Dataset
from app.data.fields import Fields
from app.data.loaders import load, read_spec
from app.data.readers import as_floats
from app.data.samples import TensorSamples
from app.data.sources import Watch
from app.data.spec import (
    CLASSES,
    TOKENS,
    BatchPreview,
    ColumnScale,
    FieldInfo,
    SourceSpec,
)
from app.data.targets import first
from app.util.formatting import in_units, shape_text, significant

SHOWN = 16
COLUMNS = 4


def preview(
    config: DataConfig,
    root: str | Path | None,
    batch: int,
    watch: Watch,
    seed: int = 0,
    one_batch: bool = False,
) -> BatchPreview:
    """Read the data and return the samples that a run with this seed and batch size trains on first. Raises DataError.

    With `one_batch` it is the batch of an overfit test. What random transforms draw is not what the run will draw.
    """
    config = replace(config, bad="skip")  # unreadable samples are reported separately
    data, spec = load(config, root, watch), read_spec(config, watch)
    if data.info.stand_in:
        spec = stand_ins.described(spec)
    order = first_batch(len(data.train), batch, config.shuffle and not one_batch, seed)
    batch_inputs, labels = data.batch_of(order)
    fields = spec.inputs if isinstance(batch_inputs, Fields) else ()
    several = (
        [batch_inputs[index] for index in range(min(SHOWN, len(batch_inputs)))]
        if fields
        else []
    )
    inputs, labels = first(batch_inputs), first(labels)
    real = inputs.double()
    few, shown_labels = inputs[:SHOWN], labels[:SHOWN]
    return BatchPreview(
        spec,
        data.info,
        tuple(inputs.shape),
        _name(inputs),
        float(real.min()),
        float(real.max()),
        tuple(labels.shape),
        _name(labels),
        captions=()
        if spec.task == TOKENS
        else tuple(_caption(spec, label) for label in _in_units(data, shown_labels)),
        pictures=_pictures(batch_inputs)
        if fields
        else tuple(map(_picture, few))
        if _pictured(inputs)
        else (),
        before=_before(config, data, order) if _pictured(inputs) and not fields else (),
        rows=_rows(spec, data.unscaled("", few))
        if inputs.ndim == 2 and spec.task != TOKENS and not fields
        else (),
        texts=tuple(fields_text(fields, sample) for sample in several)
        if fields
        else tuple(_text(spec, sample) for sample in few)
        if spec.task == TOKENS and not inputs.is_floating_point()
        else (),
        shuffled=config.shuffle and not one_batch,
        standardised=bool(data.scales),
    )


def first_batch(count: int, size: int, shuffle: bool, seed: int) -> Tensor:
    """Return the numbers of the first samples of a run, of `count`: its order is drawn by a generator of the seed."""
    order = (
        torch.randperm(count, generator=torch.Generator().manual_seed(seed))
        if shuffle
        else torch.arange(count)
    )
    return order[:size]


def _pictures(fields: Fields) -> tuple[Any, ...]:
    """Return the images of samples with several inputs, side by side where there are several of one height."""
    images = [image[:SHOWN] for image in fields.parts.values() if _pictured(image)]
    images = [image for image in images if image.shape[-2] == images[0].shape[-2]]
    return (
        tuple(
            np.concatenate([_picture(image[index]) for image in images], axis=1)
            for index in range(len(images[0]))
        )
        if images
        else ()
    )


def fields_text(fields: Sequence[FieldInfo], sample: Fields) -> str:
    """Describe one sample with several inputs: each by its name, as symbols or as its first numbers."""
    return "; ".join(
        f"{field.name} {_field_text(field, sample[field.name])}" for field in fields
    )


def _field_text(field: FieldInfo, values: Tensor) -> str:
    if field.symbols:
        return "".join(field.symbols[number] for number in values.flatten().tolist())
    if values.ndim > 1:
        return shape_text(tuple(values.shape))
    if values.dtype == torch.bool:
        return f"{int(values.sum())} of {values.numel()} true"
    return " ".join(
        significant(value, 3) for value in values.flatten().tolist()[:COLUMNS]
    )


def _before(config: DataConfig, data: Dataset, order: Tensor) -> tuple[Any, ...]:
    """Return the images of a batch before transforms."""
    if not config.train_transforms or not isinstance(data.train, TensorSamples):
        return ()
    samples = data.train.inputs[order[:SHOWN]]
    return tuple(
        map(_picture, as_floats(samples) if samples.dtype == torch.uint8 else samples)
    )


def _name(values: Tensor) -> str:
    return str(values.dtype).removeprefix("torch.")


def _pictured(inputs: Tensor) -> bool:
    return (
        inputs.ndim == 4
        and inputs.shape[1] in (1, 3)
        or inputs.ndim == 3
        and min(inputs.shape[1:]) > 3
    )


def _picture(sample: Tensor) -> Any:
    sample = sample.double()
    sample = sample if sample.ndim == 3 else sample.unsqueeze(0)
    low, high = sample.min(), sample.max()
    if low < 0 or high > 1:
        sample = (sample - low) / (high - low).clamp(min=1e-12)
    return (
        sample.mul(255)
        .round()
        .to(torch.uint8)
        .permute(1, 2, 0)
        .expand(-1, -1, 3)
        .contiguous()
        .numpy()
    )


def _in_units(data: Dataset, labels: Tensor) -> Tensor:
    """Return labels of the first target (N, ...) in the units of the data, before they were standardised."""
    units = data.info.units.get(data.info.known_targets[0].name)
    if units is None:
        return labels
    scale = ColumnScale(*(np.array(statistic) for statistic in units))
    return torch.from_numpy(scale.unscaled(labels.numpy()))


def _caption(spec: SourceSpec, label: Tensor) -> str:
    if spec.task == CLASSES:
        return spec.classes[int(label)]
    return ", ".join(map(in_units, label.flatten().tolist()[:3]))


def _rows(spec: SourceSpec, few: Tensor) -> tuple[tuple[str, ...], ...]:
    rows = [row_text(spec, row.tolist(), COLUMNS + 1) for row in few]
    more = ("…",) if len(rows[0]) > COLUMNS else ()
    names = tuple(name for name, _ in rows[0][:COLUMNS])
    texts = (tuple(text for _, text in row[:COLUMNS]) for row in rows)
    return ((*names, *more), *((*row, *more) for row in texts))


def row_text(
    spec: SourceSpec, values: Sequence[float], most: int
) -> list[tuple[str, str]]:
    """Return the first columns of a row as its file has them: name and text, where texts were made of several values.

    `values` are in the units of the file.
    """
    named = len(spec.columns) == len(values)
    categories = {c.first: c for c in spec.categories} if named else {}
    row: list[tuple[str, str]] = []
    position = 0
    while position < len(values) and len(row) < most:
        if (category := categories.get(position)) is not None:
            row.append((category.name, category.text_of(values)))
            position += len(category.texts)
            continue
        name = spec.columns[position] if named else str(position)
        row.append((name, in_units(values[position])))
        position += 1
    return row


def _text(spec: SourceSpec, sample: Tensor) -> str:
    letters = spec.classes
    if any(len(letter) != 1 for letter in letters):
        return " ".join(map(str, sample.flatten().tolist()[:40]))
    return "".join(letters[number] for number in sample.flatten().tolist()).replace(
        "\n", "↵"
    )
