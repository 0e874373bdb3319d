"""The task of a loss: targets, accuracy, and validation of the network's output."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from msgspec import Struct

from app.training.choices import (
    CLASS_IDS,
    LOSSES,
    OF_LOGITS,
    OF_ONE_OUTPUT,
    takes_one_output,
)
from app.training.config import Choice
from app.training.script_recipes import class_scores, float_targets, in_units
from app.util.errors import CodedError

if TYPE_CHECKING:
    from torch import Tensor, nn

CLASSES, VALUES, TOKENS = "classes", "values", "tokens"
GRADIENTS_OFF = "Gradients are off for all of torch, so nothing can be trained."


class OutputError(CodedError, ValueError):
    """Raised if the loss cannot be computed on the network's output; the message names both shapes."""


class Task(Struct, frozen=True):
    """How a loss interprets the net's output and the labels of the data.

    `kind` "classes": labels are class ids (N,), the output is (N, classes), or for some losses of two classes one value
    a sample. "values": labels are numbers (N, ...) of
    the output's shape. "tokens": labels are class ids (N, T) and the output is (N, T, classes).
    """

    loss: str
    classes: int
    kind: str = CLASSES
    labels: int = 1  # of a sample
    units: tuple[
        tuple[float, ...], ...
    ] = ()  # mean and standard deviation of a target that is standardised
    ignore: int | None = (
        None  # the label that the loss leaves out, and accuracy and metrics too
    )

    @property
    def one(self) -> Task:
        """The task of one output: of several the first."""
        return self

    @property
    def direct(self) -> bool:
        """Return whether the loss takes outputs and labels as they are: `loss_inputs` changes nothing."""
        return self.kind == VALUES or (
            self.kind == CLASSES and LOSSES[self.loss] == CLASS_IDS
        )

    def answer(self, output: Any) -> Any:
        """Return the output on which accuracy and metrics are measured."""
        return output

    def chief(self, output: Any, labels: Any) -> tuple[Any, Tensor]:
        """Return output and labels on which accuracy and metrics are measured."""
        return output, labels

    def loss_module(self) -> nn.Module | None:
        """Return the loss that replaces the run's own, if any."""
        return None

    def in_units(self, values: Tensor) -> Tensor:
        """Return values to predict, or predictions, of the first target in the units of the data."""
        if not self.units:
            return values.float()
        mean, spread = (
            torch.tensor(statistic, dtype=torch.float64) for statistic in self.units
        )
        return in_units(values, mean, spread)

    def loss_inputs(self, output: Any, labels: Any) -> tuple[Any, Any]:
        """Return output and target as the loss takes them: class ids with the classes of the output second, or numbers
        in the output's shape."""
        if self.kind == VALUES:
            return output, labels
        if LOSSES[self.loss] == CLASS_IDS:
            return (output.movedim(-1, 1) if self.kind == TOKENS else output), labels
        return output, float_targets(labels, self.classes, output)

    def scores(self, output: Tensor) -> Tensor:
        """Return the scores of classes, (N, classes), also of an output with one value a sample; others as they are."""
        if self.kind != CLASSES or not takes_one_output(self.loss, self.classes):
            return output
        return class_scores(output, OF_ONE_OUTPUT[self.loss])

    def correct(self, output: Tensor, labels: Tensor) -> Tensor | None:
        """Return the number of correct labels, on the device; None without classes."""
        if self.kind == VALUES:
            return None
        return self.right(
            self.scores(output).argmax(-1 if self.kind == TOKENS else 1), labels
        ).sum()

    def right(self, called: Tensor, labels: Tensor) -> Tensor:
        """Return which labels are predicted, bool (...); those that the loss ignores are not."""
        return (
            called == labels
            if self.ignore is None
            else (called == labels) & (labels != self.ignore)
        )

    def judged(self, labels: Tensor) -> Tensor:
        """Return which labels the loss does not ignore, bool (...)."""
        return (
            torch.ones_like(labels, dtype=torch.bool)
            if self.ignore is None
            else labels != self.ignore
        )

    def ignored(self, output: Any, labels: Any) -> Tensor | None:
        """Return the number of labels that the loss ignores, on the device; None for a loss that ignores none."""
        return (
            None
            if self.ignore is None
            else (self.chief(output, labels)[1] == self.ignore).sum()
        )

    def share(self, correct: int, samples: int, ignored: int) -> float | None:
        """Return the accuracy over the labels that are not ignored; None without classes."""
        return (
            None
            if self.kind == VALUES
            else correct / max(samples * self.labels - ignored, 1)
        )

    def check(self, output: Any, labels: Tensor) -> None:
        """Reject shapes that torch would broadcast or misinterpret silently. Raises OutputError."""
        if self.kind == CLASSES:
            check_output(output, self.loss, len(labels), self.classes)
            return
        _check_tensor(output)
        have, expected_shape = (
            tuple(output.shape),
            tuple(labels.shape) + ((self.classes,) if self.kind == TOKENS else ()),
        )
        more = (
            self.kind == TOKENS
            and LOSSES[self.loss] == CLASS_IDS
            and have[:-1] == expected_shape[:-1]
        )
        if have != expected_shape and not (more and have[-1] > expected_shape[-1]):
            raise OutputError(_misfit(have, expected_shape, len(labels), self.loss))
        _check_learns(output, self.loss)


def ignored_label(loss: Choice, kind: str) -> int | None:
    """Return the label that a loss leaves out, of positions -100 by default; None if it takes all.

    >>> ignored_label(Choice("CrossEntropyLoss"), TOKENS), ignored_label(Choice("CrossEntropyLoss"), CLASSES)
    (-100, None)
    """
    if kind == VALUES or loss.name not in ("CrossEntropyLoss", "NLLLoss"):
        return None
    label = int(loss.params.get("ignore_index", -100))
    return label if kind == TOKENS or label >= 0 else None


class OwnTask(Task, frozen=True):
    """The task of an output that is the loss itself, which the model computed."""

    def check(self, output: Any, labels: Tensor) -> None:
        _check_tensor(output)
        if output.numel() != 1:
            raise OutputError(
                f"The network returns {tuple(output.shape)}, and its own loss must be one number."
            )
        _check_learns(output, self.loss)


def check_output(output: Any, loss: str, samples: int, classes: int) -> None:
    """Reject outputs that torch would broadcast or misinterpret silently. Raises OutputError."""
    _check_tensor(output)
    expected = f"({samples}, {classes})"
    shape = tuple(output.shape)
    # Class ids only need a column each; more columns than classes are allowed, as torch allows them.
    enough = LOSSES[loss] == CLASS_IDS and len(shape) == 2 and shape[1] >= classes
    single = takes_one_output(loss, classes) and output.numel() == samples
    if (
        not shape
        or shape[0] != samples
        or not (enough or single or shape == (samples, classes))
    ):
        cure = f" Set the last layer's out_features to {classes}." * (
            len(shape) == 2 and shape[0] == samples
        )
        if classes == 2 and output.numel() == samples:
            cure += f" Or choose {OF_LOGITS}, which takes one value of two classes."
        raise OutputError(
            f"The network returns {shape} for a batch of {samples}, and {loss} expects {expected}: one value for each "
            f"of the {classes} classes.{cure}"
        )
    _check_learns(output, loss)


def check_weights(loss: nn.Module, output: Any) -> None:
    """Reject a loss with a weight for each class if the output has one value a sample: torch would broadcast it.

    Raises OutputError.
    """
    if output.ndim > 1 and output.shape[1:].numel() != 1:
        return
    for name in ("weight", "pos_weight"):
        weights = getattr(loss, name, None)
        if weights is not None and weights.numel() > 1:
            raise OutputError(
                f"{name} has {weights.numel()} numbers, and the network returns {tuple(output.shape)}, one value a "
                f"sample. Give {name} one number (Training, Loss)."
            )


def _misfit(
    have: tuple[int, ...], expected: tuple[int, ...], samples: int, loss: str
) -> str:
    """Say how the shape of an output differs from the one that a loss expects, with a cure where it is the last axis
    alone."""
    text = f"The network returns {have} for a batch of {samples}, and {loss} expects {expected}"
    if len(have) == len(expected) and have[:-1] == expected[:-1]:
        return f"{text}: set the last layer's out_features to {expected[-1]}."
    if len(have) != len(expected):
        return (
            f"{text}: it has {len(have)} axes in place of {len(expected)}. Reshape the output, or "
            "choose another loss."
        )
    axes = ", ".join(
        str(axis)
        for axis, (actual, other) in enumerate(zip(have, expected, strict=True))
        if actual != other
    )
    return f"{text}: axis {axes} differs. Choose another output, target or loss (Training, Loss)."


def _check_tensor(output: Any) -> None:
    if not isinstance(output, torch.Tensor):
        raise OutputError(
            f"The network returns a {type(output).__name__}, and the loss expects one tensor: keep one output."
        )


def _check_learns(output: Tensor, loss: str) -> None:
    if not output.is_floating_point():
        raise OutputError(
            f"The network returns {str(output.dtype)}, and {loss} expects floating point values."
        )
    if not torch.is_grad_enabled():
        raise OutputError(GRADIENTS_OFF)
    if not output.requires_grad:
        raise OutputError(
            "The network's output does not depend on any trainable parameter, so there is nothing to train. Put a "
            "layer with weights between input and output."
        )
