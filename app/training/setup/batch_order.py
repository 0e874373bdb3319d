"""Shuffling and batching of an epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.training.job import Job

if TYPE_CHECKING:
    from torch import Generator, Tensor


def ordered(job: Job, count: int, shuffle: Generator) -> list[Tensor]:
    """Return the sample indices of each batch of an epoch."""
    import torch

    order = torch.randperm(count, generator=shuffle) if job.data.shuffle else torch.arange(count)
    chunks = list(order.split(job.training.batch_size))
    if job.training.one_batch:
        # The same samples each time, whatever the order of the others.
        chunks = [torch.arange(min(count, job.training.batch_size))]
    elif job.data.drop_last and len(chunks) > 1 and len(chunks[-1]) < job.training.batch_size:
        chunks.pop()
    return chunks
