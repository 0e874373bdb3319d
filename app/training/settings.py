"""The numbers and switches among the training settings: what a form, a sweep and a check read of their descriptions.

All of it is derived from the fields of `TrainingConfig`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import (
    Annotated,
    Any,
    Literal,
    NamedTuple,
    get_args,
    get_origin,
    get_type_hints,
)

from msgspec import Meta

from app.training.choices import ChoiceParam
from app.training.config import About, TrainingConfig
from app.util.formatting import number_text

DEFAULT = TrainingConfig()
KINDS = {bool: "bool", int: "int", float: "float", tuple: "ints"}
# Values that a field shows as None.
EMPTY: dict[str, Any] = {"amp": "", "leave_out": ()}


class Setting(NamedTuple):
    """The type of a field with its bounds, what it is about, and whether it may be None."""

    kind: Any
    meta: Meta
    about: About
    optional: bool

    @property
    def choices(self) -> tuple[Any, ...]:
        return get_args(self.kind) if get_origin(self.kind) is Literal else ()


def _setting(hint: Any) -> Setting | None:
    """Return the description of a field; None of one that is no number or switch."""
    if get_origin(hint) is not Annotated:
        return None
    kind, *notes = get_args(hint)
    parts = [part for part in get_args(kind) if part is not type(None)]
    optional = len(parts) == 1 and type(None) in get_args(kind)
    if optional or get_origin(kind) is tuple:
        kind, *more = get_args(parts[0]) or (parts[0],)
        notes += more
        kind = kind if optional else tuple
    meta = next(
        (n for n in notes if isinstance(n, Meta) and n.max_length is None), Meta()
    )
    about = next((note for note in notes if isinstance(note, About)), None)
    return Setting(kind, meta, about, optional) if about is not None else None


def _param(name: str, of: Setting) -> ChoiceParam:
    choices = tuple(filter(None, of.choices))
    return ChoiceParam(
        name,
        "choice" if choices else KINDS[of.kind],
        of_field(name, getattr(DEFAULT, name)),
        choices=choices,
        optional=of.optional or name in EMPTY,
        minimum=of.meta.ge if of.meta.ge is not None else of.meta.gt,
        maximum=of.meta.le,
        doc=of.about.doc,
    )


def section(title: str) -> tuple[ChoiceParam, ...]:
    """Return the settings of a section, in the order of the fields."""
    return tuple(
        PARAMS[name] for name, of in _SETTINGS.items() if of.about.section == title
    )


def problem(name: str, value: Any) -> str:
    """Return what is wrong with the value of a setting, "" if nothing is.

    >>> problem("epochs", 0)
    'epochs is 0; it must be an integer from 1 to 10000000.'
    >>> problem("clip_norm", 0.0)
    'clip_norm is 0.0; it must be a number above 0, or None to disable it.'
    >>> problem("ema", 2.0)
    'ema is 2.0; it must be a number between 0 and 1, or None to disable it.'
    >>> problem("amp", "fp8")
    "amp is 'fp8'; it must be bfloat16 or float16, or empty to disable it."
    """
    of = _SETTINGS[name]
    off, wrong = "", False
    if value is None and of.optional:
        return ""
    if of.choices:
        wrong = value not in of.choices
        expected = " or ".join(filter(None, of.choices))
        off = ", or empty to disable it" if "" in of.choices else ""
    elif of.kind is bool:
        wrong, expected = not isinstance(value, bool), "True or False"
    elif of.kind is tuple:
        problems = (_outside(name, step, int, of.meta) for step in value)
        return next(filter(None, problems), "")
    else:
        off = ", or None to disable it" if of.optional else ""
        return _outside(name, value, of.kind, of.meta, off)
    return f"{name} is {value!r}; it must be {expected}{off}." if wrong else ""


def _outside(name: str, value: Any, kind: type, meta: Meta, off: str = "") -> str:
    """Return what is wrong with a number."""
    types = int if kind is int else (int, float)
    is_number = isinstance(value, types) and not isinstance(value, bool)
    low, high = meta.ge, meta.le
    number = "an integer" if kind is int else "a number"
    if not is_number or not math.isfinite(value):
        expected = f"{number}{_range(meta)}"
    elif high is not None and value > high and low is None:
        expected = f"at most {high:g}"
    elif (
        (low is not None and value < low)
        or (high is not None and value > high)
        or (meta.gt is not None and value <= meta.gt)
        or (meta.lt is not None and value >= meta.lt)
    ):
        expected = f"{number}{_range(meta)}"
    else:
        return ""
    return f"{name} is {value!r}; it must be {expected}{off}."


def _range(meta: Meta) -> str:
    if meta.ge is not None:
        return f" from {meta.ge} to {meta.le}"
    if meta.lt is not None:
        return f" between {meta.gt} and {meta.lt}"
    return f" above {meta.gt}"


def of_field(name: str, value: Any) -> Any:
    """Convert a value of the config to that of its field."""
    if name == "leave_out" and len(value) == 1:  # as it is typed
        return value[0]
    return None if name in EMPTY and value == EMPTY[name] else value


def of_config(name: str, value: Any) -> Any:
    """Convert a value of a field to that of the config."""
    if name == "leave_out" and isinstance(value, int):
        return (value,)
    if PARAMS[name].kind == "float" and type(value) is int:
        return float(value)  # equal to the user, but not in the file
    return EMPTY[name] if value is None and name in EMPTY else value


def differing(params: Sequence[ChoiceParam], training: TrainingConfig) -> list[str]:
    """List the values that differ from the defaults, briefly.

    >>> differing(section("Gradients"), TrainingConfig(accumulate=4, clip_norm=0.5))
    ['accumulate 4', 'clip_norm 0.5']
    >>> differing(section("Precision and speed"), TrainingConfig(compile=True, amp="bfloat16"))
    ['bfloat16', 'compile']
    """
    values = {param.name: getattr(training, param.name) for param in params}
    return [
        _brief(name, value)
        for name, value in values.items()
        if value != getattr(DEFAULT, name)
    ]


def _brief(name: str, value: Any) -> str:
    if value is True:
        return name
    if name == "amp":
        return str(value)
    return f"{name} {value if isinstance(value, str) else number_text(value)}"


_HINTS = get_type_hints(TrainingConfig, include_extras=True)
_SETTINGS = {
    name: of for name, hint in _HINTS.items() if (of := _setting(hint)) is not None
}
PARAMS = {name: _param(name, of) for name, of in _SETTINGS.items()}
SWEPT = tuple(name for name, of in _SETTINGS.items() if of.about.swept)
