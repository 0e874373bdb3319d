"""Files that commands write: pictures, texts, weights and projects."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from app.cli.console import CommandError, writing
from app.export import text_files
from app.export.weights import save_pt, save_safetensors
from app.graphviz_export import TEXTS, text_of
from app.project import file, file_lock
from app.util import atomic


def picture(
    drawing: Any,
    path: Path,
    options: argparse.Namespace | None = None,
    project: bytes = b"",
) -> str:
    """Draw to a file; return the path with its size. `project` are the bytes of the project that it carries."""
    if path.suffix.lower().removeprefix(".") in TEXTS:
        with writing(path):
            atomic.write_text(
                path, text_of(drawing, path.suffix.lower().removeprefix("."))
            )
        return str(path)
    from app.views.pictures.headless_pictures import write_picture

    with writing(path):
        option_values: dict[str, Any] = vars(options) if options is not None else {}
        carried = b"" if option_values.get("no_project") else project
        note = write_picture(
            drawing,
            path,
            option_values.get("purpose") or "page",
            option_values.get("arranged"),
            carried,
        )
    return f"{path} ({note})" if note else str(path)


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically, and print its path. Raises CommandError."""
    with writing(path):
        text_files.write_text(path, text)
    print(path)


def save(weights: Any, path: Path) -> None:
    (save_pt if path.suffix == ".pt" else save_safetensors)(weights, path)


def digest(path: Path) -> str:
    """Return the digest of a file, to detect changes by others before overwriting it."""
    try:
        return file.digest(path)
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror or error}") from error


def note_open(path: Path) -> None:
    """Print who has a written file open, since that window will report the change."""
    owner = file_lock.holder(path)
    if owner is not None:
        print(
            f"{path} is open in a window ({owner.description}), which reports the change",
            file=sys.stderr,
        )


def note_backup(path: Path, backup: Path | None) -> None:
    """Print the path of the backup, if `project_file.write` made one of an older format."""
    if backup is not None:
        print(f"{path} was of an older format; the original was saved as {backup}")
