"""Pictures of every mode and depth, with the values that Pillow reads of them."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from app.data.config import DataConfig
from app.data.loaders import read_files
from app.data.sources import DataError
from app.util.frozen import FrozenMap
from tests.slow.odd_outcome import Outcome

HEIGHT, WIDTH = 12, 16
Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(7)
COLOUR = RNG.integers(0, 256, (HEIGHT, WIDTH, 3), dtype=np.uint8)
GREY = COLOUR[..., 0]
DEEP = RNG.integers(0, 65536, (HEIGHT, WIDTH), dtype=np.uint16)
DEEP_COLOUR = RNG.integers(0, 65536, (HEIGHT, WIDTH, 3), dtype=np.uint16)
FLOATS = DEEP / np.float32(65535)


@dataclass(frozen=True)
class Kind:
    """How a picture is written; the values that it is expected to have, (H, W) or (H, W, 3) from 0 to 1, None for
    those that Pillow's `convert` gives; or the words that name its fault. `said` are words of a note about it."""

    write: Callable[[Path], object]
    suffix: str
    values: Array | None = None
    refused: str = ""
    said: str = ""


def saved(
    picture: Image.Image,
    suffix: str = ".png",
    said: str = "",
    values: Array | None = None,
    **options: Any,
) -> Kind:
    return Kind(lambda path: picture.save(path, **options), suffix, values, said=said)


def written(
    data: bytes,
    suffix: str = ".png",
    values: Array | None = None,
    refused: str = "",
    said: str = "",
) -> Kind:
    return Kind(lambda path: path.write_bytes(data), suffix, values, refused, said)


def png(pixels: Array, bits: int, size: tuple[int, int] | None = None) -> bytes:
    """Return a PNG of (H, W) or (H, W, channels) with this depth, which Pillow cannot write for 16 bits in colour. Its
    header may claim another size."""
    channels = pixels.shape[2] if pixels.ndim == 3 else 1
    if bits == 16:
        lines = [row.astype(">u2").tobytes() for row in pixels]
    else:
        per = 8 // bits
        lines = [
            bytes(
                sum(
                    int(value) << (8 - bits * (place + 1))
                    for place, value in enumerate(row[at : at + per])
                )
                for at in range(0, len(row), per)
            )
            for row in pixels
        ]
    raw = b"".join(b"\0" + line for line in lines)
    kind = {1: 0, 2: 4, 3: 2, 4: 6}[channels]
    head = struct.pack(
        ">IIBBBBB", *(size or (pixels.shape[1], pixels.shape[0])), bits, kind, 0, 0, 0
    )

    def chunk(name: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data))
            + name
            + data
            + struct.pack(">I", zlib.crc32(name + data))
        )

    signature = b"\x89PNG\r\n\x1a\n"
    return (
        signature
        + chunk(b"IHDR", head)
        + chunk(b"IDAT", zlib.compress(raw))
        + chunk(b"IEND", b"")
    )


def exif(orientation: int) -> Image.Exif:
    made = Image.Exif()
    made[0x0112] = orientation
    return made


def encoded(picture: Image.Image, kind: str, **options: Any) -> bytes:
    from io import BytesIO

    stream = BytesIO()
    picture.save(stream, kind, **options)
    return stream.getvalue()


def picture_kinds() -> dict[str, Kind]:
    """Return the kinds by name."""
    rgb = Image.fromarray(COLOUR)
    grey = Image.fromarray(GREY)
    alpha = rgb.convert("RGBA")
    alpha.putalpha(grey)
    clear = rgb.convert("RGBA")
    clear.putalpha(Image.new("L", rgb.size, 0))
    flipped = rgb.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    alpha_said, deep_said, kept = (
        "an alpha channel",
        "more than 8 bits",
        "keeps the upper 8",
    )
    no_depth, frames, turned = "without a depth", "the first is read", "a rotation"
    header = b"P5 %d %d %d\n"
    jpeg = encoded(rgb, "JPEG", quality=95)
    whole = encoded(rgb, "PNG")
    upper = (DEEP_COLOUR >> 8) / 255
    deep = Image.fromarray(DEEP)
    return {
        "PNG 1": saved(rgb.convert("1")),
        "PNG L": saved(grey),
        "PNG 2 bits": written(png(GREY >> 6, 2)),
        "PNG 4 bits": written(png(GREY >> 4, 4)),
        "PNG P": saved(rgb.convert("P")),
        "PNG P, transparent": saved(rgb.convert("P"), transparency=3, said=alpha_said),
        "PNG L, transparent": saved(grey, transparency=3, said=alpha_said),
        "PNG RGB": saved(rgb),
        "PNG RGBA": saved(alpha, said=alpha_said),
        "PNG RGBA, all clear": saved(clear, said=alpha_said),
        "PNG LA": saved(rgb.convert("LA"), said=alpha_said),
        "PNG I;16": saved(deep, values=DEEP / 65535, said=deep_said),
        "PNG I;16, dark": saved(
            Image.fromarray(DEEP // 100), values=DEEP // 100 / 65535, said=deep_said
        ),
        "PNG RGB, 16 bits": written(png(DEEP_COLOUR, 16), values=upper, said=kept),
        "PNG RGBA, 16 bits": written(
            png(np.dstack([DEEP_COLOUR, DEEP]), 16), values=upper, said=kept
        ),
        "PNG LA, 16 bits": written(
            png(np.dstack([DEEP, DEEP]), 16), values=(DEEP >> 8) / 255, said=kept
        ),
        "JPEG L": saved(grey, ".jpg"),
        "JPEG RGB": saved(rgb, ".jpeg", quality=95),
        "JPEG CMYK": saved(rgb.convert("CMYK"), ".jpg", quality=95),
        "JPEG progressive": saved(rgb, ".jpg", progressive=True),
        "JPEG turned by 180": saved(rgb, ".jpg", exif=exif(3), said=turned),
        "JPEG turned by 90": saved(rgb, ".jpg", exif=exif(6), said=turned),
        "JPEG not turned": saved(rgb, ".jpg", exif=exif(1)),
        "JPEG in capitals": saved(rgb, ".JPG", format="JPEG"),
        "JPEG called PNG": written(jpeg, ".png"),
        "GIF P": saved(rgb.convert("P"), ".gif"),
        "GIF L": saved(grey, ".gif"),
        "GIF 1": saved(rgb.convert("1"), ".gif"),
        "GIF moving": saved(
            rgb, ".gif", save_all=True, append_images=[flipped], said=frames
        ),
        "GIF transparent": saved(rgb.convert("P"), ".gif", transparency=0),
        "BMP 1": saved(rgb.convert("1"), ".bmp"),
        "BMP L": saved(grey, ".bmp"),
        "BMP P": saved(rgb.convert("P"), ".bmp"),
        "BMP RGB": saved(rgb, ".bmp"),
        "BMP RGBA": saved(alpha, ".bmp"),
        "TIFF 1": saved(rgb.convert("1"), ".tif"),
        "TIFF L": saved(grey, ".tiff"),
        "TIFF P": saved(rgb.convert("P"), ".tif"),
        "TIFF PA": saved(rgb.convert("PA"), ".tif", said=alpha_said),
        "TIFF RGB, LZW": saved(rgb, ".tif", compression="tiff_lzw"),
        "TIFF RGBA": saved(alpha, ".tif", said=alpha_said),
        "TIFF CMYK": saved(rgb.convert("CMYK"), ".tif"),
        "TIFF YCbCr": saved(rgb.convert("YCbCr"), ".tif"),
        "TIFF LAB": saved(Image.merge("LAB", rgb.split()), ".tif"),
        "TIFF LA": saved(rgb.convert("LA"), ".tif", said=alpha_said),
        "TIFF I;16": saved(deep, ".tif", values=DEEP / 65535, said=deep_said),
        "TIFF I;16B": saved(
            Image.fromarray(DEEP.astype(">u2")),
            ".tif",
            values=DEEP / 65535,
            said=deep_said,
        ),
        "TIFF I": saved(
            Image.fromarray(DEEP.astype(np.int32)),
            ".tif",
            values=DEEP / 65535,
            said=no_depth,
        ),
        "TIFF F, 0 to 1": saved(
            Image.fromarray(FLOATS), ".tif", values=FLOATS, said=no_depth
        ),
        "TIFF F, 0 to 255": saved(
            Image.fromarray(FLOATS * 255), ".tif", values=FLOATS, said=no_depth
        ),
        "TIFF F, below 0": saved(
            Image.fromarray(FLOATS - 0.5),
            ".tif",
            said=no_depth,
            values=(FLOATS - FLOATS.min()) / (FLOATS.max() - FLOATS.min()),
        ),
        "TIFF F, NaN": Kind(
            Image.fromarray(np.full((4, 4), np.nan, np.float32)).save,
            ".tif",
            refused="NaN or infinite",
        ),
        "TIFF of two pages": saved(
            rgb, ".tif", save_all=True, append_images=[flipped], said=frames
        ),
        "PGM": saved(grey, ".pgm"),
        "PGM, 16 bits": written(
            header % (WIDTH, HEIGHT, 65535) + DEEP.astype(">u2").tobytes(),
            ".pgm",
            DEEP / 65535,
            said=deep_said,
        ),
        "PGM, 12 bits": written(
            header % (WIDTH, HEIGHT, 4095) + (DEEP >> 4).astype(">u2").tobytes(),
            ".pgm",
            (DEEP >> 4) / 4095,
            said=deep_said,
        ),
        "PPM": saved(rgb, ".ppm"),
        "PPM, 16 bits": written(
            b"P6 %d %d 65535\n" % (WIDTH, HEIGHT) + DEEP_COLOUR.astype(">u2").tobytes(),
            ".ppm",
            DEEP_COLOUR / 65535,
            said=kept,
        ),
        "PPM as text": written(
            b"P3 %d %d 255\n" % (WIDTH, HEIGHT)
            + " ".join(map(str, COLOUR.flatten())).encode(),
            ".ppm",
            COLOUR / 255,
        ),
        "WebP": saved(rgb, ".webp"),
        "WebP lossless, RGBA": saved(alpha, ".webp", lossless=True, said=alpha_said),
        "WebP moving": saved(
            rgb,
            ".webp",
            save_all=True,
            append_images=[flipped],
            lossless=True,
            said=frames,
        ),
        "one pixel": saved(Image.new("RGB", (1, 1), (1, 2, 3))),
        "empty file": written(b"", refused="the file is empty"),
        "half a PNG": written(whole[: len(whole) // 2], refused="runcated"),
        "half a JPEG": written(jpeg[: len(jpeg) // 2], ".jpg", refused="runcated"),
        "text called PNG": written(
            b"not a picture", refused="no image of a known format"
        ),
        "too many pixels": written(
            png(np.zeros((1, 1)), 8, (50_000, 50_000)),
            refused="pixels; replace it by a smaller copy",
        ),
        "folder called PNG": Kind(
            lambda path: path.mkdir(), ".png", refused="not a regular file"
        ),
    }


def check_picture(name: str, folder: Path) -> Outcome:
    """Write a picture of this kind, read it as a folder of images, in colour, and compare the values."""
    kind = picture_kinds()[name]
    (folder / "a").mkdir()
    path = folder / "a" / f"0{kind.suffix}"
    kind.write(path)
    if kind.refused:
        return _refused(name, folder, kind)
    with Image.open(path) as opened:
        size = (opened.height, opened.width)
        expected = (
            np.asarray(opened.convert("RGB")) / 255
            if kind.values is None
            else kind.values
        )
    data = DataConfig("file.pictures", path=str(folder), options=FrozenMap(size=size))
    read = read_files(data, lambda *_: None)
    if read.spec.bad:
        return Outcome(name, "", f"not read: {read.spec.bad[0]}")
    inputs = read.inputs[0].double().numpy() / (255 if read.spec.as_bytes else 1)
    expected = np.broadcast_to(
        expected if expected.ndim == 3 else expected[..., None], (*size, 3)
    )
    gap = float(np.abs(inputs.transpose(1, 2, 0) - expected).max())
    notes = " ".join(read.spec.notes)
    told = f"Pillow's values within {gap:.0e}; {notes}"
    if gap > (1e-5 if read.spec.arguments.get("deep") else 0.5 / 255):
        return Outcome(name, told, f"off by {gap:.4f}")
    fault = (
        ""
        if kind.said in notes and bool(kind.said) == ("One picture only in a." != notes)
        else f"said: {notes}"
    )
    return Outcome(name, told, fault)


def _refused(name: str, folder: Path, kind: Kind) -> Outcome:
    data = DataConfig(
        "file.pictures", path=str(folder), options=FrozenMap(size=(HEIGHT, WIDTH))
    )
    try:
        sentence = f"read: {read_files(data, lambda *_: None).spec.shape}"
    except DataError as error:
        sentence = str(error).partition("The first: ")[2]
    return Outcome(
        name,
        sentence,
        "" if kind.refused in sentence else f"“{kind.refused}” is not in “{sentence}”",
    )
