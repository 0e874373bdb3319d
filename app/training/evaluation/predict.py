"""Predict on dataset samples and on user input, and render samples as images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from msgspec import Struct
from msgspec.structs import replace

from app.data.fields import Fields
from app.data.known_sources import PICTURES
from app.data.own_files.picture_survey import traits_of
from app.data.own_files.pictures import read_picture
from app.data.preview import fields_text
from app.data.sources import spec_of
from app.data.spec import CLASSES, TOKENS, DataError, FieldInfo
from app.data.transforms import readying
from app.training.evaluation.evaluator import Evaluator
from app.training.evaluation.metric_values import probabilities
from app.training.evaluation.result import Evaluation
from app.training.evaluation.trying import (
    Entered,
    Image,
    InputSurvey,
    Picture,
    PictureFile,
    Prediction,
    Sample,
    Shown,
    as_input,
    is_picture,
)
from app.training.inputs import target_fields
from app.training.metrics import PLAIN, SIGMOID, reading
from app.training.task import OwnTask
from app.util import module_tree
from app.util.formatting import in_units, significant
from app.util.rng import borrowed

if TYPE_CHECKING:
    from torch import Tensor

SURVEYED = 512  # training samples that the range of the data is read off
MAPS = 8  # channels of a layer that are shown
LAYERS = 6


def shown(
    evaluator: Evaluator, evaluation: Evaluation, numbers: Sequence[int]
) -> tuple[Shown, ...]:
    """Load the samples of an evaluation again. Raises DataError."""
    if not len(numbers):
        return ()
    inputs, _ = evaluator.read(evaluation.part, numbers)
    rows = [inputs[index] for index in range(len(numbers))]
    return tuple(
        _shown(evaluator, evaluation, int(number), sample)
        for number, sample in zip(numbers, rows, strict=True)
    )


def _shown(
    evaluator: Evaluator, evaluation: Evaluation, number: int, inputs: Any
) -> Shown:
    columns, right = evaluation.columns, None
    loss = f"loss {significant(columns['loss'][number], 3)}"
    if "true" not in columns:  # of a loss that the model computes itself
        true = called = np.empty(0)
    else:
        true, called = columns["true"][number], columns["called"][number]
    if evaluation.kind == CLASSES:
        right = bool(true[0] == called[0])
        title = (
            evaluation.name(int(called[0]))
            if right
            else f"{evaluation.name(int(true[0]))} → {evaluation.name(int(called[0]))}"
        )
        shares = columns["shares"][number]
        unit = reading(evaluator.task.loss) != PLAIN
        first = f"{100 * shares[0]:.0f} %" if unit else in_units(shares[0], 3)
        detail = f"{first}, {loss}"
        rows = [
            f"{evaluation.name(int(c))}: {_share(s, unit)}"
            for c, s in zip(columns["top"][number], shares, strict=True)
        ]
        tip = (
            f"{evaluation.name_of(number)}, class {evaluation.name(int(true[0]))}, {loss}\n"
            + "\n".join(rows)
        )
    elif evaluation.kind == TOKENS:
        title, detail = f"{100 * columns['right'][number]:.0f} % right", loss
        tip = f"{evaluation.name_of(number)}: the token that follows each token, and below it the prediction\n"
        join = "" if all(len(name) == 1 for name in evaluation.classes) else " "
        tip += "\n".join(
            join.join(evaluation.name(int(token)) for token in row)
            for row in (true, called)
        )
    elif not len(true):
        title, detail, tip = loss, "", f"{evaluation.name_of(number)}, {loss}"
    else:
        title = f"{_numbers(true)} → {_numbers(called)}"
        detail, tip = (
            loss,
            f"{evaluation.name_of(number)}: true {true.tolist()}, predicted {called.tolist()}",
        )
    data, fields = evaluator.data, evaluator.data.info.inputs
    inputs = (
        inputs[""] if isinstance(inputs, Fields) and not fields else inputs
    )  # beside targets that go into the net
    pictures = (
        [inputs[field.name] for field in fields if is_picture(field.shape)]
        if fields
        else [inputs]
    )
    pictured = (
        evaluation.kind != TOKENS
        and bool(pictures)
        and is_picture(tuple(pictures[0].shape))
    )
    if fields:
        unscaled = Fields(
            {name: data.unscaled(name, tensor) for name, tensor in inputs.parts.items()}
        )
        text = fields_text(fields, unscaled)
        tip += f"\n{text}"
    else:
        text = (
            "" if pictured else _text(evaluator, data.unscaled("", inputs), evaluation)
        )
    image = (
        np.concatenate([picture(sample) for sample in _of_one_height(pictures)], axis=1)
        if pictured
        else None
    )
    return Shown(number, image, "" if pictured else text, title, detail, right, tip)


def _of_one_height(pictures: Sequence[Tensor]) -> list[Tensor]:
    """Return the pictures of the same height as the first."""
    return [sample for sample in pictures if sample.shape[-2] == pictures[0].shape[-2]]


def _numbers(values: Any) -> str:
    return ", ".join(in_units(value) for value in values[:2])


def _share(value: float, unit: bool) -> str:
    return f"{100 * value:.1f} %" if unit else in_units(value)


def _text(evaluator: Evaluator, inputs: Tensor, evaluation: Evaluation) -> str:
    if evaluation.kind == TOKENS and all(len(name) == 1 for name in evaluation.classes):
        names = evaluator.data.info.classes
        return "".join(
            names[int(token)] for token in inputs.flatten().tolist()
        ).replace("\n", "↵")
    names = spec_of(evaluator.job.data).columns
    values = list(map(in_units, inputs.flatten().tolist()[:12]))
    if len(names) == inputs.numel():
        values = [f"{name} {value}" for name, value in zip(names, values, strict=False)]
    return ", ".join(values)


def picture(sample: Tensor) -> Picture:
    """Return a sample as bytes (H, W, 3), rescaled if it exceeds 0 to 1."""
    values = sample.double()
    values = values if values.ndim == 3 else values.unsqueeze(0)
    low, high = float(values.min()), float(values.max())
    if low < 0 or high > 1:
        values = (values - low) / max(high - low, 1e-12)
    pixels: Picture = (
        values.mul(255)
        .round()
        .byte()
        .permute(1, 2, 0)
        .expand(-1, -1, 3)
        .contiguous()
        .numpy()
    )
    return pixels


class OutputMap(Struct, frozen=True):
    """A target that is a picture, such as a mask, and the net's output, both as pictures; `note` compares them."""

    target: Picture
    output: Picture
    note: str


def output_maps(
    evaluator: Evaluator, subset: str, numbers: Sequence[int]
) -> list[OutputMap]:
    """Return targets and outputs of samples if both are pictures of one size; none otherwise. Raises DataError."""
    if (
        not len(numbers)
        or evaluator.task.kind == CLASSES
        or isinstance(evaluator.task.one, OwnTask)
    ):
        return []
    inputs, labels = evaluator.read(subset, numbers)
    with borrowed(), torch.no_grad():
        device_inputs = inputs.to(evaluator.device)
        output, labels = evaluator.task.chief(
            evaluator.stepper.output(evaluator.stepper.model, device_inputs),
            labels.to(evaluator.device),
        )
    if evaluator.task.kind == TOKENS:
        called = output.argmax(-1)
        if (
            called.ndim != 3
            or called.shape != labels.shape
            or min(called.shape[1:]) < 2
        ):
            return []
        last = max(output.shape[-1] - 1, 1)
        shares = (called == labels).float().flatten(1).mean(1).tolist()
        pairs = zip(labels.cpu(), called.cpu(), shares, strict=True)
        return [
            OutputMap(
                picture(a / last), picture(b / last), f"{100 * share:.0f} % right"
            )
            for a, b, share in pairs
        ]
    if (
        output.ndim != 4
        or output.shape != labels.shape
        or output.shape[1] not in (1, 3)
        or min(output.shape[2:]) < 2
    ):
        return []
    binary = reading(evaluator.task.loss) == SIGMOID
    values = output.float().sigmoid() if binary else output.float()
    pairs_of_values = zip(labels.float().cpu(), values.cpu(), strict=True)
    return [
        OutputMap(picture(a), picture(b), _overlap(a, b) if binary else "")
        for a, b in pairs_of_values
    ]


def _overlap(target: Tensor, output: Tensor) -> str:
    """Return the intersection over union of two masks at 0.5 as text.

    >>> import torch
    >>> _overlap(torch.tensor([0.0, 1, 1]), torch.tensor([0.2, 0.9, 0.4])), _overlap(torch.zeros(2), torch.zeros(2))
    ('IoU 0.50', 'both empty')
    """
    a, b = target > 0.5, output > 0.5
    union = int((a | b).sum())
    return f"IoU {int((a & b).sum()) / union:.2f}" if union else "both empty"


# --- Predictions for user-made inputs


def survey(evaluator: Evaluator, weights: str) -> InputSurvey:
    """Compute the statistics of the first training samples."""
    data, job = evaluator.data, evaluator.job
    inputs, _ = evaluator.read("training", range(min(SURVEYED, len(data.train))))
    losses = job.training.losses
    loss = losses[0].loss if losses else job.training.loss
    unit = data.info.task == CLASSES and reading(loss.name) != PLAIN
    names, columns = (
        tuple(dict.fromkeys(evaluator.stepper.fields)),
        spec_of(job.data).columns,
    )
    if not names:
        return _surveyed(
            inputs,
            FieldInfo("", data.info.input_shape, data.info.dtype),
            evaluator,
            columns,
            weights,
            unit,
        )
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
        tuple(data.info.classes),
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
    )


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
) -> Prediction:
    """Return the network's output for one sample without batch dimension, of several inputs by name; with `layers`,
    channels of its first image-like layers. A picture file needs the `survey` of the data. Raises DataError.
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
    values = (
        probabilities(task.loss, task.scores(output))
        if info.task == CLASSES
        else task.in_units(output)
    )
    only = inputs.parts.get("") if isinstance(inputs, Fields) else inputs
    image = (
        picture(only[0].float().cpu())
        if only is not None and is_picture(info.input_shape)
        else None
    )
    layer_maps = tuple(
        (name, tuple(_map(channel) for channel in value[0][:MAPS].float().cpu()))
        for name, value in maps[:LAYERS]
    )
    return Prediction(
        values.flatten().cpu().numpy(), image, layer_maps, " ".join(remarks)
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
