"""Snapshots of a running model: the caught batch, activations, convolution filters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from app.data.targets import first
from app.training.monitoring.live_model import LiveRun
from app.training.monitoring.looks import BatchPeek, Channels
from app.util import module_tree
from app.util.formatting import figure, shape_text

if TYPE_CHECKING:
    from torch import Tensor, nn

    from app.training.stepper import Stepper

SAMPLES = 64  # of a batch that are shown
CHANNELS = 256  # of a layer


def caught_batch(live: LiveRun) -> BatchPeek | None:
    """Return the batch at which a watch point paused the run; None if none did.

    Uses the current weights, in train mode; dropout masks are resampled.
    """
    if live.caught is None:
        return None
    inputs, labels = (tensor[:SAMPLES] for tensor in live.caught)
    outputs = losses = None
    problem = ""
    with torch.no_grad():
        try:
            output, labels = live.stepper.task.chief(
                live.stepper.output(live.model, inputs), labels
            )
            outputs = live.stepper.task.scores(output).float().cpu().numpy()
            losses = losses_of(live.stepper, output, labels)
        except (
            Exception
        ) as error:  # custom layers may raise anything; the batch is shown nevertheless
            problem = f"{type(error).__name__}: {error}"
    info = live.data.info
    count = len(live.caught[0])
    return BatchPeek(
        count,
        array(first(inputs)),
        array(labels),
        outputs,
        losses,
        tuple(map(str, info.classes)),
        info.task,
        problem,
    )


def losses_of(stepper: Stepper, output: Tensor, labels: Tensor) -> Any:
    """Return the loss of each sample, (n,); None for a loss that cannot be split."""
    if not hasattr(stepper.chief_loss, "reduction"):
        return None
    loss, task = copy(stepper.chief_loss), stepper.task.one
    setattr(loss, "reduction", "none")  # noqa: B010  a Module's attributes have no types
    sample_losses = loss(*task.loss_inputs(output, labels))
    return (
        sample_losses.float().reshape(len(sample_losses), -1).mean(1).cpu().numpy()
        if sample_losses.ndim
        else None
    )


def activations(model: nn.Module, path: str, *sample: Tensor) -> Channels | None:
    """Return the output of the module at `path` for the inputs (1, ...) of one sample, in eval mode; None if it is not
    executed.

    Channels of pictures are pictures; a vector is one of one line for each 64 of its numbers.
    """
    outputs: list[Tensor] = []

    def take(_module: nn.Module, _inputs: Any, output: Any) -> None:
        first = next((tensor for tensor in tensors(output) if tensor.ndim), None)
        if first is not None and not outputs:
            outputs.append(first.detach())

    handle = module_tree.on_call(module_tree.submodule(model, path), take)
    trained = model.training
    try:
        with torch.no_grad():
            model.eval()
            model(*sample)
    finally:
        handle.remove()
        model.train(trained)
    return described(path, outputs[0][0]) if outputs else None


def described(path: str, values: Tensor) -> Channels:
    """Return a layer's output for one sample as images, described by its shape and range."""
    return of_values(values, f"{path}: {_shape(values)}, range {_range(values)}")


def tensors(output: Any) -> Iterator[Tensor]:
    """Yield the tensors of a module's output, such as the fields of a `transformers` output."""
    if isinstance(output, torch.Tensor):
        yield output
        return
    parts: Iterable[Any] = ()
    if isinstance(output, tuple | list):
        parts = output
    elif isinstance(output, Mapping):
        parts = output.values()
    elif is_dataclass(output) and not isinstance(output, type):
        parts = [getattr(output, field.name) for field in fields(output)]
    for child in parts:
        yield from tensors(child)


def of_values(values: Tensor, description: str) -> Channels:
    """Return a layer's output for one sample as images: (C, H, W), (H, W) or (N,)."""
    values = values.float().cpu()
    if values.ndim >= 3:
        pictures = values.reshape(-1, *values.shape[-2:])
    elif values.ndim == 2:
        pictures = values[None]
    else:
        flat = values.reshape(-1)
        width = min(64, max(len(flat), 1))
        padded = flat.new_full((-(-len(flat) // width) * width,), float("nan"))
        padded[: len(flat)] = flat
        pictures = padded.reshape(1, -1, width)
    return Channels(pictures[:CHANNELS].numpy(), len(pictures), description)


def filters(
    model: nn.Module, path: str, input_shape: tuple[int, ...]
) -> Channels | None:
    """Return the weights of a layer as pictures: one per filter and input channel of a convolution, and one per unit of
    a Linear on a flattened picture of `input_shape`. None for a layer without such weights."""
    module = module_tree.submodule(model, path)
    weight = getattr(module, "weight", None)
    if not isinstance(weight, torch.Tensor):
        return None
    weight = weight.detach().float().cpu()
    shape = f"{path}.weight: {_shape(weight)}, range {_range(weight)}"
    if weight.ndim == 4:
        pictures = weight.reshape(-1, *weight.shape[2:])
        return Channels(pictures[:CHANNELS].numpy(), len(pictures), shape)
    if (
        weight.ndim == 2
        and len(input_shape) >= 2
        and weight.shape[1] == int(np.prod(input_shape))
    ):
        pictures = weight.reshape(-1, *input_shape[-2:])
        return Channels(pictures[:CHANNELS].numpy(), len(pictures), shape)
    if weight.ndim == 2:
        return Channels(weight[None].numpy(), 1, shape)
    return None


def _shape(values: Tensor) -> str:
    return shape_text(values.shape, "one number")


def _range(values: Tensor) -> str:
    return (
        f"{figure(float(values.min()))} to {figure(float(values.max()))}"
        if values.numel()
        else "empty"
    )


def array(values: Tensor) -> Any:
    """Return the values as a NumPy array, those of floating point as float32."""
    values = values.detach().cpu()
    return values.float().numpy() if values.is_floating_point() else values.numpy()
