"""A dataset of a user's class, from a trusted Python file: map-style or iterable.

The file runs only if its text was allowed, see `app.source.layer_files`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch.utils.data import Dataset, IterableDataset

from app.data.own_files.dataset_class import NotTrustedError, file_of, parse_call
from app.data.spec import DataError
from app.source import layer_files, layer_modules
from app.source.layer_files import LayerFile, LayerFileError, UntrustedError


def class_name(path: Path, call_text: str) -> str:
    """Return the selected class with its arguments, or the only one. Raises DataError."""
    file, call = file_of(path), parse_call(call_text)
    try:
        module = layer_modules.load(file)
    except UntrustedError as error:
        raise NotTrustedError(path) from error
    except LayerFileError as error:
        raise DataError(str(error)) from error
    local_classes = (
        kind
        for kind in vars(module).values()
        if isinstance(kind, type) and kind.__module__ == module.__name__
    )
    names = [kind.__name__ for kind in local_classes if issubclass(kind, Dataset)]
    if call.name and call.name not in names:
        raise DataError(
            f"{path.name} has no Dataset “{call.name}”. It has: {', '.join(names) or 'none'}."
        )
    if not call.name and len(names) != 1:
        raise DataError(
            f"{path.name} has {len(names)} Dataset classes: choose one ({', '.join(names) or 'none'})."
        )
    return str(call) or names[0]


def is_iterable(path: Path, name: str) -> bool:
    """Return whether a trusted class is an iterable dataset. Raises DataError."""
    return issubclass(
        layer_modules.attribute(file_of(path), parse_call(name).name), IterableDataset
    )


def make(path: Path, name: str) -> Dataset[Any]:
    """Construct the dataset; `name` is its class, with arguments where it has some. Raises DataError."""
    return _instantiate(file_of(path), name)


def _instantiate(file: LayerFile, name: str) -> Dataset[Any]:
    call = parse_call(name)
    try:
        dataset: Dataset[Any] = layer_modules.attribute(file, call.name)(
            *call.args, **call.kwargs
        )
    except (Exception, SystemExit) as error:  # user code may raise anything
        raise DataError(
            f"{call.code} of {file.name} fails: {layer_files.error_text(error, file)}"
        ) from error
    assert isinstance(dataset, Dataset)
    return dataset


class Sent:
    """A map-style dataset that can be pickled for a DataLoader worker, where its file is run again."""

    def __init__(self, file: LayerFile, name: str) -> None:
        self._file, self._name = file, name
        self._dataset: Any = _instantiate(file, name)

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, number: int) -> Any:
        return self._dataset[number]

    def __reduce__(self) -> tuple[Any, ...]:
        return _arrived, (
            self._file.module,
            self._file.text,
            self._file.path,
            self._name,
        )


def _arrived(module: str, text: str, path: str, name: str) -> Sent:
    """Rebuild the dataset in a worker: the file has been trusted and tested in the parent."""
    file = LayerFile.from_text(module, text, path)
    layer_files.allow(file.sha256, tried=True)
    return Sent(file, name)
