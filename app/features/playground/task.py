"""Map the plane, and read filters: of a running run between two steps, and of stored weights."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from time import thread_time
from typing import Any

import torch
from torch import Tensor, nn

from app.data.dataset import Dataset
from app.data.loaders import load
from app.data.spec import VALUES
from app.data.targets import first
from app.engine.requests.capture import WeightsChoice
from app.engine.server import Context, handles
from app.engine.tasks.weights import load_chosen
from app.features.playground.values import (
    COARSE,
    INSIDE,
    LOGIT,
    PROBABILITY,
    SCORES,
    VALUE,
    Filters,
    MapPlane,
    MapPlaneOfWeights,
    Plane,
    PlaneAsked,
    ShowFilters,
    ShowFiltersOfWeights,
)
from app.training.choices import OF_LOGITS
from app.training.job import Job, check_input
from app.training.monitoring.answers import answer
from app.training.monitoring.live_model import LiveRun
from app.training.objectives import prepared
from app.training.setup.initial_weights import initial_module
from app.util import module_tree
from app.util.frozen import FrozenMap
from app.util.language import marked, tr
from app.util.rng import borrowed

MARGIN = 0.12  # of the range of the points, on each side
MOST_POINTS = 1000
MOST_UNITS = 64
MOST_INSIDE = 8  # units of a module whose maps are drawn in its node
MOST_FILTERS = 64
NO_PLANE = marked(
    "The playground is for nets with two numbers as input, such as Two moons or a table of two columns."
)
NO_FILTERS = marked(
    "The playground shows the filters of a net whose first convolution sees the pictures."
)


@answer.register
def of_run(request: MapPlane, live: LiveRun) -> Plane:
    """Map the plane by the live model. Raises ValueError without two inputs."""
    loss = type(live.loss).__name__
    return mapped(live.model, live.data, live.device, loss, request.asked, live.step)


@answer.register
def filters_of_run(request: ShowFilters, live: LiveRun) -> Filters:
    """Return the filters of the live model. Raises ValueError without any."""
    return filters(live.model, live.data, live.device, request.sample, live.step)


@handles(MapPlaneOfWeights)
def of_weights(request: MapPlaneOfWeights, _context: Context) -> Plane:
    """Map the plane by stored weights, on the CPU. Raises as `load_chosen`, and ValueError without two inputs."""
    loss = request.job.training.loss.name
    with _stored(request.job, request.weights) as (model, data):
        return mapped(model, data, "cpu", loss, request.asked, 0)


@handles(ShowFiltersOfWeights)
def filters_of_weights(request: ShowFiltersOfWeights, _context: Context) -> Filters:
    """Return the filters of stored weights. Raises as `load_chosen`, and ValueError without any."""
    with _stored(request.job, request.weights) as (model, data):
        return filters(model, data, "cpu", request.sample, 0)


@contextmanager
def _stored(job: Job, weights: WeightsChoice) -> Iterator[tuple[nn.Module, Dataset]]:
    """Give a model with stored weights, and its data."""
    chosen = load_chosen(weights, job.source, job.training.seed, job.training.start)
    data = prepared(job, load(job.data, job.data_root))
    check_input(job, data.info)
    with borrowed(job.training.seed):
        model = initial_module(job.source, job.training.start)
        if chosen.state_dict is not None:
            model.load_state_dict(chosen.state_dict)
        yield model, data


def mapped(
    model: nn.Module,
    data: Dataset,
    device: str,
    loss: str,
    asked: PlaneAsked,
    step: int,
) -> Plane:
    """Return the plane of a model in eval mode. Raises ValueError without two inputs."""
    if data.info.input_shape != (2,) or data.info.inputs:
        raise ValueError(tr(NO_PLANE))
    began = thread_time()
    inputs, labels = data.batch(MOST_POINTS)
    points = inputs.detach().float().cpu()
    low, high = points.amin(0), points.amax(0)
    margin = (high - low).clamp(min=1e-6) * MARGIN
    low = (low - margin).clamp(max=-asked.reach) if asked.reach else low - margin
    high = (high + margin).clamp(min=asked.reach) if asked.reach else high + margin
    size = asked.size
    named = module_tree.named_modules(model)
    modules = {path: module for path, module in named if path}  # without the model
    wanted = modules.keys() & (modules if asked.inside else {asked.layer})
    grid = _grid(low, high, size).to(device)
    outputs, layers = _outputs(model, grid, {path: modules[path] for path in wanted})
    maps = {path: out.reshape(size, size, -1) for path, out in layers.items()}
    units = maps.get(asked.layer)
    every = max(1, size // INSIDE)
    shown = [data.unscaled("", corner) for corner in (low, high)]
    inside = {
        path: _plain(out[::every, ::every, :MOST_INSIDE])
        for path, out in maps.items()
        if asked.inside
    }
    return Plane(
        _kind(data, outputs, loss),
        outputs.reshape(size, size, -1).numpy(),
        None if units is None else _plain(units[::COARSE, ::COARSE, :MOST_UNITS]),
        points.numpy(),
        _classes(first(labels)),
        _pair(low),
        _pair(high),
        _pair(shown[0]),
        _pair(shown[1]),
        tuple(map(str, data.info.classes)),
        step,
        thread_time() - began,
        thread_time(),
        FrozenMap(inside),
    )


def _grid(low: Tensor, high: Tensor, size: int) -> Tensor:
    """Return the points (size * size, 2) of a grid, row by row."""
    across, up = (
        torch.linspace(float(a), float(b), size) for a, b in zip(low, high, strict=True)
    )
    y, x = torch.meshgrid(up, across, indexing="ij")
    return torch.stack([x.reshape(-1), y.reshape(-1)], dim=1)


def _outputs(
    model: nn.Module, grid: Tensor, modules: dict[str, nn.Module]
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the outputs (n, C) on a grid, and those of modules (n, U) by path."""
    outputs: dict[str, Tensor] = {}

    def keep(path: str, out: Any) -> None:
        if isinstance(out, Tensor) and len(out) == len(grid):
            outputs.setdefault(path, out.detach().flatten(1))

    with ExitStack() as stack:
        for path, module in modules.items():
            hook = module.register_forward_hook(
                lambda _module, _inputs, out, path=path: keep(path, out)
            )
            stack.callback(hook.remove)
        model.eval()
        with torch.no_grad():
            output: Any = model(grid)
    if not isinstance(output, Tensor):
        output = first(output)
    return output.detach().reshape(len(grid), -1).float().cpu(), outputs


def filters(
    model: nn.Module, data: Dataset, device: str, sample: int, step: int
) -> Filters:
    """Return the filters of the first convolution over pictures, in eval mode. Raises ValueError without any."""
    began = thread_time()
    path, module = _first_convolution(model, data)
    picture = first(data.batch_of(torch.tensor([sample]))[0]).float()
    model.eval()
    with torch.no_grad():
        answers = module(picture.to(device))[0, :MOST_FILTERS]
    weights = module.weight.detach()[:MOST_FILTERS].permute(0, 2, 3, 1)
    return Filters(
        path,
        _plain(weights),
        _plain(picture[0].permute(1, 2, 0)),
        _plain(answers),
        step,
        thread_time() - began,
        thread_time(),
    )


def _first_convolution(model: nn.Module, data: Dataset) -> tuple[str, nn.Conv2d]:
    shape = data.info.input_shape
    for path, module in module_tree.named_modules(model):
        if isinstance(module, nn.Conv2d):
            if len(shape) == 3 and module.in_channels == shape[0]:
                return path, module
            break
    raise ValueError(tr(NO_FILTERS))


def _kind(data: Dataset, outputs: Tensor, loss: str) -> str:
    if data.info.task == VALUES:
        return VALUE
    if outputs.shape[1] > 1:
        return SCORES
    return LOGIT if loss == OF_LOGITS else PROBABILITY


def _plain(tensor: Tensor) -> Any:
    return tensor.float().cpu().contiguous().numpy()


def _classes(labels: Tensor) -> Any:
    labels = labels.detach().float().cpu()
    if labels.ndim > 1 and labels.shape[1] > 1:  # one-hot
        labels = labels.argmax(1).float()
    return labels.reshape(len(labels), -1)[:, 0].numpy()


def _pair(corner: Tensor) -> tuple[float, float]:
    return float(corner[0]), float(corner[1])
