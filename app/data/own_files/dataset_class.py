"""The file of a user's Dataset class, and whether it may run; `own_dataset` creates the dataset."""

from __future__ import annotations

from pathlib import Path

from app.data.config import DataConfig
from app.data.spec import DataError
from app.source import layer_files
from app.source.layer_files import LayerFile
from app.util import regular_files

KEY = "file.dataset"
LONGEST = 2_000_000


class NotTrustedError(DataError):
    """Raised for a Dataset file that was not reviewed and trusted yet."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"{path.name} is not trusted yet, so none of its code was run. Review it, then trust it.")


def file_of(path: Path) -> LayerFile:
    """Return the current file. Raises DataError."""
    if not (path.stem.isascii() and path.stem.isidentifier()) or path.suffix != ".py":
        raise DataError(f"{path.name} cannot be imported: its name must be a Python identifier, such as my_data.py.")
    try:
        regular_files.check(path)
        with path.open(encoding="utf-8") as file:
            text = file.read(LONGEST + 1)
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{str(path).replace(chr(0), '␀')} cannot be read: {error}") from error
    if len(text) > LONGEST:
        raise DataError(f"{path.name} is longer than {LONGEST:,} characters, which is too long.")
    return LayerFile.from_text(path.stem, text, str(path))


def trusted(config: DataConfig) -> list[str]:
    """Return the hash of a config's file if it may run; passed to worker processes."""
    try:
        sha256 = file_of(Path(config.path)).sha256 if config.source == KEY else ""
    except DataError:
        return []
    return [sha256] if sha256 and layer_files.allowed(sha256) else []
