"""How many batches an epoch has."""

from __future__ import annotations

import math

from app.training.job import Job


def batch_count(job: Job, count: int) -> int:
    """Return the number of batches of an epoch over `count` samples."""
    if job.training.one_batch:
        return 1
    size = job.training.batch_size
    return max(count // size if job.data.drop_last else math.ceil(count / size), 1)
