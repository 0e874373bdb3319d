"""Learning rates by parameter group of the project, and changes of them during a run.

A group of the project may be two of the optimizer's: parameters without weight decay form another group, at the same
rate.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from app.training.script_recipes import scale_schedule

if TYPE_CHECKING:
    from torch import nn
    from torch.optim import Optimizer


class Rates(NamedTuple):
    """The rate of each group, at one step."""

    names: tuple[str, ...]
    values: tuple[float, ...]


class LearningRates:
    """`names` are the paths of the groups, the main one first; "" is all that lies in no group of the project.

    The main group is "", or the largest one where every parameter lies in a group.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        schedule: Any,
        paths: Iterable[str],
    ) -> None:
        self._optimizer, self._schedule, paths = optimizer, schedule, tuple(paths)
        names = {id(parameter): name for name, parameter in model.named_parameters()}
        first = [
            names.get(id(group["params"][0]), "") for group in optimizer.param_groups
        ]
        group_paths = [
            next((path for path in paths if f"{name}.".startswith(f"{path}.")), "")
            for name in first
        ]
        sizes: dict[str, int] = {}
        for path, group in zip(group_paths, optimizer.param_groups, strict=True):
            sizes[path] = sizes.get(path, 0) + sum(
                parameter.numel() for parameter in group["params"]
            )
        main = "" if "" in sizes else max(sizes, key=sizes.__getitem__)
        self.names = (main, *(path for path in sizes if path != main))
        self._places = {
            name: [at for at, path in enumerate(group_paths) if path == name]
            for name in self.names
        }
        self._main = self._places[main][0]
        self._told: Rates | None = None

    @property
    def main(self) -> float:
        """Return the rate of the main group, NaN if the optimizer has none."""
        rate = self._optimizer.param_groups[self._main].get("lr")
        return math.nan if rate is None else float(rate)

    @property
    def all(self) -> tuple[float, ...]:
        """Return the rate of each of `names`."""
        return tuple(map(self._rate, self.names))

    def _rate(self, name: str) -> float:
        rate = self._optimizer.param_groups[self._places[name][0]].get("lr")
        return math.nan if rate is None else float(rate)

    def news(self) -> Rates | None:
        """Return the rates of several groups if they changed since the last call, else None."""
        if len(self.names) == 1:
            return None
        rates = Rates(self.names, self.all)
        return rates if rates != self._told else None

    def mark_reported(self, rates: Rates | None) -> None:
        self._told = rates or self._told

    def set(self, rate: float, name: str = "") -> str:
        """Set the rate of one group, "" is the main one; its schedule continues in proportion. Returns its name.

        From a rate of 0 there is no proportion: the schedule continues unscaled. Raises ValueError for an unknown
        group.
        """
        name = name or self.names[0]
        if name not in self._places:
            names = ", ".join(
                group_name or "the main group" for group_name in self.names
            )
            raise ValueError(
                f"The run has no parameter group “{name}”; it has {names}."
            )
        now = self._rate(name)
        for at in self._places[name]:
            if now > 0:
                scale_schedule(self._optimizer, self._schedule, at, rate / now)
            self._optimizer.param_groups[at]["lr"] = rate
        return name

    def scale(self, rate: float) -> None:
        """Set the rate of the main group, and scale all others by the same factor."""
        now = self.main
        for name, other in zip(self.names, self.all, strict=True):
            self.set(rate * (other / now) if now > 0 else rate, name)
