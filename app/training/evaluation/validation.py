"""Validation: loss and accuracy on held-out samples."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import torch

from app.util.rng import GENERATOR

if TYPE_CHECKING:
    from torch import Tensor

    from app.training.evaluation.metric_values import Gathered
    from app.training.stepper import Stepper


# Mean loss, accuracy, and the mean losses of several outputs by name.
Evaluated = tuple[float | None, float | None, tuple[tuple[str, float], ...]]


def sample_numbers(count: int, size: int, device: str) -> tuple[Tensor, ...]:
    """Return the indices of `count` samples in order, in batches of `size`, on a device."""
    return torch.arange(count, device=device).split(size) if count else ()


def evaluate(
    stepper: Stepper,
    batches: Iterable[tuple[Tensor, Tensor]],
    stopping: Callable[[], bool] = lambda: False,
    gathered: Gathered | None = None,
) -> Evaluated:
    """Return mean loss and accuracy in eval mode; None for both without samples, or once `stopping` returns True.

    `gathered` takes in every batch for the other metrics. The mean losses of several outputs are `loss_<output>`.
    """
    model = stepper.validated
    model.eval()
    losses: list[Tensor] = []
    parts: dict[str, list[Tensor]] = {}
    sizes: list[int] = []
    correct: list[Tensor] = []
    ignored: list[Tensor] = []
    waiting = iter(batches)
    while True:
        with GENERATOR:  # a custom dataset may draw random numbers
            batch = next(waiting, None)
        if batch is None:
            break
        inputs, labels = batch
        if stopping():
            return None, None, ()
        with (
            GENERATOR,
            torch.no_grad(),
        ):  # TorchScript that has trained cannot run in inference mode
            output = stepper.output(model, inputs)
            losses.append(stepper.measured(output, labels))
            for name, loss in stepper.parts.items():
                parts.setdefault(name, []).append(loss)
            sizes.append(len(inputs))
            if (right := stepper.task.correct(output, labels)) is not None:
                correct.append(right)
            if (left_out := stepper.task.ignored(output, labels)) is not None:
                ignored.append(left_out)
            if gathered is not None:
                gathered.add(*stepper.task.chief(output, labels))
    if not sizes:
        return None, None, ()
    count = sum(sizes)
    accuracy = stepper.task.share(int(sum(correct)), count, int(sum(ignored)))
    output_losses = tuple(
        (f"loss_{name}", _sum(values, sizes) / count) for name, values in parts.items()
    )
    return _sum(losses, sizes) / count, accuracy, output_losses


def _sum(losses: list[Tensor], sizes: list[int]) -> float:
    """Sum batch losses weighted by batch size."""
    total = 0.0
    for value, size in zip(torch.stack(losses).tolist(), sizes, strict=True):
        total += value * size
    return total
