"""Set up a run: data on the device, network with initial weights, optimizer."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import numpy as np
import torch

from app.data.dataset import Dataset
from app.data.loaders import load
from app.data.sources import Watch
from app.source.compiled import load_class
from app.training.inputs import fields_of
from app.training.job import Job, JobError, check_input
from app.training.objectives import prepared, task_of
from app.training.setup.class_weights import weigh_classes
from app.training.setup.initial_weights import initial_module
from app.training.stepper import Stepper
from app.util.rng import GENERATOR

if TYPE_CHECKING:
    from torch import nn

    from app.training.ranks import Ranks


def set_up(
    job: Job,
    device: str,
    watch: Watch = lambda done, total, name: None,
    ranks: Ranks | None = None,
) -> tuple[Stepper, Dataset]:
    """Load the data and initialise the net with the job's seed; leaves the generators of torch, Python and NumPy
    advanced.

    `watch` is called with the progress of reading data, and may raise. With `ranks` the batches are split between
    processes, each of which draws its own random numbers then. Raises JobError, DataError, and what a custom
    layer raises.
    """
    training = job.training
    data = load(job.data, job.data_root, watch)
    data = prepared(job, data)
    check_input(job, data.info)
    data = data.to(device)
    task = task_of(job, data.info)
    if job.source.opened:
        load_class(
            job.source
        )  # packages are imported before seeding, as the exported script imports them
    with GENERATOR:
        torch.manual_seed(training.seed)
        random.seed(training.seed)
        np.random.seed(training.seed % 2**32)
        # Taken along, so that whatever ran between two steps is not noticed.
        model = initial_module(job.source, training.start)
        check_weights(model)
        model = model.to(device)
        if ranks is not None:
            model = ranks.synchronised(model)
        if training.channels_last:
            model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        fields = fields_of(job.source, training.inputs, data.info)
        stepper = Stepper(model, training, task, device, fields, ranks)
        weigh_classes(stepper, job, data.info, device)
        if ranks is not None:
            ranks.split(job, task, stepper.loss, data.train)
            if ranks.rank:
                torch.manual_seed(training.seed + ranks.rank)
    return stepper, data


def check_weights(model: nn.Module) -> None:
    """Raise JobError for a model with weights on the meta device, which have no values."""
    empty = next(
        (name for name, parameter in model.named_parameters() if parameter.is_meta),
        None,
    )
    if empty is not None:
        raise JobError(
            f"{empty} is on the meta device, where tensors have no values. Have the model's code make its weights on "
            "the CPU, or give them values with to_empty() and its initialisation."
        )
