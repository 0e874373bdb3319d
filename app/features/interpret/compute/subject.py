"""A model with the arguments of one forward pass, and how its output is read: scores, loss, predictions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from msgspec import Struct
from msgspec.structs import replace as with_values
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils._pytree import tree_flatten, tree_unflatten

from app.features.interpret.values import InterpretError
from app.util import rng
from app.util.module_tree import temporary_mode
from tapedeck import devices

CLASSES, VALUES, TOKENS = "classes", "values", "tokens"
_CHIEF = ("logits", "output", "out", "last_hidden_state", "prediction", "sample")
LOSS, OWN_PREDICTION, MEAN = (
    "loss",
    "cross entropy against its own prediction",
    "mean of the output",
)


class Subject(Struct, frozen=True, eq=False):
    """`run(*tensors)` is a forward pass of `model` with these in place of `tensors`, the tensors among its arguments.

    `scores(output)` is the tensor that is read as prediction, (N, classes) or (N, tokens, classes) or (N, ...) by
    `kind`, `loss(output)` the loss by sample, (N,), None if the model computes no loss itself. `measure` names
    the loss, `classes` the columns of the scores, and `labels` are texts. `remarks` say what was assumed of its inputs.
    """

    model: nn.Module
    tensors: tuple[Tensor, ...]
    run: Callable[..., Any]
    scores: Callable[[Any], Tensor]
    loss: Callable[[Any], tuple[Tensor, Tensor]] | None = None
    kind: str = CLASSES
    measure: str = LOSS
    classes: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    label_ids: tuple[int, ...] = ()
    remarks: tuple[str, ...] = ()

    @property
    def batch(self) -> int:
        """The number of samples: the first size of the first tensor that has one."""
        return next((len(tensor) for tensor in self.tensors if tensor.ndim), 1)

    @contextmanager
    def quiet(self) -> Any:
        """Be in eval mode, with torch's generators seeded; all is put back."""
        with rng.borrowed(0), temporary_mode(self.model, False):
            yield

    def of_samples(self, at: Sequence[int]) -> Subject:
        """Return the subject with some samples of its batch alone. Raises InterpretError if there is none such."""
        if any(not 0 <= number < self.batch for number in at):
            raise InterpretError(
                f"the input has {self.batch} samples, counted from 0; there is no sample {max(at)}"
            )
        batch, index = self.batch, torch.tensor(list(at))
        tensors = tuple(
            tensor[index] if tensor.ndim and len(tensor) == batch else tensor
            for tensor in self.tensors
        )
        return with_values(self, tensors=tensors)

    def name_of(self, number: int) -> str:
        """Return the name of a class."""
        return self.classes[number] if 0 <= number < len(self.classes) else str(number)


def of_model(
    model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Subject:
    """Return a model from any source with its example inputs. Its loss is the one it computes itself, if any.

    Raises InterpretError for one that takes no tensor.
    """
    leaves, shape = tree_flatten((args, dict(kwargs)))
    positions = [at for at, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]

    if not positions:
        raise InterpretError("the model takes no tensor")

    def run(*tensors: Tensor) -> Any:
        filled = list(leaves)
        for position, tensor in zip(positions, tensors, strict=True):
            filled[position] = tensor
        positional, named = tree_unflatten(filled, shape)
        return model(*positional, **named)

    return Subject(model, tuple(leaves[at] for at in positions), run, chief_of, kind="")


WHOLE = "Its inputs are one sample as a whole: it computes something else of a part of them."


def in_samples(subject: Subject) -> Subject:
    """Return a subject whose first sizes count its samples.

    Where they do not, such as for the nodes and the edges of a graph, all of its inputs are one sample: a part of them
    is called alone, and gives something else than it gives among the others. Raises what the model raises.
    """
    sizes = {len(tensor) for tensor in subject.tensors if tensor.ndim}
    if sizes <= {1}:
        return subject
    with subject.quiet(), torch.no_grad():
        output = subject.run(*subject.tensors)
    if len(sizes - {1}) == 1 and _is_batch(subject, output):
        return subject
    return as_one_sample(subject)


def _is_batch(subject: Subject, output: Any) -> bool:
    """Return whether the first sample of a subject gives alone what it gives among the others."""
    try:
        scores = subject.scores(output)
        first = subject.of_samples([0])
        with first.quiet(), torch.no_grad():
            alone = first.scores(first.run(*first.tensors))
    except Exception:  # a model may raise anything for a part of its inputs
        return False
    if len(scores) != subject.batch or alone.shape[1:] != scores.shape[1:]:
        return False
    return torch.allclose(
        devices.doubled(scores[:1]),
        devices.doubled(alone),
        rtol=1e-3,
        atol=1e-5,
        equal_nan=True,
    )


def as_one_sample(subject: Subject) -> Subject:
    """Return a subject with one sample, which consists of all inputs; each sample is a call of its own."""

    def run(*tensors: Tensor) -> Any:
        count = next(len(tensor) for tensor in tensors)
        outputs = [
            subject.run(*(tensor[index] for tensor in tensors))
            for index in range(count)
        ]
        leaves = [tree_flatten(output)[0] for output in outputs]
        _, shape = tree_flatten(outputs[0])
        return tree_unflatten(
            [_stacked(samples) for samples in zip(*leaves, strict=True)], shape
        )

    batched = tuple(tensor[None] for tensor in subject.tensors)
    return with_values(
        subject, tensors=batched, run=run, remarks=(*subject.remarks, WHOLE)
    )


def _stacked(values: tuple[Any, ...]) -> Any:
    return torch.stack(values) if isinstance(values[0], Tensor) else values[0]


def chief_of(output: Any) -> Tensor:
    """Return the tensor of an output that is read as its prediction: of the usual names, else the first of floats.

    Raises InterpretError if there is none.
    """
    if isinstance(output, Tensor):
        if output.is_floating_point() and output.ndim:
            return output
    else:
        parts = dict(output) if isinstance(output, Mapping) else _fields(output)
        ordered = [parts[name] for name in _CHIEF if name in parts] + [*parts.values()]
        for candidate in ordered:
            if isinstance(candidate, Tensor | list | tuple | Mapping) or is_dataclass(
                candidate
            ):
                try:
                    return chief_of(candidate)
                except InterpretError:
                    continue
    raise InterpretError(
        "the model returns no tensor of floating point numbers that could be read as its prediction"
    )


def own_loss(output: Any) -> Tensor | None:
    """Return the loss that a model has computed itself: a scalar output, or the output's `loss`."""
    if isinstance(output, Tensor):
        return output if output.ndim == 0 and output.is_floating_point() else None
    loss = (
        output.get("loss")
        if isinstance(output, Mapping)
        else getattr(output, "loss", None)
    )
    return loss if isinstance(loss, Tensor) and loss.numel() == 1 else None


def _fields(output: Any) -> dict[Any, Any]:
    if is_dataclass(output):
        return {
            field.name: getattr(output, field.name, None) for field in fields(output)
        }
    if isinstance(output, list | tuple):
        names = getattr(output, "_fields", None)
        return dict(zip(names or range(len(output)), output, strict=True))
    return {}


def losses(subject: Subject, output: Any, before: Any) -> tuple[str, Tensor, Tensor]:
    """Return the name, mean and values (N,) of the measure for an output; `before` is the output without
    any change, against whose prediction a model is measured that has no loss."""
    if subject.loss is not None:
        mean, per_sample = subject.loss(output)
        return subject.measure, mean, per_sample
    if (model_loss := own_loss(output)) is not None:
        return "its own loss", model_loss.reshape(()), model_loss.reshape(1)
    now, reference = subject.scores(output).float(), subject.scores(before)
    axis = class_axis(now, subject.kind)
    if axis is None:
        per_sample = now.reshape(len(now), -1).mean(1)
        return MEAN, per_sample.mean(), per_sample
    target = reference.argmax(axis)
    per_sample = (
        F.cross_entropy(now.movedim(axis, 1), target, reduction="none")
        .reshape(len(now), -1)
        .mean(1)
    )
    return OWN_PREDICTION, per_sample.mean(), per_sample


def class_axis(scores: Tensor, kind: str) -> int | None:
    """Return the axis of the classes: the second, of (N, tokens, classes) the last; None for values."""
    if (
        kind == VALUES
        or scores.ndim < 2
        or scores.shape[-1 if scores.ndim == 3 else 1] < 2
    ):
        return None
    return (
        scores.ndim - 1
        if kind == TOKENS or (scores.ndim == 3 and kind != CLASSES)
        else 1
    )


def predictions(subject: Subject, output: Any) -> tuple[str, ...]:
    """Return the most likely class of each sample, of tokens that of the last; "" without classes."""
    scores = subject.scores(output)
    axis = class_axis(scores, subject.kind)
    if axis is None or scores.ndim > 3:
        return ("",) * len(scores)
    classes = scores.argmax(axis)
    return tuple(
        map(
            subject.name_of, (classes[:, -1] if classes.ndim == 2 else classes).tolist()
        )
    )
