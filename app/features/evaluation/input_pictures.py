"""Fit a drawing or a picture to the size, the channels and the range of a net's input."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from app.features.evaluation.values import DrawingStyle, Image, InputSurvey

INK = 0.25  # of the brightness, from which on a pixel differs from the ground
# Of the edges of pictures that are drawn on a plain ground, in their median and mean.
MOST_GROUND, MOST_INK = 0.1, 0.25
GREY = np.array(
    [0.299, 0.587, 0.114], np.float32
)  # of red, green and blue, as PIL weighs them (ITU-R 601)


def drawing_style(pictures: Image) -> DrawingStyle | None:
    """Measure how drawings lie in pictures, (N, H, W) from 0 to 1; None where these have no plain ground."""
    edges = [pictures[:, 0], pictures[:, -1], pictures[:, :, 0], pictures[:, :, -1]]
    edge = np.concatenate(edges, 1)
    dark = float(np.median(edge)) > 0.5
    edge_ink = 1 - edge if dark else edge
    if np.median(edge_ink) > MOST_GROUND or edge_ink.mean() > MOST_INK:
        return None
    ink = 1 - pictures if dark else pictures
    ink = ink[ink.max((1, 2)) > INK]
    if not len(ink):
        return None
    boxes, masses = [], []
    for axis in (1, 2):
        profile = ink.sum(axis)
        marked = (ink > INK).any(axis)
        count = marked.shape[1]
        first, last = marked.argmax(1), count - marked[:, ::-1].argmax(1)
        boxes.append((first, last))
        masses.append(profile @ (np.arange(count) + 0.5) / profile.sum(1))
    extent = np.maximum(*(last - first for first, last in boxes))
    box_spread = sum(float(np.var((first + last) / 2)) for first, last in boxes)
    mass_spread = sum(float(np.var(mass)) for mass in masses)
    fill = float(np.median(extent)) / min(pictures.shape[1:])
    return DrawingStyle(min(fill, 1.0), mass_spread < box_spread, dark)


def as_drawn(ink: Image, survey: InputSurvey) -> Image:
    """Convert an ink drawing, 0 to 1, (H, W), to a picture (1, height, width) that lies in it as the training samples
    do: as large, centred as they are, and dark on light if they are. The whole pad where they have no plain ground."""
    side, style = survey.shape[-2:], survey.drawing
    height, width = side
    if style is None:
        return resized(ink[None], (height, width))
    canvas = np.zeros(side, np.float32)
    rows, columns = np.nonzero(ink.max(1) > 0)[0], np.nonzero(ink.max(0) > 0)[0]
    if len(rows):
        drawn = ink[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
        scale = max(round(min(side) * style.fill), 1) / max(drawn.shape)
        size = (
            max(round(drawn.shape[0] * scale), 1),
            max(round(drawn.shape[1] * scale), 1),
        )
        fitted = resized(drawn[None], size)[0]
        if fitted.max() > 0:
            fitted = fitted / fitted.max()
        top, left = (height - size[0]) // 2, (width - size[1]) // 2
        if style.by_mass:
            total = float(fitted.sum()) or 1.0
            down = float((fitted.sum(1) * (np.arange(size[0]) + 0.5)).sum()) / total
            along = float((fitted.sum(0) * (np.arange(size[1]) + 0.5)).sum()) / total
            top = min(max(math.floor(height / 2 - down + 0.5), 0), height - size[0])
            left = min(max(math.floor(width / 2 - along + 0.5), 0), width - size[1])
        canvas[top : top + size[0], left : left + size[1]] = fitted
    return (1 - canvas if style.dark else canvas)[None]


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
