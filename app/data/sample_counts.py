"""Count training samples without reading the data, from the metadata of their source."""

from __future__ import annotations

from collections.abc import Sequence

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
    return sum(spec.per_class) - sum(
        held_out(spec.per_class, config.validation_fraction, config.test_fraction)
    )


def held_out(counts: Sequence[int], validation: float, test: float) -> tuple[int, int]:
    """Return how many samples `app.data.splits` holds out for validation and test, given those of each class."""
    if any(
        share and not any(round(count * share) for count in counts)
        for share in (validation, test)
    ):
        counts = (sum(counts),)
    first = [min(round(count * validation), count) for count in counts]
    return sum(first), sum(
        min(round(n * test), n - validation_count)
        for n, validation_count in zip(counts, first, strict=True)
    )
