"""Look up, validate and load the data of a project."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from app.data.archives import COLLECTIONS
from app.data.config import DataConfig
from app.data.known_sources import DIGITS, MNIST, SIZED, SOURCES
from app.data.own_files import cache
from app.data.spec import DataError, DataInfo, NotDownloadedError, SourceSpec
from app.data.transform_list import is_random, params_of, shape_after
from app.util.described import problem, settings_of
from app.util.user_folders import default_root

__all__ = [
    "DIGITS",
    "MNIST",
    "BY_ENDING",
    "SOURCES",
    "DataError",
    "DataInfo",
    "NotDownloadedError",
    "SourceSpec",
    "UnknownSourceError",
    "Watch",
    "check",
    "config_of",
    "default_root",
    "is_present",
    "options_of",
    "spec_of",
]

if TYPE_CHECKING:
    pass

# Progress callback: done, total, and name. An exception in it aborts the reading.
Watch = Callable[[int, int, str], None]


# Sources of the user's files by their ending.
BY_ENDING = {
    ".csv": "file.csv",
    ".tsv": "file.csv",
    ".npz": "file.tensors",
    ".npy": "file.tensors",
    ".pt": "file.tensors",
    ".txt": "file.text",
    ".py": "file.dataset",
}


class UnknownSourceError(DataError):
    def __init__(self, key: str) -> None:
        super().__init__(
            f"There is no data source “{key}”. Choose one of: {', '.join(SOURCES)}."
        )


def spec_of(config: DataConfig) -> SourceSpec:
    """Return the source that `config` names, with its options applied and the metadata of its files, if read.

    Reads no files: see `look`. Raises UnknownSourceError, DataError for files known to be unusable.
    """
    spec = _base_spec(config)
    if not spec.shape or not (config.train_transforms or config.eval_transforms):
        return spec
    if spec.inputs:
        raise DataError(
            f"{spec.label} has several inputs, and transforms are for one. Remove the transforms."
        )
    learnt, validation_shape = (
        shape_after(transforms, spec.shape)
        for transforms in (config.train_transforms, config.eval_transforms)
    )
    if learnt != validation_shape:
        raise DataError(
            f"The transforms return {learnt} for training and {validation_shape} for validation. Add "
            "those that change the shape "
            "to both lists."
        )
    return replace(spec, shape=learnt)


def _base_spec(config: DataConfig) -> SourceSpec:
    if config.source not in SOURCES:
        raise UnknownSourceError(config.source)
    spec = SOURCES[config.source]
    if spec.picks:
        cached = cache.recall(config)
        if isinstance(cached, DataError):
            raise cached
        return cached or spec
    sized = SIZED.get(spec.key)
    return sized(spec, options_of(config)) if sized is not None else spec


def options_of(config: DataConfig) -> dict[str, Any]:
    """Return the options of the source with defaults, validated, so that their `repr` is Python. Raises DataError."""
    spec = SOURCES[config.source]
    options = {option.name: option for option in spec.options}
    for name, value in config.options.items():
        if name not in options:
            has = f"It has: {', '.join(options)}." if options else "It has none."
            raise DataError(f"{spec.label} has no option “{name}”. {has}")
        if refusal := options[name].refusal(value):
            raise DataError(f"{name} is {value!r}; {refusal}.")
    return {
        option.name: config.options.get(option.name, option.default)
        for option in spec.options
    }


def check(config: DataConfig) -> None:
    """Validate a config without reading data. Raises DataError."""
    if config.source not in SOURCES:
        raise UnknownSourceError(config.source)
    spec = SOURCES[config.source]
    options_of(config)
    _check_transforms(config)
    for name, setting in settings_of(DataConfig).items():
        if text := problem(name, getattr(config, name), setting):
            raise DataError(text)
    if spec.picks and not config.path:
        raise DataError(
            f"{spec.label.removesuffix('…')}: no {spec.picks} is chosen. Choose one under Training, Data."
        )
    if not spec.own_split and config.validation_fraction + config.test_fraction >= 1:
        raise DataError(
            f"test_fraction is {config.test_fraction!r} and validation_fraction {config.validation_fraction!r}: "
            "together they must be below 1, so that samples are left for training."
        )


def _check_transforms(config: DataConfig) -> None:
    for transform in (*config.train_transforms, *config.eval_transforms):
        params_of(transform)
    if is_random(config.eval_transforms):
        raise DataError(
            "Validation samples must be the same each time: random transforms are for training only."
        )
    spec_of(config)


def config_of(path: Path) -> DataConfig | None:
    """Return the data that a file, or a folder of images, is by its ending; None if it is none."""
    key = "file.pictures" if path.is_dir() else BY_ENDING.get(path.suffix.lower())
    return DataConfig(key, path=str(path.absolute())) if key is not None else None


def is_present(source: str, root: str | Path | None = None) -> bool:
    """Return whether the files of `source` exist locally."""
    if source not in COLLECTIONS:
        return True
    folder = Path(root or default_root())
    return all((folder / name).is_file() for name in COLLECTIONS[source].files)
