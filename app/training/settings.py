"""The numbers and switches among the training settings: what a form, a sweep and a check read of their descriptions.

All of it is derived from the fields of `TrainingConfig`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from app.training.choices import ChoiceParam
from app.training.config import TrainingConfig
from app.util import described
from app.util.described import Setting, settings_of
from app.util.formatting import number_text

DEFAULT = TrainingConfig()
KINDS = {bool: "bool", int: "int", float: "float", tuple: "ints"}
# Values that a field shows as None.
EMPTY: dict[str, Any] = {"amp": "", "leave_out": ()}


def param(name: str, of: Setting, default: Any) -> ChoiceParam:
    """Return the parameter of a form for a field."""
    choices = tuple(filter(None, of.choices))
    return ChoiceParam(
        name,
        "choice" if choices else KINDS[of.kind],
        default,
        choices=choices,
        optional=of.optional or name in EMPTY,
        minimum=of.meta.ge if of.meta.ge is not None else of.meta.gt,
        maximum=of.meta.le,
        doc=of.about.doc,
        expert=of.about.expert,
    )


def section_of(kind: type, title: str) -> tuple[ChoiceParam, ...]:
    """Return the settings of a section of a struct, in the order of its fields."""
    default = kind()
    return tuple(
        param(name, of, of_field(name, getattr(default, name)))
        for name, of in settings_of(kind).items()
        if of.about.section == title
    )


def section(title: str) -> tuple[ChoiceParam, ...]:
    """Return the settings of a section of the training settings."""
    return section_of(TrainingConfig, title)


def problem(name: str, value: Any) -> str:
    """Validate the value of a setting; return the error message, "" if valid.

    >>> problem("epochs", 0)
    'epochs is 0; it must be an integer from 1 to 10000000.'
    >>> problem("clip_norm", 0.0)
    'clip_norm is 0.0; it must be a number above 0, or None to disable it.'
    >>> problem("ema", 2.0)
    'ema is 2.0; it must be a number between 0 and 1, or None to disable it.'
    >>> problem("amp", "fp8")
    "amp is 'fp8'; it must be bfloat16 or float16, or empty to disable it."
    """
    return described.problem(name, value, _SETTINGS[name])


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


_SETTINGS = settings_of(TrainingConfig)
PARAMS = {
    name: param(name, of, of_field(name, getattr(DEFAULT, name)))
    for name, of in _SETTINGS.items()
}
SWEPT = tuple(name for name, of in _SETTINGS.items() if of.about.swept)
