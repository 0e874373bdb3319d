"""Decide whether synthetic samples are held in memory, or drawn again for each batch."""

from __future__ import annotations

from math import prod

LEAST_SAMPLE = (
    2**14
)  # numbers of a sample: for smaller ones the generator's states would take as much memory
LEAST_ALL = 2**24  # numbers of all samples: 64 MiB, which are held


def drawn_by_batch(shape: tuple[int, ...], count: int) -> bool:
    """Return whether samples of a shape are too many to be held.

    >>> drawn_by_batch((3, 224, 224), 1000), drawn_by_batch((3, 224, 224), 100), drawn_by_batch((3, 8, 8), 100_000)
    (True, False, False)
    """
    return prod(shape) >= LEAST_SAMPLE and prod(shape) * count > LEAST_ALL
