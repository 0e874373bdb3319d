"""How many samples there are to train on, without reading the data: facts about them, as their sources tell."""

from __future__ import annotations

from app.data.config import DataConfig
from app.data.sources import DIGITS, MNIST

# Samples of each class, for data that are split by class: a share of each is held out.
_PER_CLASS: dict[str, tuple[int, ...]] = {DIGITS: (178, 182, 177, 183, 181, 182, 181, 179, 174, 180)}
# Training samples of data that their authors split.
_TRAINING: dict[str, int] = {MNIST: 60_000}


def training_count(config: DataConfig) -> int | None:
    """Training samples that `app.data.sources.load` would give, None if the source is not known here."""
    if config.source in _PER_CLASS:
        return sum(count - round(count * config.validation_fraction) for count in _PER_CLASS[config.source])
    return _TRAINING.get(config.source)
