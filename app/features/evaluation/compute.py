"""Predict for inputs that a person makes, and survey the data that they are held against."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from msgspec import Struct
from msgspec.structs import replace
from torch.nn import functional as F

from app.data.fields import Fields
from app.data.known_sources import PICTURES, TEXT
from app.data.own_files.picture_survey import traits_of
from app.data.own_files.pictures import read_picture
from app.data.sources import spec_of
from app.data.spec import CLASSES, TOKENS, DataError, FieldInfo
from app.data.transforms import readying
from app.features.evaluation.input_pictures import as_input, drawing_style
from app.features.evaluation.values import (
    DrawingStyle,
    Entered,
    Image,
    InputSurvey,
    PictureFile,
    Prediction,
    Sample,
)
from app.training.evaluation.evaluator import VISIBLE, Evaluator
from app.training.evaluation.metric_values import probabilities
from app.training.evaluation.result import Picture, is_picture
from app.training.evaluation.shown_samples import picture
from app.training.inputs import target_fields
from app.training.metrics import PLAIN, reading
from app.util import module_tree
from app.util.rng import borrowed

if TYPE_CHECKING:
    from torch import Tensor

SURVEYED = 512  # training samples that the range of the data is read off
MAPS = 8  # channels of a layer that are shown
LAYERS = 6
COMPARED_SIDE = 32  # pixels at most of the pictures that are compared
USUAL = 0.99  # share of the training samples whose nearest other one is not further


class Likeness(Struct, frozen=True, eq=False):
    """Training samples that are pictures, and the distance to the nearest other one that is usual among them."""

    samples: Tensor
    usual: float

    def remark(self, picture: Tensor) -> str:
        """Say if a picture, without batch dimension, is further from all of them than they are from one another."""
        distance = float(torch.cdist(_compared(picture[None]), self.samples).min())
        if distance <= self.usual:
            return ""
        return (
            f"Unlike the data: {distance / self.usual:.1f} times as far from the nearest of {len(self.samples)} "
            f"training samples as {100 * USUAL:.0f} % of these are from one another."
        )


def likeness(evaluator: Evaluator) -> Likeness | None:
    """Compare the first training samples with one another; None if they are no pictures, or all alike."""
    info = evaluator.data.info
    if info.inputs or evaluator.stepper.fields or not is_picture(info.input_shape):
        return None
    inputs, _ = evaluator.read(
        "training", range(min(SURVEYED, len(evaluator.data.train)))
    )
    samples = _compared(inputs)
    distances = torch.cdist(samples, samples).fill_diagonal_(torch.inf).amin(1)
    usual = float(distances.quantile(USUAL)) if len(samples) > 1 else 0.0
    return Likeness(samples, usual) if usual > 0 else None


def _compared(pictures: Tensor) -> Tensor:
    """Return pictures (N, C, H, W) or (N, H, W) as rows of few numbers."""
    values = pictures.float().cpu()
    values = values if values.ndim == 4 else values[:, None]
    height, width = (min(side, COMPARED_SIDE) for side in values.shape[2:])
    return F.adaptive_avg_pool2d(values, (height, width)).flatten(1)


def survey(evaluator: Evaluator, weights: str) -> InputSurvey:
    """Compute the statistics of the first training samples."""
    data, job = evaluator.data, evaluator.job
    inputs, _ = evaluator.read("training", range(min(SURVEYED, len(data.train))))
    losses = job.training.losses
    loss = losses[0].loss if losses else job.training.loss
    unit = data.info.task in (CLASSES, TOKENS) and reading(loss.name) != PLAIN
    names, columns = (
        tuple(dict.fromkeys(evaluator.stepper.fields)),
        spec_of(job.data).columns,
    )
    if not names:
        only = _surveyed(
            inputs,
            FieldInfo("", data.info.input_shape, data.info.dtype, _letters(evaluator)),
            evaluator,
            columns,
            weights,
            unit,
        )
        return replace(only, categories=spec_of(job.data).categories)
    field_infos = {
        field.name: field
        for field in data.info.inputs
        or (FieldInfo("", data.info.input_shape, data.info.dtype),)
    }
    column_indices: Mapping[str, Sequence[int]] = spec_of(job.data).arguments.get(
        "fields", {}
    )
    parts = [
        _surveyed(
            inputs[name],
            field_infos[name],
            evaluator,
            tuple(columns[index] for index in column_indices.get(name, ()))
            if name
            else columns,
            weights,
            unit,
        )
        for name in names
        if name
        in field_infos  # targets that go into the net are those of the first sample
    ]
    return replace(parts[0], parts=tuple(parts)) if len(parts) > 1 else parts[0]


def _surveyed(
    inputs: Tensor,
    field: FieldInfo,
    evaluator: Evaluator,
    columns: tuple[str, ...],
    weights: str,
    unit: bool,
) -> InputSurvey:
    axes = [0] if len(field.shape) <= 1 else [0, *range(2, inputs.ndim)]
    data = evaluator.data
    scale = data.scales.get(field.name) if len(field.shape) == 1 else None
    values = (
        inputs.float() if scale is None else data.unscaled(field.name, inputs.float())
    )
    return InputSurvey(
        field.shape,
        tuple(VISIBLE.get(name, name) for name in data.info.classes),
        values.amin(axes).numpy(),
        values.amax(axes).numpy(),
        values.mean(axes).numpy(),
        columns,
        unit,
        weights,
        field.name,
        field.dtype,
        field.symbols,
        inputs[0].float().numpy().copy(),
        scale=scale,
        outputs=_outputs(evaluator),
        drawing=_drawing(values) if is_picture(field.shape) else None,
    )


def _drawing(pictures: Tensor) -> DrawingStyle | None:
    """Measure how drawings lie in pictures (N, C, H, W) or (N, H, W)."""
    values = pictures if pictures.ndim == 3 else pictures.mean(1)
    low, high = values.min(), values.max()
    return drawing_style(((values - low) / (high - low).clamp(min=1e-12)).numpy())


def _letters(evaluator: Evaluator) -> tuple[str, ...]:
    """Return the characters of a text by number; they are also its classes."""
    info = evaluator.data.info
    return tuple(info.classes) if spec_of(evaluator.job.data).key == TEXT else ()


def _outputs(evaluator: Evaluator) -> tuple[str, ...]:
    """Return the names of the values to predict, of the first target; empty if it has classes or no name."""
    info, name = evaluator.data.info, spec_of(evaluator.job.data).target_name
    if info.task == CLASSES or not name:
        return ()
    count = max(info.labels_per_sample, 1)
    return (
        (name,) if count == 1 else tuple(f"{name} {number}" for number in range(count))
    )


def read_file(
    evaluator: Evaluator, file: PictureFile, survey: InputSurvey
) -> tuple[Image, str]:
    """Read a picture file as an input of the net, and describe what of it is not as it seems.

    For an image folder it is what evaluation makes of a file there; for other data its black and white are the minimum
    and the maximum of the training samples. Raises DataError.
    """
    spec = spec_of(evaluator.job.data)
    folder = spec.key == PICTURES and not evaluator.data.info.inputs
    arguments = {
        name: spec.arguments[name]
        for name in ("size", "colour", "span", "deep")
        if name in spec.arguments
    }
    try:
        pixels = read_picture(
            file.path,
            **(arguments if folder else {"size": None, "colour": True, "deep": True}),
        )
    except Exception as error:  # decoders raise any error
        raise DataError(f"{file.path.name} cannot be read: {error}") from error
    if file.inverted:
        pixels = (1 if pixels.is_floating_point() else 255) - pixels
    remark = " ".join(traits_of([file.path]).notes())
    if not folder:
        return as_input(pixels.numpy(), survey), remark
    ready = readying(evaluator.job.data.eval_transforms, spec.as_bytes)
    with borrowed():
        values = pixels[None] if ready is None else ready(pixels[None])
    return values[0].numpy(), remark


def try_input(
    evaluator: Evaluator,
    sample: Sample,
    layers: bool = False,
    survey: InputSurvey | None = None,
    like: Likeness | None = None,
) -> Prediction:
    """Return the network's output for one sample without batch dimension, of several inputs by name; with `layers`,
    channels of its first image-like layers. A picture file needs the `survey` of the data; a picture that is not `like`
    them is remarked. Raises DataError.
    """
    info, remarks = evaluator.data.info, list[str]()
    parts = (
        {
            input_survey.name: input_survey
            for input_survey in (survey.parts or (survey,))
        }
        if survey is not None
        else {}
    )

    def batch(entered: Entered, dtype: str, name: str = "") -> Tensor:
        values = entered
        if isinstance(entered, PictureFile):
            values, remark = read_file(evaluator, entered, parts[name])
            remarks.append(remark)
        tensor = torch.from_numpy(np.array(values)).to(getattr(torch, dtype))
        return tensor.unsqueeze(0).to(evaluator.device)

    names = evaluator.stepper.fields
    if names:
        dtypes = {field.name: field.dtype for field in info.inputs}
        entries = (
            sample
            if isinstance(sample, Mapping)
            else {next(n for n in names if n in ("", *dtypes)): sample}
        )
        inputs: Any = Fields(
            {
                name: batch(entry, dtypes.get(name, info.dtype), name)
                for name, entry in entries.items()
            }
        )
        if targets := [name for name in names if name in target_fields(info)]:
            first, _ = evaluator.read("training", [0])
            for name in targets:
                inputs = inputs.with_(name, first[name].to(evaluator.device))
    else:
        assert not isinstance(sample, Mapping)
        inputs = batch(sample, info.dtype)
    maps: list[tuple[str, Any]] = []
    hooks = _hooked(evaluator.stepper.model, maps) if layers else []
    try:
        with borrowed(), torch.no_grad():
            output = evaluator.task.answer(
                evaluator.stepper.output(evaluator.stepper.model, inputs)
            )
    finally:
        for hook in hooks:
            hook.remove()
    task = evaluator.task
    if info.task == CLASSES:
        values = probabilities(task.loss, task.scores(output))
    elif _letters(evaluator):  # what follows the last one
        values = probabilities(task.loss, output[:, -1])
    else:
        values = task.in_units(output)
    only = inputs.parts.get("") if isinstance(inputs, Fields) else inputs
    image = (
        picture(only[0].float().cpu())
        if only is not None and is_picture(info.input_shape)
        else None
    )
    unlike = like.remark(only[0]) if like is not None and only is not None else ""
    layer_maps = tuple(
        (name, tuple(_map(channel) for channel in value[0][:MAPS].float().cpu()))
        for name, value in maps[:LAYERS]
    )
    return Prediction(
        values.flatten().cpu().numpy(),
        image,
        layer_maps,
        " ".join(remarks),
        unlike,
    )


def _hooked(model: Any, maps: list[tuple[str, Any]]) -> list[Any]:
    def keeper(name: str) -> Any:
        def keep(_module: Any, _inputs: Any, output: Any) -> None:
            if (
                getattr(output, "ndim", 0) == 4
                and min(output.shape[2:]) > 1
                and len(maps) < LAYERS
            ):
                maps.append((name, output.detach()))

        return keep

    leaves = [
        (name, module)
        for name, module in module_tree.named_modules(model)
        if not list(module_tree.children(module)) and name
    ]
    return [module_tree.on_call(module, keeper(name)) for name, module in leaves]


def _map(values: Tensor) -> Picture:
    low, high = float(values.min()), float(values.max())
    return picture((values - low) / max(high - low, 1e-12))
