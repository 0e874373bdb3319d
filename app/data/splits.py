"""Split samples into training, validation and test. The exported `train.py` contains these functions verbatim.

torch is imported at the top since the code runs alone in that script: import this module lazily.
"""

from typing import Any

import torch
from torch import Tensor


def stratified_split(
    labels: Tensor, validation: float, test: float, seed: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Return indices (training, validation, test), stratified by class and seeded.

    `labels` holds class ids, shape (N,). The answers are in ascending order. If every class has too few samples for
    one to be held out, all classes are split as one.
    """
    generator = torch.Generator().manual_seed(seed)
    parts: tuple[list[Tensor], list[Tensor], list[Tensor]] = ([], [], [])
    counts = labels.unique(return_counts=True)[1].tolist()
    if any(
        share and not any(round(count * share) for count in counts)
        for share in (validation, test)
    ):
        counts = [len(labels)]
    for members in labels.argsort(stable=True).split(counts):
        members = members[torch.randperm(len(members), generator=generator)]
        first = round(len(members) * validation)
        second = first + round(len(members) * test)
        for indices, chosen in zip(
            parts,
            (members[second:], members[:first], members[first:second]),
            strict=True,
        ):
            indices.append(chosen)
    training, validating, testing = (
        torch.cat(chunks).sort().values for chunks in parts
    )
    return training, validating, testing


def column_scale(values: Tensor, training: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean and standard deviation of columns (N, C) over the rows `training`, (C,) float64; the deviation of a
    constant column is 1."""
    rows = values[training].double()
    spread = rows.std(0, correction=0)
    return rows.mean(0), torch.where(spread > 0, spread, 1.0)


def standardised(inputs: Any, training: Tensor) -> Any:
    """Standardise columns (N, C) by mean and standard deviation of the rows `training`; constant columns become 0. Of
    several inputs those of floating point numbers are."""
    if hasattr(inputs, "parts"):
        parts = inputs.parts.items()
        return type(inputs)(
            {
                n: standardised(p, training) if p.is_floating_point() else p
                for n, p in parts
            }
        )
    mean, spread = column_scale(inputs, training)
    return ((inputs - mean) / spread).float()


def balanced_weights(counts: Tensor) -> Tensor:
    """Return class weights, (C,) float32, from the samples per class (C,): N / (C · count), as scikit-learn's
    `class_weight="balanced"`."""
    return counts.sum() / (len(counts) * counts.clamp(min=1))


def split_in_order(
    count: int, validation: float, test: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Return indices (training, validation, test) of ordered samples: the last ones are held out."""
    validating = round(count * validation)
    first = max(count - validating - round(count * test), 0)
    numbers = torch.arange(count)
    return (
        numbers[:first],
        numbers[first : first + validating],
        numbers[first + validating :],
    )
