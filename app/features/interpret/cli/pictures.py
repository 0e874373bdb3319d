"""Attention maps and attributions as pictures, drawn without Qt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.features.interpret.values import AttentionReading, Attribution

MAP, PICTURE, GAP, LINE, EDGE = 128, 224, 8, 16, 12
ACROSS = 12  # heads in a row
SCALE, BAR = 160, 10  # width and height of the scale of colours
DARK, WARM, LIGHT = (18, 20, 38), (202, 84, 58), (255, 241, 186)
RED, BLUE = (214, 56, 52), (52, 104, 214)


def of_attention(readings: Sequence[AttentionReading]) -> Any:
    """Draw a row of heads for each attention, each map from 0 to its own largest weight; of several windows the
    first."""
    rows = []
    for reading in readings:
        maps = reading.maps[0]
        size = f"{reading.queries} x {reading.keys}" + (
            f", the first of {reading.groups} windows" if reading.groups > 1 else ""
        )
        tiles = [
            (
                _ramp(head_map / max(float(head_map.max()), 1e-12)),
                f"head {head}, max {float(head_map.max()):.3g}",
            )
            for head, head_map in enumerate(maps)
        ]
        rows.append((f"{reading.name}: {size}", tiles))
    return _sheet(
        rows,
        MAP,
        (_ramp(np.linspace(0, 1, SCALE)), "0", "max: the largest weight of each map"),
    )


def of_attributions(attributions: Sequence[Attribution]) -> Any:
    """Draw for each sample its picture, the attributions, and both; red speaks for the class, blue against it."""
    rows = []
    for attribution in attributions:
        tiles = (
            [(attribution.sample.picture, "input")]
            if attribution.sample.picture is not None
            else []
        )
        flat = np.atleast_2d(
            attribution.values.sum(0)
            if attribution.values.ndim == 3
            else attribution.values
        )
        largest = float(np.abs(flat).max(initial=0.0))
        tiles.append((signed(flat), f"{attribution.method}, largest {largest:.3g}"))
        if (
            attribution.sample.picture is not None
            and attribution.sample.picture.shape[:2] == flat.shape
        ):
            tiles.append((overlay(attribution.sample.picture, flat), "both"))
        rows.append(
            (
                f"sample {attribution.sample.number}: {attribution.target}, score {attribution.score:.4g}",
                tiles,
            )
        )
    scale = signed(np.linspace(-1, 1, SCALE)[None])[0]
    return _sheet(
        rows, PICTURE, (scale, "-largest", "largest of each sample; white is 0")
    )


def signed(values: NDArray[Any]) -> NDArray[np.uint8]:
    """Colour values (H, W) from blue by white to red, symmetric about 0."""
    share = np.clip(values / max(float(np.abs(values).max()), 1e-12), -1, 1)[..., None]
    ends = np.where(share < 0, np.array(BLUE, float), np.array(RED, float))
    return (255 + (ends - 255) * np.abs(share)).astype(np.uint8)


def overlay(picture: NDArray[np.uint8], values: NDArray[Any]) -> NDArray[np.uint8]:
    """Tint a picture (H, W, 3), in grey, by values (H, W)."""
    grey = picture.mean(-1, keepdims=True) * 0.6 + 80
    share = np.clip(values / max(float(np.abs(values).max()), 1e-12), -1, 1)[..., None]
    ends = np.where(share < 0, np.array(BLUE, float), np.array(RED, float))
    return (grey + (ends - grey) * np.abs(share) * 0.85).astype(np.uint8)


def _ramp(share: NDArray[Any]) -> NDArray[np.uint8]:
    positions = np.array([0.0, 0.5, 1.0])
    colours = np.array([DARK, WARM, LIGHT], float)
    return np.stack(
        [np.interp(share, positions, colours[:, at]) for at in range(3)], -1
    ).astype(np.uint8)


Scale = tuple[
    NDArray[np.uint8], str, str
]  # colours from left to right, and the words at both ends


def _sheet(
    rows: list[tuple[str, list[tuple[NDArray[np.uint8], str]]]],
    side: int,
    legend: Scale,
) -> Any:
    """Lay titled rows of captioned tiles out on a white sheet, above a scale of colours."""
    from PIL import Image, ImageDraw

    lines = [
        (title if not start else "", tiles[start : start + ACROSS])
        for title, tiles in rows
        for start in range(0, max(len(tiles), 1), ACROSS)
    ]
    wide = max((len(tiles) for _, tiles in lines), default=1)
    height = sum(side + LINE + GAP + (LINE if title else 0) for title, _ in lines)
    longest = max((7 * len(title) for title, _ in rows), default=0)
    longest = max(longest, SCALE + 7 * (len(legend[1]) + len(legend[2])) + 2 * GAP)
    sheet = Image.new(
        "RGB",
        (2 * EDGE + max(wide * (side + GAP), longest), 2 * EDGE + height + LINE + GAP),
        "white",
    )
    pen, top = ImageDraw.Draw(sheet), EDGE
    for title, tiles in lines:
        if title:
            pen.text((EDGE, top), title, fill="black")
            top += LINE
        for column, (pixels, caption) in enumerate(tiles):
            left = EDGE + column * (side + GAP)
            high, broad = pixels.shape[:2]
            scale = side / max(high, broad)
            how = Image.Resampling.NEAREST if scale >= 1 else Image.Resampling.BOX
            size = (max(round(broad * scale), 1), max(round(high * scale), 1))
            sheet.paste(
                Image.fromarray(np.ascontiguousarray(pixels)).resize(size, how),
                (left, top),
            )
            pen.text((left, top + side + 1), caption, fill=(96, 96, 96))
        top += side + LINE + GAP
    colours, low, high = legend
    left = EDGE + 6 * len(low) + GAP
    bar = np.ascontiguousarray(np.broadcast_to(colours[None], (BAR, len(colours), 3)))
    sheet.paste(Image.fromarray(bar), (left, top + 2))
    pen.rectangle(
        (left - 1, top + 1, left + SCALE, top + BAR + 2), outline=(160, 160, 160)
    )
    pen.text((EDGE, top), low, fill=(96, 96, 96))
    pen.text((left + SCALE + GAP, top), high, fill=(96, 96, 96))
    return sheet
