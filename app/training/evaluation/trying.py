"""Predictions as shown to the user, and user-made inputs: a drawing, a picture, numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from app.data.spec import ColumnScale

Picture = NDArray[np.uint8]
Image = NDArray[np.float32]
MNIST_BOX = 20 / 28  # fraction of the side that a digit of MNIST fills
SMALL = (
    12  # pixels; in smaller pictures a digit fills the whole side, as in scikit-learn's
)
GREY = np.array(
    [0.299, 0.587, 0.114], np.float32
)  # of red, green and blue, as PIL weighs them (ITU-R 601)


class PictureFile(Struct, frozen=True):
    """A picture file as an input, read as the data's own reader does; `inverted` swaps dark and light."""

    path: Path
    inverted: bool = False


Entered = Image | PictureFile
Sample = Entered | Mapping[str, Entered]  # of several inputs by name


class Shown(Struct, frozen=True, eq=False):
    """One sample for display: `picture` (H, W, 3) bytes, or `text`; its label and its prediction as text."""

    number: int
    picture: Picture | None
    text: str
    title: str
    detail: str
    right: bool | None
    tip: str


class InputSurvey(Struct, frozen=True, eq=False):
    """Statistics of the training samples: minimum, maximum and mean of every channel or column, names of the columns.

    They are in the units of the data; `scale` is that of standardised columns; `outputs` name values to predict.
    If samples have several inputs, each of `parts` is of one, with its `name`, its dtype, its value in the `first`
    sample, and the texts of its integer codes; other fields are those of the first.
    """

    shape: tuple[int, ...]
    classes: tuple[str, ...]
    low: NDArray[np.float32]
    high: NDArray[np.float32]
    mean: NDArray[np.float32]
    columns: tuple[str, ...]
    unit: bool  # the net's answers are probabilities
    weights: str
    name: str = ""
    dtype: str = "float32"
    symbols: tuple[str, ...] = ()
    first: Image | None = None
    parts: tuple[InputSurvey, ...] = ()
    scale: ColumnScale | None = None
    outputs: tuple[str, ...] = ()

    def scaled(self, values: Image) -> Image:
        """Return columns in the units of the data as the network gets them."""
        return values if self.scale is None else self.scale.scaled(values)

    def unscaled(self, values: Image) -> Image:
        """Return columns as the network gets them in the units of the data."""
        return values if self.scale is None else self.scale.unscaled(values)


class Prediction(Struct, frozen=True, eq=False):
    """The net's output for an input: a value per class (or output), the input as a picture, and activations as
    pictures."""

    values: NDArray[np.float32]
    seen: Picture | None
    layers: tuple[tuple[str, tuple[Picture, ...]], ...] = ()
    remark: str = ""  # about the picture file that was read


def is_picture(shape: Sequence[int]) -> bool:
    """Return whether a sample can be displayed: grey or colour, (C, H, W) or (H, W)."""
    return (len(shape) == 3 and shape[0] in (1, 3)) or (
        len(shape) == 2 and min(shape) > 3
    )


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
