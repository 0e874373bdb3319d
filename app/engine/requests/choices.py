"""Requests about losses, optimizers and schedules: parameters, validation, preview of the learning rate."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from app.engine.protocol import Request
from app.training.choices import ChoiceParam
from app.training.config import Choice, Schedule, TrainingConfig
from app.training.setup.schedule_length import RatePreview, Span
from app.util.frozen import FrozenMap

LANE = "choices"


class Params(Request[tuple[ChoiceParam, ...]], frozen=True):
    """The fields of a class."""

    lane: ClassVar[str] = LANE
    kind: Literal["loss", "optimizer", "schedule"]
    name: str


class GroupParams(Request[tuple[ChoiceParam, ...]], frozen=True):
    """List the fields of an optimizer that a parameter group can override."""

    lane: ClassVar[str] = LANE
    optimizer: Choice


class CheckLoss(Request[None], frozen=True):
    """Raises ChoiceError where torch does not make the loss."""

    lane: ClassVar[str] = LANE
    choice: Choice


class CheckOptimizer(Request[None], frozen=True):
    """Raises ChoiceError where torch does not make the optimizer."""

    lane: ClassVar[str] = LANE
    choice: Choice


class CheckGroup(Request[None], frozen=True):
    """Raises ChoiceError where torch does not take the options of a group."""

    lane: ClassVar[str] = LANE
    optimizer: Choice
    options: FrozenMap[str, Any]


class CheckSchedule(Request[None], frozen=True):
    """Raises ChoiceError where torch does not make the schedule of an optimizer."""

    lane: ClassVar[str] = LANE
    schedule: Schedule
    optimizer: Choice


class FirstSchedule(Request[tuple[Schedule, str]], frozen=True):
    """Propose a schedule with values that suit a run, and explain them in a sentence."""

    lane: ClassVar[str] = LANE
    name: str
    optimizer: Choice
    length: Span


class PreviewRate(Request[RatePreview], frozen=True):
    """The learning rate over a run. Raises ChoiceError."""

    lane: ClassVar[str] = LANE
    training: TrainingConfig
    length: Span
