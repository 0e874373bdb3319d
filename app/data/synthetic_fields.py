"""Write down the inputs and targets of synthetic samples: `ids (18,) int64 < 40; mask (18,) bool`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from app.data.spec import CLASSES, TOKENS, VALUES, DataError, FieldInfo, TargetInfo

DTYPES = ("float32", "int64", "bool")
MOST = 2**31  # a larger bound is no vocabulary
MOST_CLASSES = 100_000
_FIELD = re.compile(
    r"(?P<name>[^\W\d]\w*) *\((?P<sizes>[\d, ]*)\) *(?P<dtype>[a-z]+\d*)?(?: *< *(?P<bound>\d+))?"
)
_TARGET = re.compile(
    r"(?:(?P<name>[^\W\d]\w*) +)??(?P<task>[a-z]+)(?: *\((?P<sizes>[\d, ]*)\))?(?: *(?P<classes>\d+))?"
)


class SyntheticField(Struct, frozen=True):
    """An input of synthetic samples; whole numbers are drawn below `bound`."""

    info: FieldInfo
    bound: int = 2

    def __str__(self) -> str:
        below = f" < {self.bound}" if self.info.dtype == "int64" else ""
        return f"{self.info.name} {self.info.shape} {self.info.dtype}{below}"

    @property
    def arguments(self) -> tuple[tuple[int, ...], str, int]:
        """Shape, dtype and bound, as `readers.make_fields` takes them."""
        return self.info.shape, self.info.dtype, self.bound


def parse_fields(text: str) -> tuple[SyntheticField, ...]:
    """Read inputs separated by semicolons, each a name, its shape without the batch, its dtype and a bound.

    Raises DataError.

    >>> [str(field) for field in parse_fields("ids (18,) int64 < 40; mask (18,) bool; x (3, 8, 8)")]
    ['ids (18,) int64 < 40', 'mask (18,) bool', 'x (3, 8, 8) float32']
    """
    fields = []
    for entry in _parts(text):
        match = _FIELD.fullmatch(entry)
        dtype = match and (match["dtype"] or "float32")
        if match is None or dtype not in DTYPES:
            raise DataError(
                f"fields: “{entry}” is not a valid input. Write a name, the shape of a sample and {', '.join(DTYPES)}, "
                f"as "
                "“ids (18,) int64 < 40”, and separate several by semicolons."
            )
        bound = int(match["bound"] or 2)
        if not 0 < bound <= MOST:
            raise DataError(
                f"fields: the bound of “{entry}” must be between 1 and {MOST:,}."
            )
        fields.append(
            SyntheticField(
                FieldInfo(match["name"], _sizes(match["sizes"], entry), dtype), bound
            )
        )
    _check_names([field.info.name for field in fields], "fields")
    return tuple(fields)


def parse_targets(text: str) -> tuple[TargetInfo, ...]:
    """Read targets separated by semicolons: `classes 10`, `values (4,)` or `tokens (18,) 40`.

    Several have their names before that. Raises DataError.

    >>> [(one.name, one.task, one.label_shape) for one in parse_targets("kind classes 3; box values (4,)")]
    [('kind', 'classes', ()), ('box', 'values', (4,))]
    """
    targets = []
    for entry in _parts(text):
        match = _TARGET.fullmatch(entry)
        if match is None or not _fits(match):
            raise DataError(
                f"targets: “{entry}” is not a valid target. Write “classes 10”, “values (4,)” or “tokens (18,) 40”, "
                f"and separate "
                "several by semicolons, each preceded by its name."
            )
        classes = tuple(map(str, range(int(match["classes"] or 0))))
        shape = () if match["task"] == CLASSES else _sizes(match["sizes"], entry)
        targets.append(TargetInfo(match["name"] or "", match["task"], classes, shape))
    names = [target.name for target in targets]
    if len(targets) > 1:
        if "" in names:
            raise DataError(
                "targets: several targets need a name each, as “kind classes 3; box values (4,)”."
            )
        _check_names(names, "targets")
    return tuple(targets)


def text_of(parts: Sequence[SyntheticField]) -> str:
    """Format fields as `parse_fields` reads them."""
    return "; ".join(map(str, parts))


def target_text(target: TargetInfo) -> str:
    """Format targets as `parse_targets` reads them.

    >>> target_text(TargetInfo("", "tokens", ("0", "1"), (18,)))
    'tokens (18,) 2'
    """
    shape = "" if target.task == CLASSES else str(target.label_shape)
    classes = "" if target.task == VALUES else str(len(target.classes))
    return " ".join(filter(None, (target.name, target.task, shape, classes)))


def arguments_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of `readers.make_fields` for the options of a source. Raises DataError."""
    fields = {
        field.info.name: field.arguments for field in parse_fields(options["fields"])
    }
    targets = {
        target.name: (target.task, target.label_shape, len(target.classes))
        for target in parse_targets(options["targets"])
    }
    return {
        "fields": fields,
        "targets": targets,
        "count": options["count"],
        "seed": options["seed"],
    }


def _fits(match: re.Match[str]) -> bool:
    """Return whether a target has what its task needs, and nothing else."""
    required = {
        CLASSES: (False, True),
        VALUES: (True, False),
        TOKENS: (True, True),
    }.get(match["task"])
    has = match["sizes"] is not None, match["classes"] is not None
    return required == has and (
        match["classes"] is None or 0 < int(match["classes"]) <= MOST_CLASSES
    )


def _parts(text: str) -> list[str]:
    return [piece.strip() for piece in text.split(";") if piece.strip()] or [text]


def _sizes(text: str, entry: str) -> tuple[int, ...]:
    sizes = tuple(int(size) for size in text.replace(",", " ").split())
    if not all(sizes):
        raise DataError(f"“{entry}” has a size of 0; sizes must be above 0.")
    return sizes


def _check_names(names: list[str], option: str) -> None:
    if twice := {name for name in names if names.count(name) > 1}:
        raise DataError(
            f"{option}: “{min(twice)}” is named twice. Give each a unique name."
        )
