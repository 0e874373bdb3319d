"""Training functions that are copied verbatim into the exported `train.py`.

torch is imported at the top since the code runs alone in that script: import this module lazily.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


class OwnLoss(nn.Module):
    """The loss that a model computes itself, as one of its outputs; the labels are among its inputs."""

    def forward(self, output: Tensor, _labels: Any) -> Tensor:
        return output


def parameter_groups(
    model: nn.Module, group_options: Mapping[str, Mapping[str, Any]], no_decay: bool
) -> dict[tuple[str, bool], dict[str, Any]]:
    """Return the trainable parameters in groups: by the first path of `group_options` that contains them, with its
    options; and
    by whether they are without weight decay: with `no_decay` those of one dimension (biases, scales of norms).
    """
    groups: dict[tuple[str, bool], dict[str, Any]] = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            path = next(
                (path for path in group_options if f"{name}.".startswith(f"{path}.")),
                "",
            )
            plain = no_decay and parameter.ndim <= 1
            options = {
                **group_options.get(path, {}),
                **({"weight_decay": 0.0} if plain else {}),
            }
            groups.setdefault((path, plain), {"params": [], **options})[
                "params"
            ].append(parameter)
    return groups


def recompute(model: nn.Module, paths: Sequence[str]) -> None:
    """Enable gradient checkpointing for these modules: activations are recomputed in backward."""
    for path in paths:
        module = model.get_submodule(path)
        module.forward = partial(checkpoint, module.forward, use_reentrant=False)


def save_on_cpu(model: nn.Module) -> None:
    """Keep what backward needs of a module on the CPU until then."""
    model.forward = partial(_saving_on_cpu, model.forward)


def _saving_on_cpu(forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    with torch.autograd.graph.save_on_cpu():
        return forward(*args, **kwargs)


def scale_schedule(
    optimizer: torch.optim.Optimizer, schedule: Any, at: int, factor: float
) -> None:
    """Scale the rates that a schedule has for the parameter group `at`; it moves on in proportion."""
    group = optimizer.param_groups[at]
    group.update(
        {
            key: group[key] * factor
            for key in ("initial_lr", "max_lr", "min_lr")
            if key in group
        }
    )
    for scheduler in (schedule, *getattr(schedule, "_schedulers", ())):
        for key in ("base_lrs", "max_lrs"):
            if hasattr(scheduler, key):
                rates = list(getattr(scheduler, key))
                rates[at] *= factor
                setattr(scheduler, key, rates)


def options_of(optimizer: torch.optim.Optimizer) -> list[dict[str, Any]]:
    """Return the options of each parameter group of a new optimizer: those of the settings, before any schedule."""
    return [
        {key: value for key, value in group.items() if key != "params"}
        for group in optimizer.param_groups
    ]


def take_options(
    optimizer: torch.optim.Optimizer,
    schedule: Any,
    before: Sequence[Mapping[str, Any]],
    now: Sequence[Mapping[str, Any]],
) -> None:
    """Set the options that are other ones `now` than `before`, when the state of the optimizer was saved.

    All others stay as they were saved, such as a rate that was set by hand. A schedule moves on in proportion.
    """
    for at, (group, old, new) in enumerate(
        zip(optimizer.param_groups, before, now, strict=True)
    ):
        changed = {
            key: value for key, value in new.items() if key in old and old[key] != value
        }
        if schedule is not None and "lr" in changed and old["lr"] > 0:
            factor = changed["lr"] / old["lr"]
            scale_schedule(optimizer, schedule, at, factor)
            changed["lr"] = group["lr"] * factor
        group.update(changed)


def clippable(model: nn.Module) -> list[Tensor]:
    """Return the parameters of a module for clipping their gradients, which torch does for dense ones only.

    In place of one with a sparse gradient stands a tensor whose gradient has its values, in the same memory.
    """
    tensors: list[Tensor] = []
    for parameter in model.parameters():
        tensor: Tensor = parameter
        if parameter.grad is not None and parameter.grad.is_sparse:
            parameter.grad = parameter.grad.coalesce()
            values = parameter.grad.values()
            tensor = torch.empty_like(values)
            tensor.grad = values
        tensors.append(tensor)
    return tensors


def in_units(values: Tensor, mean: Tensor, spread: Tensor) -> Tensor:
    """Return standardised values (N, ...) in the units of the data, float32."""
    shape, values = values.shape[1:], values.float()
    mean, spread = (
        statistic.to(values.device, torch.float32).reshape(shape)
        for statistic in (mean, spread)
    )
    return values * spread + mean


def mixed(inputs: Tensor, alpha: float) -> tuple[Tensor, Tensor, float]:
    """Blend each sample with another (mixup, Zhang et al. 2018): return the samples, the partners, and the weight of
    the first.

    `inputs` is (N, ...), the partners (N,) int64; the weight is drawn from Beta(alpha, alpha), one per batch.
    """
    share = float(torch.distributions.Beta(alpha, alpha).sample())
    others = torch.randperm(len(inputs)).to(inputs.device)
    return share * inputs + (1 - share) * inputs[others], others, share


def mixed_loss(
    loss: Callable[..., Tensor],
    output: Any,
    labels: Tensor,
    others: Tensor,
    share: float,
) -> Tensor:
    """Return the loss of mixed samples against `labels`, the labels of each pair; regression targets are blended.

    Class ids cannot be; there it is the loss against each of the two, mixed.
    """
    if labels.is_floating_point():
        return loss(output, share * labels + (1 - share) * labels[others])
    return share * loss(output, labels) + (1 - share) * loss(output, labels[others])


def float_targets(labels: Tensor, classes: int, output: Tensor) -> Tensor:
    """Return class ids (N,) as float32 targets of an output: one-hot rows (N, classes); of two classes the ids
    themselves, in the shape of the output, if that has one value a sample."""
    if classes == 2 and output.numel() == labels.numel():
        return labels.float().view(output.shape)
    return F.one_hot(labels, classes).float()


def class_scores(output: Tensor, total: int) -> Tensor:
    """Return the scores (N, classes) of an output. One value a sample is the score of the second of two classes: that
    of the first makes up `total` with it, 0 of logits and 1 of probabilities."""
    if output.shape[1:].numel() != 1:
        return output
    second = output.reshape(-1, 1)
    return torch.cat((total - second, second), 1)


def computed(metric: Any) -> float:
    """Return the value of a torchmetrics metric, NaN if it is undefined, such as R² of a single sample."""
    try:
        return float(metric.compute())
    except ValueError:
        return math.nan
