"""The numbers and switches among the training settings: what a form, a sweep and a check read of their descriptions.

All of it is derived from the fields of `TrainingConfig`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from msgspec import Meta

from app.training.choices import ChoiceParam
from app.training.config import TrainingConfig
from app.util.formatting import number_text

DEFAULT = TrainingConfig()
KINDS = {bool: "bool", int: "int", float: "float"}
# Values that a field shows as None.
EMPTY: dict[str, Any] = {"amp": "", "leave_out": ()}


def _described(hint: Any) -> tuple[Any, Meta | None, bool]:
    """Return the type of a field, its description, and whether it may be None."""
    described = [part for part in get_args(hint) if part is not type(None)]
    if get_origin(hint) is Annotated:
        return described[0], described[1], False
    inner = [part for part in described if get_origin(part) is Annotated]
    if inner and type(None) in get_args(hint):
        return *_described(inner[0])[:2], True
    return hint, None, False


def _param(name: str, kind: Any, meta: Meta, optional: bool) -> ChoiceParam:
    default = getattr(DEFAULT, name)
    shown = None if name in EMPTY and default == EMPTY[name] else default
    optional = optional or name in EMPTY
    choices = tuple(filter(None, get_args(kind))) if _is_choice(kind) else ()
    steps = None if kind in KINDS or choices else _described(get_args(kind)[0])[1]
    bounds = steps or meta
    return ChoiceParam(
        name,
        "choice" if choices else KINDS.get(kind, "ints"),
        shown,
        choices=choices,
        optional=optional,
        minimum=bounds.ge if bounds.ge is not None else bounds.gt,
        maximum=bounds.le,
        doc=meta.description or "",
    )


def _is_choice(kind: Any) -> bool:
    return get_origin(kind) is Literal


_HINTS = get_type_hints(TrainingConfig, include_extras=True)
_METAS = {
    name: described
    for name, hint in _HINTS.items()
    if (described := _described(hint))[1] is not None and described[1].extra
}
PARAMS = {name: _param(name, *described) for name, described in _METAS.items()}


def section(title: str) -> tuple[ChoiceParam, ...]:
    """Return the settings of a section, in the order of the fields."""
    return tuple(
        PARAMS[name]
        for name, (_, meta, _optional) in _METAS.items()
        if meta.extra["section"] == title
    )


SWEPT = tuple(name for name, (_, meta, _) in _METAS.items() if meta.extra["swept"])


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
    kind, meta, optional = _METAS[name]
    if value is None and optional:
        return ""
    if _is_choice(kind):
        names = " or ".join(filter(None, get_args(kind)))
        off = ", or empty to disable it" if "" in get_args(kind) else ""
        wrong = value not in get_args(kind)
        return f"{name} is {value!r}; it must be {names}{off}." if wrong else ""
    if kind is bool:
        wrong = not isinstance(value, bool)
        return f"{name} is {value!r}; it must be True or False." if wrong else ""
    if kind not in KINDS:
        steps = _described(get_args(kind)[0])
        problems = (_outside(name, step, steps[0], steps[1]) for step in value)
        return next(filter(None, problems), "")
    off = ", or None to disable it" if optional else ""
    return _outside(name, value, kind, meta, off)


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
