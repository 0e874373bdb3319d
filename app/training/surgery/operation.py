"""Put an edited net in the place of a run's, between two steps. `train.py` contains these functions verbatim.

torch is imported at the top since the code runs alone in such a script: import this module lazily.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from app.training.checkpoints.checkpoint import generators, restore_generators
from app.training.script_recipes import parameter_groups
from app.training.surgery.transfer import transfer


def surgery_seed(seed: int, step: int, number: int) -> int:
    """Return the seed of the new layers of a run's surgery `number`, from 1, after a step."""
    return (seed + 1_000_003 * step + number) % 2**63


class Edited:
    """An edited net with the parameters and buffers of the layers of `before` that stay; `before` is not changed.

    `make` makes it on its device; `moves` are the layers that stay and how new ones begin, see `transfer`. New layers
    are drawn from `seed`; the random generators are restored. `fates` has the path of each layer before and after, what
    became of it, and why; `changed` the parameters of another shape: before, after, and how a tensor changes likewise.
    """

    def __init__(
        self,
        before: nn.Module,
        make: Callable[[], nn.Module],
        seed: int,
        *moves: Sequence[tuple[Any, ...]],
    ) -> None:
        states = generators()
        try:
            torch.default_generator.manual_seed(seed)
            np.random.seed(seed % 2**32)
            random.seed(seed)
            self.module = make()
            self._learns = {
                name: parameter.requires_grad
                for name, parameter in self.module.named_parameters()
            }
            self.fates, self.changed = transfer(before, self.module, *moves)
        finally:
            restore_generators(states)

    def set_learning(self) -> None:
        """Set requires_grad as in the edited net; parameters that stay are shared with the previous net."""
        for name, parameter in self.module.named_parameters():
            parameter.requires_grad_(self._learns[name])
            if not self._learns[name]:
                parameter.grad = None


def groups_of(
    model: nn.Module, group_options: Mapping[str, Mapping[str, Any]], no_decay: bool
) -> dict[tuple[str, bool], dict[str, Any]]:
    """Return the parameter groups of a net as its optimizer is constructed with them: one of
    all without `group_options`."""
    if group_options or no_decay:
        return parameter_groups(model, group_options, no_decay)
    return {("", False): {"params": list(model.parameters())}}


def regroup(
    optimizer: torch.optim.Optimizer,
    schedule: Any,
    before: Mapping[tuple[str, bool], Mapping[str, Any]],
    after: Mapping[tuple[str, bool], Mapping[str, Any]],
    changed: Sequence[tuple[nn.Parameter, nn.Parameter, Callable[[Tensor], Tensor]]],
) -> None:
    """Replace the parameters of an optimizer by those of the edited net. The state of those that stay is kept.

    `before` and `after` are the groups of the net before and of the edited one, see `groups_of`. A new group has the
    rate of the first one, in proportion.
    """
    old_groups = dict(zip(before, optimizer.param_groups, strict=True))
    first, groups, positions, factors = optimizer.param_groups[0], [], [], []
    for key, new_group in after.items():
        group, factor = old_groups.get(key), 1.0
        if group is None:
            group = {
                **first,
                **optimizer.defaults,
                **{
                    name: option
                    for name, option in new_group.items()
                    if name != "params"
                },
            }
            begun, rate = first.get("initial_lr", first.get("lr")), group.get("lr")
            factor = rate / begun if begun and rate is not None else 1.0
            for name in ("lr", "initial_lr", "max_lr", "min_lr"):
                if first.get(name) is not None:
                    group[name] = first[name] * factor
            for name in ("momentum", "betas"):
                if "base_momentum" in first and name in first:
                    group[name] = first[name]
        group["params"] = list(new_group["params"])
        groups.append(group)
        positions.append(list(old_groups).index(key) if key in old_groups else 0)
        factors.append(factor)
    count = len(optimizer.param_groups)
    optimizer.param_groups[:] = groups
    for scheduler in (schedule, *getattr(schedule, "_schedulers", ())):
        for name in (
            "base_lrs",
            "max_lrs",
            "min_lrs",
            "lr_lambdas",
            "_last_lr",
            "base_momentums",
            "max_momentums",
        ):
            values = getattr(scheduler, name, None)
            if (
                isinstance(values, list)
                and len(values) == count
                and list(before) != list(after)
            ):
                scales = name.endswith("lrs") or name == "_last_lr"
                scaled = [
                    values[position] * factor
                    if scales and factor != 1
                    else values[position]
                    for position, factor in zip(positions, factors, strict=True)
                ]
                setattr(scheduler, name, scaled)
    for old, new, like in changed:
        if old in optimizer.state:
            state = optimizer.state[old]
            tensors = {
                name: moment
                for name, moment in state.items()
                if isinstance(moment, Tensor) and moment.ndim
            }
            if all(moment.shape == old.shape for moment in tensors.values()):
                optimizer.state[new] = {
                    name: like(moment)
                    if name in tensors
                    else moment.clone()
                    if isinstance(moment, Tensor)
                    else moment
                    for name, moment in state.items()
                }
    stays = {parameter for group in groups for parameter in group["params"]}
    for parameter in [
        candidate for candidate in optimizer.state if candidate not in stays
    ]:
        del optimizer.state[parameter]
