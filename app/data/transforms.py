"""Apply image transforms. The exported `train.py` contains `augmented` verbatim.

torch is imported at the top since the code runs alone in that script: import this module lazily.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from app.data.config import Transform
from app.data.readers import as_floats
from app.data.transform_list import alone, is_random, params_of
from app.util.torchvision_import import import_torchvision


def augmented(samples: Tensor, transform: Any, alone: Sequence[str]) -> Tensor:
    """Apply a `v2.Compose` to images (N, C, H, W), each with its own random numbers from torch's generator.

    Transforms in `alone` are applied one by one. Flips and crops are vectorised.
    """
    for step in transform.transforms:
        kind, count = type(step).__name__, len(samples)
        if kind in alone:
            samples = torch.stack([step(sample) for sample in samples])
        elif kind in ("RandomHorizontalFlip", "RandomVerticalFlip"):
            chosen = (torch.rand(count) < step.p).to(samples.device).view(-1, 1, 1, 1)
            samples = torch.where(
                chosen,
                samples.flip(-1 if kind == "RandomHorizontalFlip" else -2),
                samples,
            )
        elif kind == "RandomCrop":
            samples = torch.nn.functional.pad(samples, step.padding or (0, 0, 0, 0))
            height, width = step.size
            rows = torch.randint(
                samples.shape[2] - height + 1, (count, 1)
            ) + torch.arange(height)
            columns = torch.randint(
                samples.shape[3] - width + 1, (count, 1)
            ) + torch.arange(width)
            sample_index, channels = (
                torch.arange(count).view(-1, 1, 1, 1),
                torch.arange(samples.shape[1]).view(1, -1, 1, 1),
            )
            at = (
                sample_index,
                channels,
                rows.view(count, 1, -1, 1),
                columns.view(count, 1, 1, -1),
            )
            samples = samples[tuple(index.to(samples.device) for index in at)]
        else:
            samples = step(samples)
    return samples


def composed(transforms: Sequence[Transform]) -> Any:
    """Compose the transforms with torchvision. Raises DataError."""
    v2 = import_torchvision("transforms.v2")
    return v2.Compose(
        [
            getattr(v2, transform.name)(**params_of(transform))
            for transform in transforms
        ]
    )


def readying(
    transforms: Sequence[Transform], as_bytes: bool
) -> Callable[[Tensor], Tensor] | None:
    """Return the preprocessing from stored samples to network inputs; None if there is none."""
    if not transforms:
        return as_floats if as_bytes else None
    transform, randomized, names = (
        composed(transforms),
        is_random(transforms),
        alone(transforms),
    )

    def ready(samples: Tensor) -> Tensor:
        samples = as_floats(samples) if as_bytes else samples
        transformed: Tensor = (
            augmented(samples, transform, names) if randomized else transform(samples)
        )
        return transformed

    return ready
