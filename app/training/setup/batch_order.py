"""Shuffling and batching of an epoch."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from app.training.job import Job

if TYPE_CHECKING:
    from torch import Generator, Tensor


def batch_count(job: Job, count: int) -> int:
    """Return the number of batches of an epoch over `count` samples."""
    if job.training.one_batch:
        return 1
    size = job.training.batch_size
    return max(count // size if job.data.drop_last else math.ceil(count / size), 1)


def ordered(job: Job, count: int, shuffle: Generator, passed: int = 0) -> list[Tensor]:
    """Return the sample indices of each batch of an epoch that is left, after the first `passed` samples of its order.

    These may have been in batches of another size.
    """
    size = job.training.batch_size
    order = (
        torch.randperm(count, generator=shuffle)
        if job.data.shuffle
        else torch.arange(count)
    )
    if job.training.one_batch:
        # The same samples each time, whatever the order of the others.
        return [] if passed else [torch.arange(min(count, size))]
    chunks = list(order[passed:].split(size)) if passed < count else []
    if (
        job.data.drop_last
        and chunks
        and len(chunks[-1]) < size
        and (passed or len(chunks) > 1)
    ):
        chunks.pop()
    return chunks
