"""The colours of a plane, of units and of filters, as images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from PySide6.QtGui import QColor, QImage

from app.features.playground.values import LOGIT, PROBABILITY, SCORES, Plane

FAINT, STRONG = (
    0.15,
    0.75,
)  # share of a class's colour where the net is unsure, and sure


def class_image(plane: Plane, colors: Sequence[QColor], ground: QColor) -> QImage:
    """Return the map of the outputs: the colours of the classes, stronger where the net is surer; values from the
    first colour to the second."""
    shares = class_shares(plane)
    palette = np.array([_rgb(color) for color in colors])
    palette = palette[np.arange(shares.shape[-1]) % len(palette)]
    mixed = shares @ palette
    count = shares.shape[-1]
    sure = (shares.max(-1, keepdims=True) - 1 / count) / (1 - 1 / count)
    share = FAINT + (STRONG - FAINT) * sure
    return _image(_rgb(ground) * (1 - share) + mixed * share)


def class_shares(plane: Plane) -> Any:
    """Return the share of each class at each point of the grid, (size, size, classes); of a value how high it is."""
    outputs = np.asarray(plane.outputs, dtype=np.float64)
    if plane.kind == SCORES:
        raised = np.exp(outputs - outputs.max(-1, keepdims=True))
        shares: Any = raised / raised.sum(-1, keepdims=True)
        return shares
    first = outputs[..., :1]
    if plane.kind == LOGIT:
        first = 1 / (1 + np.exp(-np.clip(first, -60, 60)))
    elif plane.kind == PROBABILITY:
        first = np.clip(first, 0, 1)
    else:
        low, high = value_range(first, plane.labels)
        first = np.clip((first - low) / (high - low), 0, 1)
    return np.concatenate([1 - first, first], axis=-1)


def unit_images(units: Any, colors: Sequence[QColor], ground: QColor) -> list[QImage]:
    """Return the map of each unit: above 0 in the second colour, below in the first, as strong as it is large."""
    values = np.nan_to_num(np.asarray(units, dtype=np.float32))
    values = np.moveaxis(values, -1, 0)
    most = np.maximum(np.abs(values).max((1, 2), keepdims=True), 1e-12)
    share = (np.abs(values) / most)[..., None] * STRONG
    color = np.where(values[..., None] >= 0, _rgb(colors[1]), _rgb(colors[0]))
    return [_image(image) for image in _rgb(ground) * (1 - share) + color * share]


def filter_images(
    weights: Any, colors: Sequence[QColor], ground: QColor
) -> list[QImage]:
    """Return the picture of each filter (F, h, w, C): of three channels in their own colours, else as units have it."""
    weights = np.nan_to_num(np.asarray(weights, dtype=np.float32))
    if weights.shape[-1] != 3:
        return unit_images(np.moveaxis(weights.mean(-1), 0, -1)[::-1], colors, ground)
    most = np.maximum(np.abs(weights).max((1, 2, 3), keepdims=True), 1e-12)
    return [_image(each[::-1]) for each in 127.5 * (1 + weights / most)]


def picture_image(sample: Any) -> QImage:
    """Return an image of a picture (H, W, C) of one or three channels, from its least value to its largest."""
    values = np.asarray(sample, dtype=np.float32)
    values = values if values.shape[-1] == 3 else values[..., :1].repeat(3, -1)
    low, high = float(values.min()), float(values.max())
    return _image(255 * (values[::-1] - low) / max(high - low, 1e-12))


def value_range(values: Any, labels: Any) -> tuple[float, float]:
    low = float(min(np.min(values), np.min(labels)))
    high = float(max(np.max(values), np.max(labels)))
    return (low, high) if high > low else (low, low + 1.0)


def _rgb(color: QColor) -> Any:
    return np.array([color.red(), color.green(), color.blue()], dtype=np.float64)


def _image(colors: Any) -> QImage:
    """Return an image whose first row is the last one of an array (height, width, 3) of 0 to 255."""
    data = np.ascontiguousarray(colors[::-1].round().clip(0, 255).astype(np.uint8))
    height, width = data.shape[:2]
    return QImage(
        data.tobytes(), width, height, 3 * width, QImage.Format.Format_RGB888
    ).copy()
