"""Requests: recompute a step of a stored run, verify it by its recorded hashes, and capture its graph; find the first
step at which a condition held, such as `norm(fc1) > 10`; fork a run without the batch of a step.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from msgspec import Struct

from app.autograd.tape import Tape
from app.engine.protocol import Handle, Request
from app.engine.requests.runs import Fork
from app.training.monitoring.looks import BatchPeek
from app.util.errors import CodedError


def digits(value: int) -> str:
    """Return a hash as 16 hexadecimal digits.

    >>> digits(-1), digits(255)
    ('ffffffffffffffff', '00000000000000ff')
    """
    return f"{value & (1 << 64) - 1:016x}"


class RevisitedLayer(Struct, frozen=True):
    """A layer at a step: the recorded hash of its gradients, the recomputed one, and their norm.

    Hashes are 16 hexadecimal digits; `recorded` is None where the run recorded none at this step, `norm` where no
    gradient reached the layer.
    """

    layer: str
    recorded: str | None
    recomputed: str
    norm: float | None

    @property
    def is_equal(self) -> bool:
        """Return whether the recomputed gradients may be the recorded ones."""
        return self.recorded in (None, self.recomputed)


class Parted(Struct, frozen=True):
    """Where a recomputed run is no longer the recorded one: the first step, and the first layer in backward order.

    `what` is "gradients", "generator", "position" or "loss". `operation` is the operation that is not deterministic,
    None if it was not found; then `layer` is that of the operation, `line` where it was called; `reason` is a sentence.
    """

    step: int
    what: str
    layer: str
    layers: tuple[str, ...]
    operation: str | None = None
    node: str | None = None
    line: str = ""
    reason: str = ""


class Revisited(Struct, frozen=True):
    """A step as it was recomputed; that where the run parted if `parted`, which `step` names then.

    `checkpoint` is the file it continued from, "" for the start of the run, and `started_at` its step. `verified` steps
    on the way had recorded hashes, all equal. `captured` is whether the gradients of the captured graph are those of
    the step bit for bit; None without a graph, and of a step that was not `trained`: its loss was not finite, so the
    run ended or skipped it. `held` is the object of the step in the engine: `tape`, `notes` and `hold()`, as of a
    watched script's; `LookIntoStep` and `ShowStepBatch` take it.
    """

    run: str
    step: int
    epoch: int
    batch: int
    checkpoint: str
    started_at: int
    verified: int
    loss: float
    recorded_loss: float | None
    generator: bool | None
    layers: tuple[RevisitedLayer, ...]
    parted: Parted | None
    tape: Tape | None
    captured: bool | None
    notes: tuple[str, ...] = ()
    held: Handle | None = None
    trained: bool = True


class Recomputing(Struct, frozen=True):
    """Progress: the number of recomputed steps."""

    done: int
    of: int


class FirstStep(Struct, frozen=True):
    """The first step at which a condition held, None if it never did, with its layer and value.

    `recorded` if what the run measured sufficed; else the run was recomputed, up to where it `parted`.
    """

    step: int | None
    layer: str
    value: float | None
    recorded: bool
    parted: Parted | None = None


class ShowStepBatch(Request[BatchPeek], frozen=True):
    """Return the batch of a recomputed step."""

    lane: ClassVar[str] = "past step"
    held: Handle


class FindFirst(Request[FirstStep], frozen=True):
    """Find the first step at which a condition such as `norm(fc1) > 10` held; its progress are `Recomputing`. Raises
    RunError, RecomputeError, JobError and ConditionError."""

    lane: ClassVar[str] = "revisit"
    run: Path
    condition: str
    data_root: str


class Revisit(Request[Revisited], frozen=True):
    """Recompute `step` of the run stored in a folder; its progress are `Recomputing`. Raises RunError, RecomputeError,
    JobError and CaptureError."""

    lane: ClassVar[str] = "revisit"
    run: Path
    step: int
    data_root: str


class ForkWithout(Request[Fork], frozen=True):
    """Prepare a fork of a stored run that leaves out the batch of a step. Raises RunError and JobError."""

    lane: ClassVar[str] = "runs"
    run: Path
    step: int
    data_root: str


# --- Conditions

FIGURES = {
    "loss": "the loss",
    "norm": "the norm of a layer's gradients before the optimizer's step",
    "weight": "the largest magnitude of a layer's weights after it",
    "dead": "the fraction of units of a layer that cuts at 0 that were 0 for the whole batch",
}
NOT_FINITE = "is not finite"
_RELATIONS = {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le}
_TEXT = re.compile(
    r"\s*([a-z]+)\s*(?:\((.+)\))?\s*(?:(>=|<=|>|<)\s*(\S+)|(is not finite))\s*"
)


class ConditionError(CodedError, ValueError):
    """Raised for a condition that cannot be parsed; the message gives the syntax."""

    exit_code = 2


class Condition(Struct, frozen=True):
    """A figure of a step compared with a bound: of one layer, or of any if `layer` is "".

    `bound` is NaN for the relation "is not finite".
    """

    figure: str
    layer: str
    relation: str
    bound: float

    def holds(self, value: float) -> bool:
        """Return whether a value is beyond the bound; NaN never is, but it is not finite."""
        if self.relation == NOT_FINITE:
            return not math.isfinite(value)
        return bool(_RELATIONS[self.relation](value, self.bound))

    def first(self, values: Mapping[str, float]) -> tuple[str, float] | None:
        """Return the first layer, with its value, for which it holds."""
        chosen = (
            {self.layer: values[self.layer]}
            if self.layer in values
            else {}
            if self.layer
            else values
        )
        return next(
            ((name, value) for name, value in chosen.items() if self.holds(value)), None
        )


def parse_condition(text: str) -> Condition:
    """Read a condition. Raises ConditionError.

    >>> parse_condition("norm(encoder.0.fc) > 1e3")
    Condition(figure='norm', layer='encoder.0.fc', relation='>', bound=1000.0)
    >>> parse_condition("loss>=5").layer
    ''
    >>> parse_condition("loss is not finite").holds(math.nan)
    True
    """
    match = _TEXT.fullmatch(text)
    how = "write it as norm(LAYER) > 10, with loss, norm, weight or dead, and with one of > >= < <= and a number, or "
    how += f"“{NOT_FINITE}”"
    if match is None or match[1] not in FIGURES:
        raise ConditionError(f"“{text}” is not a condition; {how}")
    try:
        bound = math.nan if match[5] else float(match[4])
    except ValueError:
        bound = math.nan
    if math.isnan(bound) and not match[5]:
        raise ConditionError(f"“{match[4]}” in “{text}” is not a number; {how}")
    if match[1] == "loss" and match[2]:
        raise ConditionError(f"“{text}”: the loss takes no layer; {how}")
    return Condition(match[1], (match[2] or "").strip(), match[3] or NOT_FINITE, bound)


class Hit(Struct, frozen=True):
    """The first step at which a condition held, its layer ("" for the loss) and value."""

    step: int
    layer: str
    value: float
