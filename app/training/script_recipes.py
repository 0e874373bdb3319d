"""Pieces of a run that the exported `train.py` carries word for word.

torch is imported at the top because the texts stand alone in that script: import this module lazily.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint


def parameter_groups(model: nn.Module, own: Mapping[str, Mapping[str, Any]], no_decay: bool) -> list[dict[str, Any]]:
    """The trainable parameters in groups: by the first path of `own` that they lie under, with its options.

    With `no_decay`, those of one dimension (biases, scales of norms) are groups without weight decay.
    """
    groups: dict[tuple[str, bool], dict[str, Any]] = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            path = next((path for path in own if f"{name}.".startswith(f"{path}.")), "")
            plain = no_decay and parameter.ndim <= 1
            options = {**own.get(path, {}), **({"weight_decay": 0.0} if plain else {})}
            groups.setdefault((path, plain), {"params": [], **options})["params"].append(parameter)
    return list(groups.values())


def recompute(model: nn.Module, paths: Sequence[str]) -> None:
    """Let the forward of these modules be run anew in backward, so that their activations are not kept."""
    for path in paths:
        module = model.get_submodule(path)
        module.forward = partial(checkpoint, module.forward, use_reentrant=False)


def mixed(inputs: Tensor, alpha: float) -> tuple[Tensor, Tensor, float]:
    """Each sample mixed with another (mixup, Zhang et al. 2018): the samples, who the other was, and the first's share.

    `inputs` is (N, ...), the others (N,) int64; the share is drawn from Beta(alpha, alpha), one for the batch.
    """
    share = float(torch.distributions.Beta(alpha, alpha).sample())
    others = torch.randperm(len(inputs)).to(inputs.device)
    return share * inputs + (1 - share) * inputs[others], others, share


def mixed_loss(loss: Callable[..., Tensor], output: Any, known: Tensor, others: Tensor, share: float) -> Tensor:
    """The loss of mixed samples against `known`, what each is: numbers are mixed as the samples are.

    Class ids cannot be; there it is the loss against each of the two, mixed.
    """
    if known.is_floating_point():
        return loss(output, share * known + (1 - share) * known[others])
    return share * loss(output, known) + (1 - share) * loss(output, known[others])


def computed(metric: Any) -> float:
    """The value of a metric of torchmetrics, nan where it cannot tell, such as R² of a single sample."""
    try:
        return float(metric.compute())
    except ValueError:
        return math.nan
