"""Read image files into tensors. The exported `train.py` contains these functions verbatim.

torch is imported at the top since the code runs alone in that script: import this module lazily.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor


def picture_files(folder: Path) -> list[Path]:
    """List the image files below a folder, sorted by name, without hidden ones."""
    kinds = {
        ".png",
        ".jpg",
        ".jpeg",
        ".bmp",
        ".gif",
        ".ppm",
        ".pgm",
        ".tif",
        ".tiff",
        ".webp",
    }
    files = (file for file in folder.rglob("*") if file.suffix.lower() in kinds)
    return sorted(
        f
        for f in files
        if not any(
            component.startswith(".") for component in f.relative_to(folder).parts
        )
    )


def open_picture(file: Path) -> Any:
    """Open an image with PIL without decoding it. Raises PIL's errors, and ValueError for non-images."""
    from PIL import Image, UnidentifiedImageError

    if file.exists() and not file.is_file():  # a pipe would be waited for
        raise ValueError("it is not a regular file")
    try:
        return Image.open(file)
    except Image.DecompressionBombError:
        most = 2 * int(Image.MAX_IMAGE_PIXELS or 0)
        raise ValueError(
            f"it has more than {most:,} pixels; replace it by a smaller copy"
        ) from None
    except UnidentifiedImageError:
        empty = not file.stat().st_size
        raise ValueError(
            "the file is empty"
            if empty
            else "its content is no image of a known format"
        ) from None


def is_deep(picture: Any) -> bool:
    """Return whether PIL holds more than 8 bits of each pixel: its modes I, I;16 and F, which are grey."""
    return picture.mode.startswith(("I", "F"))


def white_of(picture: Any) -> float:
    """Return the number that is white in a deep picture that is not decoded yet; 0 if its format does not say."""
    if picture.mode == "I":
        return 65535.0 if picture.format in ("PNG", "PPM") else 0.0
    if picture.mode == "F":
        return 0.0
    return 4095.0 if any("I;12" in str(tile) for tile in picture.tile) else 65535.0


def span_of(low: float, high: float) -> tuple[float, float]:
    """Return black and white for numbers without a depth: 0 and the smallest usual white (1, 255 or 65,535) that none
    of them exceeds, else the numbers' own extremes."""
    usual = [white for white in (1.0, 255.0, 65535.0) if high <= white]
    return (0.0, usual[0]) if low >= 0 and usual else (low, high)


def brightness(picture: Any, span: Sequence[float] | None = None) -> Any:
    """Return the pixels of a deep picture, (H, W) float32 from 0, black, to 1, white.

    `span` are black and white where the picture's format has no depth; None takes them from the picture alone. Raises
    ValueError for values that are not finite.
    """
    white = white_of(picture)
    pixels = np.asarray(picture).astype(np.float64)
    if not np.isfinite(pixels).all():
        raise ValueError("it holds values that are NaN or infinite")
    low, high = (0.0, white) if white else span or span_of(pixels.min(), pixels.max())
    return ((pixels - low) / ((high - low) or 1.0)).clip(0, 1).astype(np.float32)


def read_picture(
    file: Path,
    size: Sequence[int] | None,
    colour: bool,
    span: Sequence[float] | None = None,
    deep: bool = False,
) -> Tensor:
    """Read one image, or the first frame of several, resized to (height, width) if a size is given.

    It is (3 or 1, height, width) uint8, or float32 in [0, 1] with `deep`, which keeps more than 8 bits. Transparency
    and EXIF orientation are ignored, as by torchvision's ImageFolder.
    """
    from PIL import Image

    with open_picture(file) as opened:
        if grey := is_deep(opened):
            picture = Image.fromarray(brightness(opened, span))
        else:
            convertible = opened.convert("RGB") if opened.mode == "LAB" else opened
            picture = convertible.convert("RGB" if colour else "L")
    if size is not None:
        picture = picture.resize((size[1], size[0]), Image.Resampling.BILINEAR)
    values = torch.from_numpy(np.array(picture))
    values = (
        values.permute(2, 0, 1)
        if values.ndim == 3
        else values.unsqueeze(0).repeat(3 if colour else 1, 1, 1)
    )
    if grey:
        return (
            values.clamp(0, 1)
            if deep
            else values.clamp(0, 1).mul(255).round().to(torch.uint8)
        )
    return values.to(torch.float32).div(255) if deep else values


def name_of(file: Path) -> str:
    """Return folder and name of a file in printable characters."""
    name = f"{file.parent.name}/{file.name}"
    return name if name.isprintable() else repr(name)[1:-1]


def read_pictures(
    path: Path,
    classes: Sequence[str],
    size: Sequence[int],
    colour: bool,
    span: Sequence[float] | None = None,
    deep: bool = False,
    watch: Callable[[int, int, str], None] | None = None,
) -> tuple[Tensor, Tensor, list[str]]:
    """Read a folder of images per class, see `read_picture`: (N, 3 or 1, height, width) and class ids (N,)."""
    files = [
        (file, number)
        for number, name in enumerate(classes)
        for file in picture_files(path / name)
    ]
    pictures, ids, bad = [], [], []
    for done, (file, number) in enumerate(files):
        if watch is not None:
            watch(done, len(files), file.name)
        try:
            pictures.append(read_picture(file, size, colour, span, deep))
            ids.append(number)
        except (
            Exception
        ) as error:  # decoders raise any error for damaged or too large files
            bad.append(f"{name_of(file)}: {error}")
    shape = (3 if colour else 1, *size)
    return (
        torch.stack(pictures) if pictures else torch.empty(0, *shape),
        torch.tensor(ids, dtype=torch.int64),
        bad,
    )
