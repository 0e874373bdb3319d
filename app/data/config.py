"""Which data a project trains on."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class DataConfig:
    """`source` is a key of `app.data.sources.SOURCES`; the split is seeded and stratified by class.

    `shuffle` draws a new order for every epoch; `drop_last` leaves out a last batch that is not full.

    `validation_fraction` is the share of samples held out for sources that come without a split of their own.
    """

    source: str = "sklearn.digits"
    validation_fraction: float = 0.2
    split_seed: int = 0
    shuffle: bool = True
    drop_last: bool = False
