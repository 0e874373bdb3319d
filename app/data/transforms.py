"""Transforms of pictures at work. The exported `train.py` carries `augmented` word for word.

torch is imported at the top because the text stands alone in that script: import this module lazily.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from app.data.config import Transform
from app.data.readers import as_floats
from app.data.transform_list import is_random, params_of


def augmented(samples: Tensor, transform: Callable[[Tensor], Tensor]) -> Tensor:
    """Each of the samples (N, ...) by itself, so that each draws for itself from torch's generator."""
    return torch.stack([transform(sample) for sample in samples])


def composed(transforms: Sequence[Transform]) -> Any:
    """The transforms one after the other, as torchvision composes them. Raises DataError."""
    from app.torchvision_import import import_torchvision

    v2 = import_torchvision("transforms.v2")
    return v2.Compose([getattr(v2, transform.name)(**params_of(transform)) for transform in transforms])


def readying(transforms: Sequence[Transform], as_bytes: bool) -> Callable[[Tensor], Tensor] | None:
    """What makes of stored samples those that the net gets; None where they are that already."""
    if not transforms:
        return as_floats if as_bytes else None
    whole, each = composed(transforms), is_random(transforms)

    def ready(samples: Tensor) -> Tensor:
        samples = as_floats(samples) if as_bytes else samples
        made: Tensor = augmented(samples, whole) if each else whole(samples)
        return made

    return ready
