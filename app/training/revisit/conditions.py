"""Conditions on the results of a step, such as `norm(fc1) > 10`, to find the first step at which one held."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Mapping

from msgspec import Struct

from app.util.errors import CodedError

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
