"""Trials isolated from a concurrent run: a separate network and optimizer, random generators restored."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import torch

from app.training.inputs import fields_of
from app.training.job import Job
from app.training.objectives import task_of
from app.training.setup.class_weights import weigh_classes
from app.training.setup.initial_weights import initial_module
from app.training.stepper import Stepper
from app.util.rng import borrowed

if TYPE_CHECKING:
    from app.data.sources import DataInfo


@contextmanager
def aside(seed: int) -> Iterator[None]:
    """Seed the generators of torch, Python and NumPy with `seed`, and restore them afterwards.

    A concurrent run is blocked meanwhile, so use it for one step at a time.
    """
    with borrowed(seed):
        plain, array = random.getstate(), np.random.get_state()
        try:
            random.seed(seed)
            np.random.seed(seed % 2**32)
            yield
        finally:
            random.setstate(plain)
            np.random.set_state(array)


def stepper_of(job: Job, info: DataInfo, device: str) -> Stepper:
    """Set up `job` for a trial, with its seed. Call it within `aside`."""
    training = job.training
    task = task_of(job, info)
    model = initial_module(job.source, training.start).to(device)
    if training.channels_last:
        model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    stepper = Stepper(
        model, training, task, device, fields_of(job.source, training.inputs, info)
    )
    weigh_classes(stepper, job, info, device)
    return stepper
