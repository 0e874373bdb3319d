"""Field metadata of a struct: bounds as `Meta`, label and documentation as `About`."""

from __future__ import annotations

import math
from functools import cache
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


class About(NamedTuple):
    """What a number or a switch does, the section that it is shown in, whether a sweep may vary it, and whether a form
    shows it under "More" alone while it is the default."""

    section: str
    doc: str
    swept: bool = False
    expert: bool = False


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


@cache
def settings_of(kind: type) -> dict[str, Setting]:
    """Return the described fields of a struct, by name."""
    hints = get_type_hints(kind, include_extras=True)
    return {
        name: of for name, hint in hints.items() if (of := _setting(hint)) is not None
    }


def problem(name: str, value: Any, of: Setting) -> str:
    """Return what is wrong with the value of a field, "" if nothing is."""
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
    if meta.ge is not None and meta.lt is not None:
        return f", at least {meta.ge} and below {meta.lt}"
    if meta.ge is not None:
        return f" from {meta.ge} to {meta.le}"
    if meta.lt is not None:
        return f" between {meta.gt} and {meta.lt}"
    return f" above {meta.gt}"
