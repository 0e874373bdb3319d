"""Predict on dataset samples and on user input, and render samples as images."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from app.data.sources import spec_of
from app.data.spec import CLASSES, TOKENS
from app.training.evaluation.evaluator import Evaluator
from app.training.evaluation.result import Evaluation
from app.training.metrics import PLAIN, probabilities, reading
from app.util.rng import borrowed

if TYPE_CHECKING:
    from torch import Tensor

Picture = NDArray[np.uint8]
Image = NDArray[np.float32]
SURVEYED = 512  # training samples that the range of the data is read off
MNIST_BOX = 20 / 28  # of the side: what a digit of MNIST fills
SMALL = 12  # pixels; below that a digit fills the whole picture, as in scikit-learn's
MAPS = 8  # channels of a layer that are shown
LAYERS = 6
GREY = np.array([0.299, 0.587, 0.114], np.float32)  # of red, green and blue, as PIL weighs them (ITU-R 601)


@dataclass(frozen=True, eq=False)
class Shown:
    """One sample: `picture` (H, W, 3) bytes, or `text`; what it is and what it is called, in words."""

    number: int
    picture: Picture | None
    text: str
    title: str
    detail: str
    right: bool | None
    tip: str


def shown(evaluator: Evaluator, found: Evaluation, numbers: Sequence[int]) -> tuple[Shown, ...]:
    """Load the samples of an evaluation again. Raises DataError."""
    if not len(numbers):
        return ()
    inputs, _ = evaluator.read(found.part, numbers)
    return tuple(_shown(evaluator, found, int(number), one) for number, one in zip(numbers, inputs, strict=True))


def _shown(evaluator: Evaluator, found: Evaluation, number: int, inputs: Tensor) -> Shown:
    columns, right = found.columns, None
    loss = f"loss {columns['loss'][number]:.3g}"
    true, called = columns["true"][number], columns["called"][number]
    if found.kind == CLASSES:
        right = bool(true[0] == called[0])
        title = found.name(int(called[0])) if right else f"{found.name(int(true[0]))} → {found.name(int(called[0]))}"
        shares = columns["shares"][number]
        unit = reading(evaluator.task.loss) != PLAIN
        first = f"{100 * shares[0]:.0f} %" if unit else f"{shares[0]:.3g}"
        detail = f"{first}, {loss}"
        rows = [f"{found.name(int(c))}: {_share(s, unit)}" for c, s in zip(columns["top"][number], shares, strict=True)]
        tip = f"Sample {number}, class {found.name(int(true[0]))}, {loss}\n" + "\n".join(rows)
    elif found.kind == TOKENS:
        title, detail = f"{columns['right'][number]:.0%} right", loss
        tip = f"Sample {number}: the token that follows each token, and below it the prediction\n"
        join = "" if all(len(name) == 1 for name in found.classes) else " "
        tip += "\n".join(join.join(found.name(int(token)) for token in row) for row in (true, called))
    else:
        title = f"{_numbers(true)} → {_numbers(called)}"
        detail, tip = loss, f"Sample {number}: true {true.tolist()}, predicted {called.tolist()}"
    pictured = is_picture(tuple(inputs.shape)) and found.kind != TOKENS
    text = "" if pictured else _text(evaluator, inputs, found)
    return Shown(number, picture(inputs) if pictured else None, text, title, detail, right, tip)


def _numbers(values: Any) -> str:
    return ", ".join(f"{value:.4g}" for value in values[:2])


def _share(value: float, unit: bool) -> str:
    return f"{100 * value:.1f} %" if unit else f"{value:.4g}"


def _text(evaluator: Evaluator, inputs: Tensor, found: Evaluation) -> str:
    if found.kind == TOKENS and all(len(name) == 1 for name in found.classes):
        names = evaluator.data.info.classes
        return "".join(names[int(token)] for token in inputs.flatten().tolist()).replace("\n", "↵")
    names = spec_of(evaluator.job.data).columns
    values = [f"{value:.3g}" for value in inputs.flatten().tolist()[:12]]
    if len(names) == inputs.numel():
        values = [f"{name} {value}" for name, value in zip(names, values, strict=False)]
    return ", ".join(values)


def is_picture(shape: Sequence[int]) -> bool:
    """Return whether a sample can be displayed: grey or colour, (C, H, W) or (H, W)."""
    return (len(shape) == 3 and shape[0] in (1, 3)) or (len(shape) == 2 and min(shape) > 3)


def picture(sample: Tensor) -> Picture:
    """Return a sample as bytes (H, W, 3), rescaled if it exceeds 0 to 1."""
    values = sample.double()
    values = values if values.ndim == 3 else values.unsqueeze(0)
    low, high = float(values.min()), float(values.max())
    if low < 0 or high > 1:
        values = (values - low) / max(high - low, 1e-12)
    pixels: Picture = values.mul(255).round().byte().permute(1, 2, 0).expand(-1, -1, 3).contiguous().numpy()
    return pixels


# --- Inputs that a person makes


@dataclass(frozen=True, eq=False)
class Survey:
    """Statistics of the training samples: minimum, maximum and mean of every channel or column, names of the
    columns.
    """

    shape: tuple[int, ...]
    classes: tuple[str, ...]
    low: NDArray[np.float32]
    high: NDArray[np.float32]
    mean: NDArray[np.float32]
    columns: tuple[str, ...]
    unit: bool  # the net's answers are probabilities
    weights: str


def survey(evaluator: Evaluator, weights: str) -> Survey:
    """Compute the statistics of the first training samples."""
    data, job = evaluator.data, evaluator.job
    inputs, _ = evaluator.read("training", range(min(SURVEYED, len(data.train))))
    shape = data.info.input_shape
    axes = [0] if len(shape) == 1 else [0, *range(2, inputs.ndim)]
    values = inputs.float()
    spec = spec_of(job.data)
    losses = job.training.losses
    loss = losses[0].loss if losses else job.training.loss
    unit = data.info.task == CLASSES and reading(loss.name) != PLAIN
    return Survey(
        shape, tuple(data.info.classes), values.amin(axes).numpy(), values.amax(axes).numpy(),
        values.mean(axes).numpy(), spec.columns, unit, weights,
    )  # fmt: skip


@dataclass(frozen=True, eq=False)
class Answer:
    """What the net makes of an input: a number a class (or output), the input as a picture, and layers as pictures."""

    values: NDArray[np.float32]
    seen: Picture | None
    layers: tuple[tuple[str, tuple[Picture, ...]], ...] = field(repr=False, default=())


def try_input(evaluator: Evaluator, sample: Image, layers: bool = False) -> Answer:
    """Return the network's output for one sample without batch dimension; with `layers`, channels of its first
    image-like layers.
    """
    import torch

    info = evaluator.data.info
    dtype = getattr(torch, info.dtype)
    inputs = torch.from_numpy(np.ascontiguousarray(sample)).to(dtype).unsqueeze(0).to(evaluator.device)
    maps: list[tuple[str, Any]] = []
    hooks = _hooked(evaluator.stepper.model, maps) if layers else []
    try:
        with borrowed(), torch.inference_mode():
            output = evaluator.task.answer(evaluator.stepper.output(evaluator.stepper.model, inputs))
    finally:
        for hook in hooks:
            hook.remove()
    values = probabilities(evaluator.task.loss, output) if info.task == CLASSES else output.float()
    seen = picture(inputs[0].float().cpu()) if is_picture(info.input_shape) else None
    told = tuple((name, tuple(_map(one) for one in value[0][:MAPS].float().cpu())) for name, value in maps[:LAYERS])
    return Answer(values.flatten().cpu().numpy(), seen, told)


def _hooked(model: Any, maps: list[tuple[str, Any]]) -> list[Any]:
    def keeper(name: str) -> Any:
        def keep(_module: Any, _inputs: Any, output: Any) -> None:
            if getattr(output, "ndim", 0) == 4 and min(output.shape[2:]) > 1 and len(maps) < LAYERS:
                maps.append((name, output.detach()))

        return keep

    leaves = [(name, module) for name, module in model.named_modules() if not list(module.children()) and name]
    return [module.register_forward_hook(keeper(name)) for name, module in leaves]


def _map(values: Tensor) -> Picture:
    low, high = float(values.min()), float(values.max())
    return picture((values - low) / max(high - low, 1e-12))


def as_digit(ink: Image, side: tuple[int, int]) -> Image:
    """Convert an ink drawing, 0 to 1, (H, W), to an image of (height, width) preprocessed like a digit of a dataset.

    As in MNIST the drawing is scaled to 20/28 of the height, shape kept, and its centre of mass put into the middle.
    Pictures below 12 pixels are filled to their edge, as scikit-learn's digits are.
    """
    height, width = side
    found = np.zeros(side, np.float32)
    rows, columns = np.nonzero(ink.max(1) > 0)[0], np.nonzero(ink.max(0) > 0)[0]
    if not len(rows):
        return found
    drawn = ink[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    small = min(side) < SMALL
    box = min(side) if small else max(round(min(side) * MNIST_BOX), 1)
    scale = box / max(drawn.shape)
    size = (max(round(drawn.shape[0] * scale), 1), max(round(drawn.shape[1] * scale), 1))
    fitted = resized(drawn[None], size)[0]
    if fitted.max() > 0:
        fitted = fitted / fitted.max()
    if small:
        top, left = (height - size[0]) // 2, (width - size[1]) // 2
    else:
        total = float(fitted.sum()) or 1.0
        down = float((fitted.sum(1) * (np.arange(size[0]) + 0.5)).sum()) / total
        along = float((fitted.sum(0) * (np.arange(size[1]) + 0.5)).sum()) / total
        top = min(max(math.floor(height / 2 - down + 0.5), 0), height - size[0])
        left = min(max(math.floor(width / 2 - along + 0.5), 0), width - size[1])
    found[top : top + size[0], left : left + size[1]] = fitted
    return found


def resized(values: Image, side: tuple[int, int]) -> Image:
    """Resize images (C, H, W), antialiased."""
    import torch
    from torch.nn import functional as F

    given = torch.from_numpy(np.ascontiguousarray(values, np.float32)).unsqueeze(0)
    small: Image = F.interpolate(given, side, mode="bilinear", antialias=True, align_corners=False)[0].numpy()
    return small


def as_input(values: Image, survey: Survey) -> Image:
    """A picture of 0 to 1, (C, H, W), in the net's size, channels and range of numbers: black is the least of the
    training samples, white the greatest."""
    channels, height, width = (1, *survey.shape)[-3:]
    if values.shape[0] != channels:
        grey = np.tensordot(GREY, values, 1)[None] if len(values) == 3 else values
        values = grey if channels == 1 else np.repeat(grey, channels, 0)
    if values.shape[1:] != (height, width):
        values = resized(values, (height, width))
    low, high = survey.low.reshape(-1, 1, 1), survey.high.reshape(-1, 1, 1)
    if len(survey.shape) == 2:
        low, high = low.min(), high.max()
    fitted: Image = (low + values * (high - low)).astype(np.float32).reshape(survey.shape)
    return fitted
