"""Loss and accuracy over samples that a net does not learn from."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from app.rng import GENERATOR

if TYPE_CHECKING:
    from torch import Tensor

    from app.training.scores import Gathered
    from app.training.stepper import Stepper


def sample_numbers(count: int, size: int, device: str) -> tuple[Tensor, ...]:
    """The numbers of `count` samples in order, in batches of `size`, on a device."""
    import torch

    return torch.arange(count, device=device).split(size) if count else ()


def evaluate(
    stepper: Stepper,
    batches: Iterable[tuple[Tensor, Tensor]],
    stopping: Callable[[], bool] = lambda: False,
    gathered: Gathered | None = None,
) -> tuple[float | None, float | None]:
    """Mean loss and accuracy in eval mode; None for both if there are no samples, or once `stopping` says so.

    `gathered` takes in every batch for the other metrics.
    """
    import torch

    model = stepper.validated
    model.eval()
    losses: list[Tensor] = []
    sizes: list[int] = []
    correct: Tensor | None = None
    for inputs, labels in batches:
        if stopping():
            return None, None
        with GENERATOR, torch.inference_mode():
            output = stepper.output(model, inputs)
            losses.append(stepper.measured(output, labels))
            sizes.append(len(inputs))
            right = stepper.task.correct(output, labels)
            if right is not None:
                correct = right if correct is None else correct + right
            if gathered is not None:
                gathered.add(output, labels)
    if not sizes:
        return None, None
    total = 0.0
    for value, size in zip(torch.stack(losses).tolist(), sizes, strict=True):
        total += value * size
    count = sum(sizes)
    return total / count, stepper.task.share(int(correct) if correct is not None else 0, count)
