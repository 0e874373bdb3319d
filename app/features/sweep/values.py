"""What a sweep varies, `lr=0.1,0.01` or `conv2.out_channels=16..64`, how it searches, and the trials that it made."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, Literal

from msgspec import Struct

from app.builder.results import Analysis
from app.data.own_files.cache import Fact
from app.engine.protocol import Request
from app.project.project import Project
from app.training.choices import ChoiceParam
from app.training.settings import SWEPT
from app.util.errors import CodedError
from app.util.formatting import grouped_digits
from app.util.frozen import FrozenMap

TAG = "sweep-"
OPTIMIZER = "optimizer"
FIELDS = SWEPT  # of the run; other names are of a parameter of the optimizer, or NODE.PARAMETER of the drawing
MOST_RUNS = 10_000
SAMPLERS = ("grid", "random", "tpe", "gp", "cmaes", "qmc")
PRUNERS = ("none", "median", "hyperband", "wilcoxon")
_WORDS = {"True": True, "False": False, "None": None}
_BOUNDS = re.compile(r"([^,:]+?)(\.\.|:)([^,:]+)(?::([^,:]+))?")
Values = FrozenMap[str, Any]
State = Literal["waiting", "running", "done", "pruned", "failed"]


class SweepError(CodedError, ValueError):
    """Raised for a sweep that cannot be started; `setting` names the setting to change, "" for none."""

    exit_code = 2

    def __init__(self, message: str, setting: str = "") -> None:
        super().__init__(message)
        self.setting = setting


class SweepSetting(Struct, frozen=True):
    """A setting by name, with its values, or the `bounds` that values are chosen between: by their logarithm, or in
    steps of `step`.
    """

    name: str
    values: tuple[Any, ...] = ()
    bounds: tuple[Any, Any] | None = None
    log: bool = False
    step: int | float | None = None

    @property
    def extremes(self) -> tuple[Any, ...]:
        """The values that are checked before the first trial."""
        return self.bounds or self.values

    @property
    def text(self) -> str:
        """The setting as it is written.

        >>> parse_values("lr", "1e-4..1e-1:log").text, parse_values("lr", "0.1, 0.2").text
        ('0.0001..0.1:log', '0.1, 0.2')
        """
        if self.bounds is None:
            return ", ".join(map(str, self.values))
        kind = "log" if self.log else self.step
        return "..".join(map(str, self.bounds)) + (f":{kind}" if kind else "")


class Search(Struct, frozen=True):
    """What a sweep varies and how: `trials` counts those to make, each trained with `seeds` seeds."""

    settings: tuple[SweepSetting, ...]
    sampler: str = "grid"
    pruner: str = "none"
    trials: int | None = None
    seed: int = 0
    seeds: int = 1

    @property
    def count(self) -> int:
        """How many trials it makes: of a grid all combinations, unless there are to be fewer."""
        every = math.prod(len(setting.values) for setting in self.settings)
        wanted = MOST_RUNS + 1 if self.trials is None else self.trials
        return min(every, wanted) if self.sampler == "grid" else wanted

    @property
    def prunes_at_epochs(self) -> bool:
        """True if the study is told of each epoch of a trial's first seed."""
        return self.pruner in ("median", "hyperband")

    def check(self) -> None:
        """Raise SweepError for settings that do not go together."""
        if find_spec("optuna") is None:
            raise SweepError(
                "sweeps need Optuna, which is not installed: pip install tapedeck-torch[sweeps]"
            )
        names = [setting.name for setting in self.settings]
        if double := next((name for name in names if names.count(name) > 1), ""):
            raise SweepError(
                f"{double} is given twice; list its values once, separated by commas",
                double,
            )
        bounded = [setting.name for setting in self.settings if setting.bounds]
        if bounded and self.sampler == "grid":
            raise SweepError(
                f"{bounded[0]} gives bounds, which a grid does not take; list its values",
                bounded[0],
            )
        if self.pruner == "wilcoxon" and self.seeds < 3:
            raise SweepError(
                f"the pruner wilcoxon compares seeds, and these are {self.seeds}; give at least 3, or choose median"
            )
        if self.count > MOST_RUNS:
            cure = (
                "list fewer values, or draw some of them at random"
                if self.sampler == "grid"
                else "say how many trials, at most so many"
            )
            many = f"these are {grouped_digits(self.count)} runs, and "
            raise SweepError(
                f"{many if self.sampler == 'grid' else ''}a sweep has at most {grouped_digits(MOST_RUNS)}: {cure}"
            )


class Trial(Struct, frozen=True):
    """A trial to train: its project, sound, and its name. `resumed` are the numbers of the runs that a sweep that was
    cut off has made of it; with a `problem` it has failed already.
    """

    number: int
    name: str
    project: Project
    analysis: Analysis
    resumed: tuple[int, ...] = ()
    problem: str = ""


class TrialRow(Struct, frozen=True):
    """A trial as it is shown. `value` is the smallest validation loss, the mean of its `seeds`; figures that were not
    measured are None. `milliseconds` are of a step.
    """

    number: int
    state: State
    values: Values
    value: float | None = None
    seeds: tuple[float, ...] = ()
    note: str = ""
    runs: tuple[int, ...] = ()
    accuracy: float | None = None
    parameters: float | None = None
    bytes: float | None = None
    milliseconds: float | None = None


class SweepTable(Struct, frozen=True):
    """A sweep with its trials; `importance` is the share of each setting in the spread of the losses. `verdict` says
    whether the best is better than the next beyond the spread of its seeds. `held` is True while a process sweeps;
    `tags` are all sweeps of the project. One of an earlier version is `of_runs` alone and cannot go on.
    """

    tag: str
    search: Search
    trials: tuple[TrialRow, ...]
    importance: FrozenMap[str, float] = FrozenMap()
    verdict: str = ""
    held: bool = False
    tags: tuple[str, ...] = ()
    of_runs: bool = False


class SweepPlan(Struct, frozen=True):
    """How many `trials` a sweep makes; or 0, and the `problem` of the setting `blamed`, "" if it is of no single one.
    `params` are the settings that every trial can have, with their present values as defaults.
    """

    params: tuple[ChoiceParam, ...]
    trials: int = 0
    problem: str = ""
    blamed: str = ""


class InSweep(Request[Any], frozen=True):
    """A request about the sweeps in a folder of runs; "" is the newest."""

    lane: ClassVar[str] = "sweep"
    runs: Path
    tag: str


class ReadSweep(InSweep, Request[SweepTable | None], frozen=True):
    """Read a sweep with its trials; None where there is none."""


class BeginSweep(InSweep, Request[str], frozen=True):
    """Make a new sweep, whose settings were checked; the answer is its tag."""

    project: Project
    search: Search


class NextTrial(InSweep, Request[Trial | None], frozen=True):
    """Begin the next trial, None if all were made; `fact` describes the files of the data."""

    fact: Fact | None


class TellTrial(InSweep, Request[bool], frozen=True):
    """Note the `run` of a trial with a seed, a loss at a `step`, or how it ended; whether to prune it is the answer."""

    number: int
    run: int = 0
    seed: int = 0
    step: int = -1
    loss: float = 0.0
    state: State = "running"
    losses: tuple[float, ...] = ()
    note: str = ""


class SteerSweep(InSweep, Request[SweepTable | None], frozen=True):
    """Search differently, make a trial with these `values` next, or let another process go on (neither)."""

    search: Search | None = None
    values: Values = Values()


class PlanSweep(Request[SweepPlan], frozen=True):
    """Check the settings of a sweep of a project. `fact` describes the files of its data."""

    lane: ClassVar[str] = "sweep"
    project: Project
    analysis: Analysis
    fact: Fact | None
    search: Search


def parse_values(name: str, text: str) -> SweepSetting:
    """Parse the values of a setting, or its bounds. Raises SweepError.

    >>> parse_values("lr", "0.1, 1e-3").values, parse_values("width", "16..64:16").step
    ((0.1, 0.001), 16)
    """
    if match := _BOUNDS.fullmatch(text.strip()):
        return _bounded(name, *match.groups())
    values = tuple(map(_value, text.split(",")))
    if "" in values:
        raise SweepError(
            f"{name} has an empty value; separate its values by single commas", name
        )
    for index, value in enumerate(values):
        if value in values[:index] and not isinstance(value, bool):
            raise SweepError(f"{name} lists {value} twice; remove one of them", name)
        if isinstance(value, float) and not math.isfinite(value):
            raise SweepError(f"{name} is {value}; its values must be finite", name)
    return SweepSetting(name, values)


def _bounded(
    name: str, low: str, sign: str, high: str, kind: str | None
) -> SweepSetting:
    """Parse bounds; the old spelling `a:b` is by the logarithm unless both are whole numbers. Raises SweepError."""
    bounds, step = (_value(low), _value(high)), _value(kind or "")
    whole = all(type(bound) is int for bound in bounds)
    log = step == "log" or sign == ":" and not whole
    if not all(map(_is_number, bounds)) or not bounds[0] < bounds[1]:
        raise SweepError(
            f"{name}: bounds are two numbers, the smaller first, as 1e-4..1e-1:log",
            name,
        )
    if log and bounds[0] <= 0:
        raise SweepError(f"{name}: by their logarithm bounds are above 0", name)
    step = None if step in ("", "log") else step
    if step is not None and not (
        _is_number(step) and step > 0 and (not whole or type(step) is int)
    ):
        raise SweepError(
            f"{name}: after the bounds comes log or a step, as 16..64:16", name
        )
    return SweepSetting(name, (), bounds, log, step)


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


def text_of(values: Mapping[str, Any]) -> str:
    """Describe settings.

    >>> text_of({"lr": 0.0123456, "batch_size": 32})
    'lr 0.01235, batch_size 32'
    """
    return ", ".join(
        f"{name} {float(f'{value:.4g}') if isinstance(value, float) else value}"
        for name, value in values.items()
    )


def values_in(name: str) -> dict[str, Any]:
    """Return the settings that the name of a run describes.

    >>> values_in("lr 0.1, batch_size 32, seed 1")
    {'lr': 0.1, 'batch_size': 32, 'seed': 1}
    """
    pairs = [piece.partition(" ") for piece in name.split(", ")]
    return {key: _value(value) for key, is_given, value in pairs if is_given}


def name_of(values: Mapping[str, Any], search: Search) -> str:
    """Name a trial by the settings that vary; by all, if none does."""
    varying = [s.name for s in search.settings if len(s.extremes) > 1]
    return text_of({name: values[name] for name in varying or values})


def next_tag(tags: Iterable[str]) -> str:
    """Return the tag of the next sweep, after those of the runs and the folders that are stored.

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
