"""The settings of a sweep: `lr=0.1,0.01` are values, `lr=1e-4:1e-1` are bounds to draw between."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from app.util.late_dataclass import dataclass

if TYPE_CHECKING:
    from app.project.project import Project

OPTIMIZER = "optimizer"
# Of the run; every other name is a parameter of the optimizer.
FIELDS = (
    "epochs", "batch_size", "seed", "accumulate", "patience", "max_steps", "threads", "clip_norm", "clip_value", "ema",
    "mixup", "amp", "no_decay",
)  # fmt: skip
_WORDS = {"True": True, "False": False, "None": None}
Values = dict[str, Any]


@dataclass(frozen=True)
class SweepSetting:
    """A setting by name, with its values, or the `bounds` that values are drawn between."""

    name: str
    values: tuple[Any, ...] = ()
    bounds: tuple[Any, Any] | None = None

    def draw(self, generator: random.Random) -> Any:
        """Draw a value: whole numbers uniformly, others uniformly by their logarithm."""
        if self.bounds is None:
            return generator.choice(self.values)
        low, high = self.bounds
        if isinstance(low, int) and isinstance(high, int):
            return generator.randint(low, high)
        return float(f"{math.exp(generator.uniform(math.log(low), math.log(high))):.4g}")


def parse_setting(text: str) -> SweepSetting:
    """Parse an argument of --set. Raises CommandError.

    >>> parse_setting("lr=0.1,1e-3").values, parse_setting("batch_size=16:64").bounds
    ((0.1, 0.001), (16, 64))
    """
    from app import cli

    name, is_set, given = (part.strip() for part in text.partition("="))
    if not (name and is_set and given):
        raise cli.CommandError(f"--set {text}: write a setting and its values, as lr=0.1,0.01")
    low, is_range, high = given.partition(":")
    if not is_range:
        return SweepSetting(name, tuple(_value(part) for part in given.split(",")))
    bounds = _value(low), _value(high)
    numbers = [type(bound) in (int, float) and math.isfinite(bound) and bound > 0 for bound in bounds]
    if not all(numbers) or not bounds[0] < bounds[1]:
        raise cli.CommandError(f"--set {text}: bounds are two numbers above 0, the smaller first, as lr=1e-4:1e-1")
    return SweepSetting(name, bounds=bounds)


def combinations(settings: Sequence[SweepSetting], count: int | None, seed: int) -> list[Values]:
    """Return the settings of each run: of the whole grid, or of `count` draws with a seed. Raises CommandError."""
    from app import cli

    names = [one.name for one in settings]
    if double := next((name for name in names if names.count(name) > 1), ""):
        raise cli.CommandError(f"--set {double} is given twice; separate its values by commas")
    if count is not None:
        generator = random.Random(seed)
        return [{one.name: one.draw(generator) for one in settings} for _ in range(count)]
    if drawn := next((one.name for one in settings if one.bounds is not None), ""):
        raise cli.CommandError(f"--set {drawn} gives bounds, which only --random N draws between; list its values")
    return [dict(zip(names, values, strict=True)) for values in itertools.product(*(one.values for one in settings))]


def with_values(project: Project, values: Values) -> Project:
    """Return the project with the settings of one run. Raises CommandError for a name that it does not have."""
    from app import cli
    from app.training.config import Choice
    from app.training.registry import OPTIMIZERS, optimizer_params
    from app.util.frozen import FrozenMap

    training = project.training
    optimizer = training.optimizer
    if (other := values.get(OPTIMIZER, optimizer.name)) != optimizer.name:
        if other not in OPTIMIZERS:
            raise cli.CommandError(f"--set optimizer: there is no {other}; there are {', '.join(OPTIMIZERS)}")
        optimizer = Choice(other, FrozenMap({k: v for k, v in optimizer.params.items() if k == "lr"}))
    own = {name: value for name, value in values.items() if name not in (*FIELDS, OPTIMIZER)}
    known = [param.name for param in optimizer_params(optimizer.name)]
    if unknown := next((name for name in own if name not in known), ""):
        raise cli.CommandError(
            f"--set {unknown} is no setting; there are optimizer, {', '.join(FIELDS)}, and of {optimizer.name} "
            f"{', '.join(known)}"
        )
    optimizer = replace(optimizer, params=FrozenMap({**optimizer.params, **own}))
    fields = {name: value for name, value in values.items() if name in FIELDS}
    return replace(project, training=replace(training, optimizer=optimizer, **fields))


def text_of(values: Values) -> str:
    """Describe the settings of a run, which is its name.

    >>> text_of({"lr": 0.1, "batch_size": 32})
    'lr 0.1, batch_size 32'
    """
    return ", ".join(f"{name} {value}" for name, value in values.items())


def _value(text: str) -> Any:
    text = text.strip()
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return _WORDS.get(text, text)
