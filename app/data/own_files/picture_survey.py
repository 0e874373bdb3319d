"""Inspect an image folder before it is read: its classes, the depth of its pictures, and what is not read of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct, field

from app.data.own_files.file_survey import FileSurvey, fits
from app.data.own_files.pictures import (
    is_deep,
    name_of,
    open_picture,
    picture_files,
    span_of,
    white_of,
)
from app.data.sources import Watch
from app.data.spec import CLASSES, DataError
from app.util.formatting import counted

ORIENTATION = 0x0112  # of EXIF
ARCHIVE_REST = "__MACOSX"  # a folder that macOS adds to archives
_ON_DISK = "They stay on disk, and each is read when its batch needs it."


def survey_pictures(path: Path, options: Mapping[str, Any], watch: Watch) -> FileSurvey:
    """Inspect an image folder: its subfolders are the classes. Raises DataError, OSError."""
    if len(options["size"]) != 2:
        raise DataError(
            f"size is {options['size']!r}; it must be a height and a width."
        )
    classes, notes = class_folders(path)
    if not classes:
        raise DataError(
            f"{path} has no folders. Put the images of each class into a folder named after it.{' '.join(('', *notes))}"
        )
    picture_size = (
        (3 if options["colour"] else 1) * options["size"][0] * options["size"][1]
    )
    if not fits(5 * picture_size):  # as bytes and as float32
        raise DataError(
            f"One image of {path.name} needs {5 * picture_size / 1000000000.0:,.1f} GB at this size, "
            "more than half of the "
            "memory of this machine. Reduce size."
        )
    files = {name: picture_files(path / name) for name in classes}
    traits = traits_of([file for some in files.values() for file in some], watch)
    size = sum(map(len, files.values())) * picture_size * (4 if traits.deep else 1)
    arguments: dict[str, Any] = {
        "classes": classes,
        "size": options["size"],
        "colour": options["colour"],
    }
    if traits.deep:
        arguments |= {"span": traits.span, "deep": True}
    notes += [*traits.notes(), *_few(files), *_hidden(path, classes)]
    if options["keep"] == "disk" or (options["keep"] == "auto" and not fits(size)):
        arguments |= {
            "workers": options["workers"],
            "timeout": options["timeout"],
            "pin": options["pin_memory"],
        }
        notes.insert(0, _ON_DISK)
    elif not fits(size):
        raise DataError(
            f"The images of {path.name} need {size / 1000000000.0:,.1f} GB at this size, more than half of the memory "
            "of this machine. Leave them on disk (keep), or reduce size."
        )
    return FileSurvey(arguments, CLASSES, classes, notes=tuple(notes))


def class_folders(path: Path) -> tuple[tuple[str, ...], list[str]]:
    """Return the folders that are classes, and a sentence for each that is not: links back to these data."""
    root, notes = path.resolve(), list[str]()
    folders = sorted(
        entry
        for entry in path.iterdir()
        if entry.is_dir() and not entry.name.startswith(".")
    )
    class_by_target: dict[Path, str] = {}
    for folder in sorted(
        folders,
        key=lambda folder_entry: folder_entry.resolve() != root / folder_entry.name,
    ):  # links come last
        target = folder.resolve()
        same = next(
            (
                name
                for other, name in class_by_target.items()
                if _overlap(target, other)
            ),
            "",
        )
        if folder.name == ARCHIVE_REST:
            notes.append(f"{ARCHIVE_REST}, which macOS adds to archives, is not read.")
        elif root.is_relative_to(target):
            notes.append(
                f"{folder.name} is a link that leads back to {target}, so it is not read as a class."
            )
        elif same:
            notes.append(
                f"{folder.name} is a link to pictures of {same}, so it is not read as another class."
            )
        else:
            class_by_target[target] = folder.name
    return tuple(sorted(class_by_target.values())), notes


def _overlap(folder: Path, other: Path) -> bool:
    return folder.is_relative_to(other) or other.is_relative_to(folder)


class Traits(Struct):
    """What a user should know about how pictures are read: for each trait the files that have it.

    `low` and `high` are the extremes of the pictures that have numbers without a depth.
    """

    files: dict[str, list[Path]] = field(default_factory=lambda: defaultdict(list))
    low: float = np.inf
    high: float = -np.inf

    @property
    def deep(self) -> bool:
        return bool(self.files["deep"] or self.files["no depth"])

    @property
    def span(self) -> tuple[float, float] | None:
        return span_of(self.low, self.high) if self.files["no depth"] else None

    def notes(self) -> list[str]:
        """Return a sentence for each trait that occurs."""
        black, white = self.span or (0.0, 1.0)
        texts = {
            "deep": "more than 8 bits per value; all are read as floats, 0 for black and 1 for white",
            "no depth": f"numbers without a depth (mode I or F); {black:g} is read as black and {white:g} as white",
            "deep colour": "16 bits per colour, of which Pillow keeps the upper 8",
            "transparent": "an alpha channel, which is ignored: the colours under it are used",
            "turned": "a rotation in their EXIF data, which is not applied, as by torchvision's ImageFolder",
            "frames": "several frames, of which the first is read",
        }
        return [
            f"{counted(len(files), 'picture')} ({name_of(files[0])}{', …' if len(files) > 1 else ''}) "
            f"{'have' if len(files) > 1 else 'has'} {text}."
            for trait, text in texts.items()
            if (files := self.files[trait])
        ]


def traits_of(
    files: list[Path], watch: Watch = lambda done, total, name: None
) -> Traits:
    """Read the headers of pictures, and the numbers of those without a depth; unreadable ones are left out."""
    traits = Traits()
    for done, file in enumerate(files):
        watch(done, len(files), file.name)
        try:
            with open_picture(file) as opened:
                _note(traits, file, opened)
        except Exception:  # decoders raise any error; the reader names the file with it
            continue
    return traits


def _note(traits: Traits, file: Path, opened: Any) -> None:
    if opened.info.get("exif") and opened.getexif().get(ORIENTATION, 1) != 1:
        traits.files["turned"].append(file)
    if (
        getattr(opened, "is_animated", False) and opened.format != "MPO"
    ):  # of a camera: the others are previews
        traits.files["frames"].append(file)
    if opened.mode in ("LA", "RGBA", "PA") or "transparency" in opened.info:
        traits.files["transparent"].append(file)
    if not is_deep(opened):
        if _has_deep_colour(opened):
            traits.files["deep colour"].append(file)
    elif white_of(opened):
        traits.files["deep"].append(file)
    else:
        pixels = np.asarray(opened)
        if np.isfinite(pixels).all():
            traits.low, traits.high = (
                min(traits.low, float(pixels.min())),
                max(traits.high, float(pixels.max())),
            )
            traits.files["no depth"].append(file)


def _has_deep_colour(opened: Any) -> bool:
    """Return whether the file has 16 bits of each colour, by what PIL decodes it from."""
    wide = [
        args
        for tile in opened.tile
        if isinstance(args := tile[3], tuple) and opened.format == "PPM"
    ]
    return any(";16" in str(tile[3]) for tile in opened.tile) or any(
        max(args[1:]) > 255 for args in wide
    )


def _few(files: Mapping[str, list[Path]]) -> list[str]:
    """Name classes that cannot be split into training and validation."""
    empty = [name for name, some in files.items() if not some]
    single = [name for name, some in files.items() if len(some) == 1]
    notes = [f"No picture in {', '.join(empty)}."] if empty else []
    return [*notes, f"One picture only in {', '.join(single)}."] if single else notes


def _hidden(path: Path, classes: tuple[str, ...]) -> list[str]:
    """Name the hidden files and folders beside the pictures."""
    hidden = [file for name in classes for file in (path / name).rglob(".*")]
    hidden += [
        entry
        for entry in path.iterdir()
        if entry.name.startswith(".") and entry.is_dir()
    ]
    if not hidden:
        return []
    first = f"{name_of(hidden[0])}{', …' if len(hidden) > 1 else ''}"
    return [
        f"{counted(len(hidden), 'hidden file or folder', 'hidden files or folders')} not read: {first}."
    ]
