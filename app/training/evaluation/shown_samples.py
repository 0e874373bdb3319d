"""Samples of an evaluation with their predictions, rendered as pictures or text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from msgspec import Struct

from app.data.fields import Fields
from app.data.preview import fields_text, row_text
from app.data.sources import spec_of
from app.data.spec import CLASSES, TOKENS
from app.training.evaluation.evaluator import Evaluator
from app.training.evaluation.result import Evaluation, Picture, Shown, is_picture
from app.training.metrics import PLAIN, SIGMOID, reading
from app.training.task import OwnTask
from app.util.formatting import in_units, significant
from app.util.rng import borrowed

if TYPE_CHECKING:
    from torch import Tensor

MOST_VALUES = 12  # of a row that are shown


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
    spec, values = spec_of(evaluator.job.data), inputs.flatten().tolist()
    named = len(spec.columns) == len(values)
    row = row_text(spec, values, MOST_VALUES)
    return ", ".join(f"{name} {text}" if named else text for name, text in row)


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
