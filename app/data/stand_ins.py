"""Stand-ins for data sets that are not downloaded yet, where the project asks for one: small, made on the spot."""

from __future__ import annotations

from pathlib import Path

import torch
from msgspec.structs import replace
from torch import Tensor
from torch.nn import functional as F

from app.data import readers
from app.data.config import DataConfig
from app.data.known_sources import MNIST
from app.data.sources import is_present, options_of
from app.data.spec import SourceSpec
from app.data.splits import stratified_split

Part = tuple[Tensor, Tensor]
SHAPES = (
    "disc",
    "ring",
    "square",
    "frame",
    "diamond",
    "plus",
    "bars",
    "columns",
    "checks",
    "gradient",
)
COUNT, HELD_OUT = 8000, 0.2


def is_used(config: DataConfig, root: Path) -> bool:
    """Return whether the project asks for a stand-in until the download, and the data are not here yet."""
    return bool(options_of(config).get("stand_in")) and not is_present(
        config.source, root
    )


def described(spec: SourceSpec) -> SourceSpec:
    """Return the facts about the stand-in of a data set."""
    if spec.key == MNIST:
        description, classes = (
            "scikit-learn's 1,797 handwritten digits of 8×8, enlarged to 28×28",
            spec.classes,
        )
    else:
        description, classes = (
            f"{COUNT:,} generated pictures of coloured shapes",
            SHAPES,
        )
    note = (
        f"This is a stand-in for {spec.label}, which is not downloaded: {description}."
    )
    return replace(
        spec, label=f"stand-in for {spec.label}", classes=classes, notes=(note,)
    )


def parts(spec: SourceSpec) -> tuple[Part, Part]:
    """Return the training and the held-out part of a data set's stand-in."""
    images, labels = _digits() if spec.key == MNIST else _pictures()
    training, held_out, _ = stratified_split(labels, HELD_OUT, 0.0, 0)
    return (images[training], labels[training]), (images[held_out], labels[held_out])


def _digits() -> Part:
    """Return handwritten digits as MNIST has them: in the middle 20×20 of 28×28, in [0, 1]."""
    images, labels = readers.read_digits()
    enlarged = F.interpolate(
        images, size=(20, 20), mode="bicubic", align_corners=False
    ).clamp(0, 1)
    return F.pad(enlarged, (4, 4, 4, 4)), labels


def _pictures() -> Part:
    """Return pictures (N, 3, 32, 32) uint8 of one shape each, of any two colours, size and place, with noise."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(COUNT) % len(SHAPES)
    drawn = torch.rand(4, COUNT, 1, 1, generator=generator)
    front, back = torch.rand(2, COUNT, 3, 1, 1, generator=generator)
    mask = torch.zeros(COUNT, 32, 32)
    for number, name in enumerate(SHAPES):
        of = labels == number
        mask[of] = _mask(name, *drawn[:, of])
    back = back * 0.45
    noise = 0.06 * torch.randn(COUNT, 3, 32, 32, generator=generator)
    pictures = back + mask.unsqueeze(1) * (0.55 + 0.45 * front - back) + noise
    return pictures.clamp(0, 1).mul(255).round().to(torch.uint8), labels


def _mask(
    name: str, size: Tensor, row: Tensor, column: Tensor, width: Tensor
) -> Tensor:
    """Return where a shape is, (n, 32, 32) from 0 to 1, by n random numbers of each kind, (n, 1, 1)."""
    size, stripe = 7 + 6 * size, 2 + 2 * width
    down = torch.arange(32.0).view(1, 32, 1) - 12 - 8 * row
    along = torch.arange(32.0).view(1, 1, 32) - 12 - 8 * column
    far, wide = (down**2 + along**2).sqrt(), torch.maximum(down.abs(), along.abs())
    inside, thick = wide <= size, size / 3
    stripes, posts = (down / stripe).floor() % 2 == 0, (along / stripe).floor() % 2 == 0
    match name:
        case "disc":
            return (far <= size).float()
        case "ring":
            return ((far <= size) & (far >= size - thick)).float()
        case "square":
            return inside.float()
        case "frame":
            return (inside & (wide >= size - thick)).float()
        case "diamond":
            return (down.abs() + along.abs() <= size).float()
        case "plus":
            return (
                inside & (torch.minimum(down.abs(), along.abs()) <= thick / 1.5)
            ).float()
        case "bars":
            return (inside & stripes).float()
        case "columns":
            return (inside & posts).float()
        case "checks":
            return (inside & (stripes ^ posts)).float()
    return inside * ((down + size) / (2 * size)).clamp(0, 1)
