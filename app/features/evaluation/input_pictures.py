"""Fit a drawing or a picture to the size, the channels and the range of a net's input."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from app.features.evaluation.values import Image, InputSurvey

MNIST_BOX = 20 / 28  # fraction of the side that a digit of MNIST fills
SMALL = (
    12  # pixels; in smaller pictures a digit fills the whole side, as in scikit-learn's
)
GREY = np.array(
    [0.299, 0.587, 0.114], np.float32
)  # of red, green and blue, as PIL weighs them (ITU-R 601)


def as_digit(ink: Image, side: tuple[int, int]) -> Image:
    """Convert an ink drawing, 0 to 1, (H, W), to an image of (height, width) preprocessed like a digit of a dataset.

    As in MNIST the drawing is scaled to 20/28 of the height, keeping its aspect ratio, and centred by its centre of
    mass. Pictures below 12 pixels are filled to the edge, as scikit-learn's digits are.
    """
    height, width = side
    canvas = np.zeros(side, np.float32)
    rows, columns = np.nonzero(ink.max(1) > 0)[0], np.nonzero(ink.max(0) > 0)[0]
    if not len(rows):
        return canvas
    drawn = ink[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    small = min(side) < SMALL
    box = min(side) if small else max(round(min(side) * MNIST_BOX), 1)
    scale = box / max(drawn.shape)
    size = (
        max(round(drawn.shape[0] * scale), 1),
        max(round(drawn.shape[1] * scale), 1),
    )
    fitted = resized(drawn[None], size)[0]
    if fitted.max() > 0:
        fitted = fitted / fitted.max()
    if small:
        top, left = (height - size[0]) // 2, (width - size[1]) // 2
    else:
        total = float(fitted.sum()) or 1.0
        down = float((fitted.sum(1) * (np.arange(size[0]) + 0.5)).sum()) / total
        along = float((fitted.sum(0) * (np.arange(size[1]) + 0.5)).sum()) / total
        top = min(max(math.floor(height / 2 - down + 0.5), 0), height - size[0])
        left = min(max(math.floor(width / 2 - along + 0.5), 0), width - size[1])
    canvas[top : top + size[0], left : left + size[1]] = fitted
    return canvas


def resized(values: Image, side: tuple[int, int]) -> Image:
    """Resize pictures (C, H, W) like torch's bilinear interpolation with `antialias`."""
    down, along = (
        _weights(have, want) for have, want in zip(values.shape[1:], side, strict=True)
    )
    small: Image = (down @ values @ along.T).astype(np.float32)
    return small


def _weights(have: int, want: int) -> NDArray[np.float64]:
    """Return the weight of each of `have` pixels for each of `want`, (want, have): triangle filters that sum to 1."""
    scale = have / want
    wide = max(scale, 1.0)
    centres = scale * (np.arange(want)[:, None] + 0.5)
    tents = np.maximum(1 - np.abs(np.arange(have)[None] + 0.5 - centres) / wide, 0)
    return tents / tents.sum(1, keepdims=True)


def as_input(values: Image, survey: InputSurvey) -> Image:
    """Convert a picture of 0 to 1, (C, H, W), to the net's size, channels and value range: black is the minimum of the
    training samples, white the maximum."""
    channels, height, width = (1, *survey.shape)[-3:]
    if values.shape[0] != channels:
        grey = np.tensordot(GREY, values, 1)[None] if len(values) == 3 else values
        values = grey if channels == 1 else np.repeat(grey, channels, 0)
    if values.shape[1:] != (height, width):
        values = resized(values, (height, width))
    low, high = survey.low.reshape(-1, 1, 1), survey.high.reshape(-1, 1, 1)
    if len(survey.shape) == 2:
        low, high = low.min(), high.max()
    fitted: Image = (
        (low + values * (high - low)).astype(np.float32).reshape(survey.shape)
    )
    return fitted
