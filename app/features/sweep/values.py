"""Settings of a sweep: `lr=0.1,0.01` are values, `lr=1e-4:1e-1` are bounds to draw between; and the runs they make."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from msgspec import Struct

from app.builder.results import Analysis
from app.data.own_files.cache import Fact
from app.engine.protocol import Request
from app.project.project import Project
from app.training.choices import ChoiceParam
from app.training.config import TrainingConfig
from app.training.settings import SWEPT
from app.util.errors import CodedError
from app.util.formatting import grouped_digits
from app.util.frozen import FrozenMap

TAG = "sweep-"
OPTIMIZER = "optimizer"
FIELDS = SWEPT  # of the run; every other name is a parameter of the optimizer
MOST_RUNS = 10_000
_WORDS = {"True": True, "False": False, "None": None}
Values = FrozenMap[str, Any]


class SweepError(CodedError, ValueError):
    """Raised for a sweep that cannot be started; `setting` names the setting to change, "" for none."""

    exit_code = 2

    def __init__(self, message: str, setting: str = "") -> None:
        super().__init__(message)
        self.setting = setting


class SweepSetting(Struct, frozen=True):
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
        return float(
            f"{math.exp(generator.uniform(math.log(low), math.log(high))):.4g}"
        )


class SweepRun(Struct, frozen=True):
    """One run of a sweep: its name, the values of the settings of the sweep, and all settings."""

    name: str
    values: Values
    training: TrainingConfig


class SweepPlan(Struct, frozen=True):
    """The runs of a sweep; or none, and the `problem` of the setting `blamed`, "" if it is of no single one. `params`
    are the settings that every run can have, with their present values as defaults.
    """

    params: tuple[ChoiceParam, ...]
    runs: tuple[SweepRun, ...] = ()
    problem: str = ""
    blamed: str = ""


class PlanSweep(Request[SweepPlan], frozen=True):
    """Check the runs of a sweep of a project: the grid of its settings, or `count` random draws with a seed.

    `fact` describes the files of its data.
    """

    lane: ClassVar[str] = "sweep"
    project: Project
    analysis: Analysis
    fact: Fact | None
    settings: tuple[SweepSetting, ...]
    count: int | None = None
    seed: int = 0


def parse_values(name: str, text: str) -> SweepSetting:
    """Parse the values of a setting, or its bounds. Raises SweepError.

    >>> parse_values("lr", "0.1, 1e-3").values, parse_values("batch_size", "16:64").bounds
    ((0.1, 0.001), (16, 64))
    """
    low, is_range, high = text.partition(":")
    if not is_range:
        values = tuple(map(_value, text.split(",")))
        if "" in values:
            raise SweepError(
                f"{name} has an empty value; separate its values by single commas", name
            )
        twice = next(
            (value for index, value in enumerate(values) if value in values[:index]),
            None,
        )
        if twice is not None and not isinstance(twice, bool):
            raise SweepError(f"{name} lists {twice} twice; remove one of them", name)
        if wild := next(
            (
                value
                for value in values
                if isinstance(value, float) and not math.isfinite(value)
            ),
            None,
        ):
            raise SweepError(f"{name} is {wild}; its values must be finite", name)
        return SweepSetting(name, values)
    bounds = _value(low), _value(high)
    numbers = [
        type(bound) in (int, float) and math.isfinite(bound) and bound > 0
        for bound in bounds
    ]
    if not all(numbers) or not bounds[0] < bounds[1]:
        raise SweepError(
            f"{name}: bounds are two numbers above 0, the smaller first, as 1e-4:1e-1",
            name,
        )
    return SweepSetting(name, bounds=bounds)


def combinations(
    settings: Sequence[SweepSetting], count: int | None, seed: int
) -> list[Values]:
    """Return the settings of each run: of the whole grid, or of `count` draws with a seed. Raises SweepError."""
    names = [setting.name for setting in settings]
    if double := next((name for name in names if names.count(name) > 1), ""):
        raise SweepError(
            f"{double} is given twice; list its values once, separated by commas",
            double,
        )
    total = (
        math.prod(len(setting.values) for setting in settings)
        if count is None
        else count
    )
    if total > MOST_RUNS:
        cure = (
            "list fewer values, or draw some of them at random"
            if count is None
            else "draw fewer"
        )
        raise SweepError(
            f"these are {grouped_digits(total)} runs, and a sweep has at most {grouped_digits(MOST_RUNS)}: {cure}"
        )
    if count is not None:
        generator = random.Random(seed)
        return [
            FrozenMap({setting.name: setting.draw(generator) for setting in settings})
            for _ in range(count)
        ]
    if drawn := next(
        (setting.name for setting in settings if setting.bounds is not None), ""
    ):
        raise SweepError(
            f"{drawn} gives bounds, which only random draws take; list its values",
            drawn,
        )
    grid = itertools.product(*(setting.values for setting in settings))
    return [FrozenMap(zip(names, values, strict=True)) for values in grid]


def text_of(values: Mapping[str, Any]) -> str:
    """Describe settings.

    >>> text_of({"lr": 0.1, "batch_size": 32})
    'lr 0.1, batch_size 32'
    """
    return ", ".join(f"{name} {value}" for name, value in values.items())


def names_of(runs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Name runs by the settings that vary between them; by all, if none does.

    >>> names_of([{"epochs": 2, "lr": 0.1}, {"epochs": 2, "lr": 0.01}])
    ['lr 0.1', 'lr 0.01']
    """
    varying = (
        [name for name in runs[0] if len({repr(values[name]) for values in runs}) > 1]
        if runs
        else []
    )
    return [
        text_of({name: values[name] for name in varying or values}) for values in runs
    ]


def next_tag(tags: Iterable[str]) -> str:
    """Return the tag of the next sweep, after those of the runs that are stored.

    >>> next_tag(["baseline", "sweep-2", "sweep-x"])
    'sweep-3'
    """
    numbers = [tag.removeprefix(TAG) for tag in tags if tag.startswith(TAG)]
    return f"{TAG}{max((int(number) for number in numbers if number.isdecimal()), default=0) + 1}"


def _value(text: str) -> Any:
    text = text.strip()
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return _WORDS.get(text, text)
