"""Map the plane: of a running run between two steps, and of stored weights."""

from __future__ import annotations

from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn

from app.data.dataset import Dataset
from app.data.loaders import load
from app.data.spec import VALUES
from app.data.targets import first
from app.engine.server import Context, handles
from app.engine.tasks.weights import load_chosen
from app.features.playground.values import (
    LOGIT,
    PROBABILITY,
    SCORES,
    VALUE,
    MapPlane,
    MapPlaneOfWeights,
    Plane,
)
from app.training.choices import OF_LOGITS
from app.training.job import Job, check_input
from app.training.monitoring.answers import answer
from app.training.monitoring.live_model import LiveRun
from app.training.objectives import prepared
from app.training.setup.initial_weights import initial_module
from app.util import module_tree
from app.util.rng import borrowed

MARGIN = 0.12  # of the range of the points, on each side
MOST_POINTS = 1000
MOST_UNITS = 64
NO_PLANE = "The playground is for nets with two numbers as input, such as Two moons or a table of two columns."


@answer.register
def of_run(request: MapPlane, live: LiveRun) -> Plane:
    """Map the plane by the live model. Raises ValueError without two inputs."""
    loss = type(live.loss).__name__
    return mapped(
        live.model, live.data, live.device, loss, request.size, request.layer, live.step
    )


@handles(MapPlaneOfWeights)
def of_weights(request: MapPlaneOfWeights, _context: Context) -> Plane:
    """Map the plane by stored weights, on the CPU. Raises as `load_chosen`, and ValueError without two inputs."""
    job: Job = request.job
    chosen = load_chosen(
        request.weights, job.source, job.training.seed, job.training.start
    )
    data = prepared(job, load(job.data, job.data_root))
    check_input(job, data.info)
    with borrowed(job.training.seed):
        model = initial_module(job.source, job.training.start)
        if chosen.state_dict is not None:
            model.load_state_dict(chosen.state_dict)
        return mapped(
            model, data, "cpu", job.training.loss.name, request.size, request.layer, 0
        )


def mapped(
    model: nn.Module,
    data: Dataset,
    device: str,
    loss: str,
    size: int,
    layer: str,
    step: int,
) -> Plane:
    """Return the plane of a model in eval mode, on a grid of `size` by `size`. Raises ValueError without two inputs."""
    if data.info.input_shape != (2,) or data.info.inputs:
        raise ValueError(NO_PLANE)
    began = perf_counter()
    inputs, labels = data.batch(MOST_POINTS)
    points = inputs.detach().float().cpu()
    low, high = points.amin(0), points.amax(0)
    margin = (high - low).clamp(min=1e-6) * MARGIN
    low, high = low - margin, high + margin
    outputs, units = _outputs(model, _grid(low, high, size).to(device), layer)
    shown = [data.unscaled("", corner) for corner in (low, high)]
    low_corner, high_corner = _pair(low), _pair(high)
    return Plane(
        _kind(data, outputs, loss),
        outputs.reshape(size, size, -1).numpy(),
        None if units is None else units.reshape(size, size, -1).numpy(),
        points.numpy(),
        _plain(first(labels)),
        low_corner,
        high_corner,
        _pair(shown[0]),
        _pair(shown[1]),
        tuple(map(str, data.info.classes)),
        step,
        perf_counter() - began,
    )


def _grid(low: Tensor, high: Tensor, size: int) -> Tensor:
    """Return the points (size * size, 2) of a grid, row by row."""
    across, up = (
        torch.linspace(float(a), float(b), size) for a, b in zip(low, high, strict=True)
    )
    y, x = torch.meshgrid(up, across, indexing="ij")
    return torch.stack([x.reshape(-1), y.reshape(-1)], dim=1)


def _outputs(
    model: nn.Module, grid: Tensor, layer: str
) -> tuple[Tensor, Tensor | None]:
    """Return the outputs (n, C) on a grid, and those of the units (n, U) of a layer."""
    layer_outputs: list[Tensor] = []
    module = dict(module_tree.named_modules(model)).get(layer) if layer else None
    hook = (
        module.register_forward_hook(
            lambda _module, _inputs, out: layer_outputs.append(out)
        )
        if module is not None
        else None
    )
    model.eval()
    try:
        with torch.no_grad():
            output: Any = model(grid)
    finally:
        if hook is not None:
            hook.remove()
    units = (
        layer_outputs[0]
        if layer_outputs and isinstance(layer_outputs[0], Tensor)
        else None
    )
    if units is not None:
        units = units.flatten(1)[:, :MOST_UNITS].float().cpu()
    if not isinstance(output, Tensor):
        output = first(output)
    return output.detach().reshape(len(grid), -1).float().cpu(), units


def _kind(data: Dataset, outputs: Tensor, loss: str) -> str:
    if data.info.task == VALUES:
        return VALUE
    if outputs.shape[1] > 1:
        return SCORES
    return LOGIT if loss == OF_LOGITS else PROBABILITY


def _plain(labels: Tensor) -> Any:
    labels = labels.detach().float().cpu()
    if labels.ndim > 1 and labels.shape[1] > 1:  # one-hot
        labels = labels.argmax(1).float()
    return labels.reshape(len(labels), -1)[:, 0].numpy()


def _pair(corner: Tensor) -> tuple[float, float]:
    return float(corner[0]), float(corner[1])
