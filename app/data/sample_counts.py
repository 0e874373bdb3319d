"""Count training samples without reading the data, from the metadata of their source."""

from __future__ import annotations

from app.data.config import DataConfig
from app.data.sources import DataError, spec_of
from app.data.spec import SourceSpec


def training_count(config: DataConfig, spec: SourceSpec | None = None) -> int | None:
    """Number of training samples that `app.data.sources.load` returns, None if unknown before reading."""
    try:
        spec = spec or spec_of(config)
    except DataError:
        return None
    if not spec.per_class:
        return None
    if spec.own_split:
        return sum(spec.per_class)
    shares = (config.validation_fraction, config.test_fraction)
    return sum(count - sum(held_out(count, *shares)) for count in spec.per_class)


def held_out(count: int, validation: float, test: float) -> tuple[int, int]:
    """Return how many samples of a class are held out for validation and test."""
    first = min(round(count * validation), count)
    return first, min(round(count * test), count - first)
