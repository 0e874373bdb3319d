"""Class weights by inverse frequency, for every loss that supports them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from app.data.spec import DataInfo
from app.data.splits import balanced_weights
from app.training.setup.weighted_losses import takes_weights

if TYPE_CHECKING:
    from torch import nn

    from app.training.job import Job
    from app.training.stepper import Stepper


def weigh_classes(stepper: Stepper, job: Job, info: DataInfo, device: str) -> None:
    """Set the class weights of the losses, if enabled by the job; none on synthetic data."""
    if not job.data.class_weights:
        return
    task: Any = stepper.task
    if not job.training.losses:
        _weigh(stepper.loss, info.class_counts, device)
        return
    for row, loss in zip(task.rows, stepper.loss.losses, strict=True):  # type: ignore[arg-type]
        if takes_weights(row.given.loss):
            _weigh(loss, info.target_counts.get(row.target, ()), device)


def _weigh(loss: nn.Module, counts: tuple[int, ...], device: str) -> None:
    if counts:
        loss.weight = balanced_weights(torch.tensor(counts)).to(device)
