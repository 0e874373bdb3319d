"""Load a trusted Dataset class, map-style or iterable, from the user's Python file.

Nothing of the file runs unless its text was allowed, see `app.source.layer_files`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.data.config import DataConfig
from app.data.spec import DataError
from app.source import layer_files, layer_modules
from app.source.layer_files import LayerFile, LayerFileError, Untrusted
from app.util import regular_files

if TYPE_CHECKING:
    from torch.utils.data import Dataset

KEY = "file.dataset"
LONGEST = 2_000_000


class NotTrusted(DataError):
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
    return LayerFile.of(path.stem, text, str(path))


def trusted(config: DataConfig) -> list[str]:
    """Return the hash of a config's file if it may run; passed to worker processes."""
    try:
        sha256 = file_of(Path(config.path)).sha256 if config.source == KEY else ""
    except DataError:
        return []
    return [sha256] if sha256 and layer_files.allowed(sha256) else []


def class_name(path: Path, wanted: str) -> str:
    """Return the selected class name, or the only one. Raises DataError."""
    from torch.utils.data import Dataset

    file = file_of(path)
    try:
        module = layer_modules.load(file)
    except Untrusted as error:
        raise NotTrusted(path) from error
    except LayerFileError as error:
        raise DataError(str(error)) from error
    own = (kind for kind in vars(module).values() if isinstance(kind, type) and kind.__module__ == module.__name__)
    names = [kind.__name__ for kind in own if issubclass(kind, Dataset)]
    if wanted and wanted not in names:
        raise DataError(f"{path.name} has no Dataset “{wanted}”. It has: {', '.join(names) or 'none'}.")
    if not wanted and len(names) != 1:
        raise DataError(f"{path.name} has {len(names)} Dataset classes: choose one ({', '.join(names) or 'none'}).")
    return wanted or names[0]


def is_iterable(path: Path, name: str) -> bool:
    """Return whether a trusted class is an iterable dataset. Raises DataError."""
    from torch.utils.data import IterableDataset

    return issubclass(layer_modules.attribute(file_of(path), name), IterableDataset)


def make(path: Path, name: str) -> Dataset[Any]:
    """Construct the dataset without arguments. Raises DataError."""
    return _made(file_of(path), name)


def _made(file: LayerFile, name: str) -> Dataset[Any]:
    from torch.utils.data import Dataset

    try:
        dataset: Dataset[Any] = layer_modules.attribute(file, name)()
    except (Exception, SystemExit) as error:  # it is a person's own code
        raise DataError(f"{name}() of {file.name} fails: {layer_files.told(error, file)}") from error
    assert isinstance(dataset, Dataset)
    return dataset


class Sent:
    """A map-style dataset that a worker of a DataLoader can be sent: its file goes along and is run there."""

    def __init__(self, file: LayerFile, name: str) -> None:
        self._file, self._name = file, name
        self._dataset: Any = _made(file, name)

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, number: int) -> Any:
        return self._dataset[number]

    def __reduce__(self) -> tuple[Any, ...]:
        return _arrived, (self._file.module, self._file.text, self._file.path, self._name)


def _arrived(module: str, text: str, path: str, name: str) -> Sent:
    """Rebuild the dataset in a worker: the file has been trusted and tested in the parent."""
    file = LayerFile.of(module, text, path)
    layer_files.allow(file.sha256, tried=True)
    return Sent(file, name)
