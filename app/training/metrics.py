"""What the loss is compared with, and whether the net's output can be compared at all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from app.training.choices import CLASS_IDS, LOSSES

if TYPE_CHECKING:
    from torch import Tensor


class OutputError(ValueError):
    """The net gives something that the loss cannot be measured on; the text says both shapes."""


def make_targets(loss: str, labels: Tensor, classes: int) -> Tensor:
    """The targets of `loss` for class ids (N,): the ids themselves, or rows of 0 and 1, (N, classes) float32."""
    from torch.nn import functional as F

    return labels if LOSSES[loss] == CLASS_IDS else F.one_hot(labels, classes).float()


def check_output(output: Any, loss: str, samples: int, classes: int) -> None:
    """Refuse what torch would broadcast or misread without a word. Raises OutputError."""
    import torch

    if not isinstance(output, torch.Tensor):
        raise OutputError(f"The net gives a {type(output).__name__}, and the loss wants one tensor: keep one output.")
    wanted = f"({samples}, {classes})"
    shape = tuple(output.shape)
    # Class ids only need a column each; more columns than classes are allowed, as torch allows them.
    enough = LOSSES[loss] == CLASS_IDS and len(shape) == 2 and shape[1] >= classes
    if not shape or shape[0] != samples or not (enough or shape == (samples, classes)):
        raise OutputError(
            f"The net gives {shape} for a batch of {samples}, and {loss} wants {wanted}: one number for each of the "
            f"{classes} classes. Set the last layer's out_features to {classes}."
        )
    if not output.is_floating_point():
        raise OutputError(f"The net gives {str(output.dtype)}, and {loss} wants floating point numbers.")
    if not output.requires_grad:
        raise OutputError(
            "The net's output does not depend on any trainable parameter, so there is nothing to train. "
            "Put a layer with weights between input and output."
        )
