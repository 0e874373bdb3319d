"""Activations and filters of one layer for one sample: of a running run, stored weights, or initial weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch

from app.data.dataset import Dataset
from app.data.loaders import load
from app.data.targets import first
from app.training.inputs import arguments, fields_of
from app.training.job import Job, check_input
from app.training.monitoring.live_model import LiveRun
from app.training.monitoring.looks import LayerInside
from app.training.monitoring.snapshots import activations, filters
from app.training.objectives import first_classes, prepared
from app.training.setup.initial_weights import initial_module
from app.util.formatting import significant
from app.util.rng import borrowed

if TYPE_CHECKING:
    from torch import Tensor, nn


def of_run(live: LiveRun, layer: str, sample: int) -> LayerInside:
    """Return the activations of a layer at this moment of the run."""
    weights = f"the run's weights after step {live.step:,}"
    return _inside(
        live.model, live.data, live.device, layer, sample, weights, live.stepper.fields
    )


def of_weights(
    job: Job,
    state: Mapping[str, Tensor] | None,
    layer: str,
    sample: int,
    weights_label: str,
) -> LayerInside:
    """Return the activations with the weights `state`, described by `weights_label`; without, with the initial
    weights of the seed.

    Runs on the CPU. Raises JobError or DataError if net and data do not match, and what the net raises.
    """
    data = prepared(job, load(job.data, job.data_root))
    check_input(job, data.info)
    with borrowed(job.training.seed):
        model = initial_module(job.source, job.training.start)
        if state is not None:
            model.load_state_dict(state)
        fields = fields_of(job.source, job.training.inputs, data.info)
        return _inside(model, data, "cpu", layer, sample, weights_label, fields)


def _inside(
    model: nn.Module,
    data: Dataset,
    device: str,
    layer: str,
    sample: int,
    weights_label: str,
    fields: tuple[str, ...],
) -> LayerInside:
    count = data.info.train_count
    sample = min(max(sample, 0), count - 1)
    with borrowed():  # reading a sample may draw, as augmentation does
        inputs, labels = next(
            iter(data.train.batches([torch.tensor([sample], device=device)]))
        )
    net_inputs = arguments(inputs, fields)
    channels, inputs = activations(model, layer, *net_inputs), net_inputs[0]
    shape = tuple(inputs.shape[1:])
    return LayerInside(
        layer,
        sample,
        count,
        label_text(first(labels)[0], tuple(map(str, first_classes(data.info)))),
        inputs[0].detach().float().cpu().numpy()
        if inputs.is_floating_point()
        else None,
        channels,
        filters(model, layer, shape),
        weights_label,
    )


def label_text(label: Tensor, classes: tuple[str, ...]) -> str:
    """Return the class of a label, or the first of its numbers."""
    if label.ndim == 0 and not label.is_floating_point() and classes:
        return classes[int(label)]
    return ", ".join(significant(float(value), 3) for value in label.reshape(-1)[:4])
