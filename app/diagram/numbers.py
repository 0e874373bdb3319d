"""Numbers of layers from a file: read and checked, and shown on any drawing as a colour and a text."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from app.diagram.diagram import Box, Drawing, Group, Scale
from app.util.errors import CodedError
from app.util.formatting import counted, figure
from app.util.frozen import FrozenMap

LARGEST_FILE = 4 * 1024 * 1024  # bytes
LONGEST = 40  # letters of a value that an error repeats
NEAR = 3  # names that are proposed in place of an unknown one
Part = TypeVar("Part", Box, Group)
FORMS = 'a line "conv1,0.5" for each layer, or JSON such as {"conv1": 0.5}'


class NumbersError(CodedError, ValueError):
    """A file of numbers that cannot be shown; the message names the file, the line, and what to do."""

    exit_code = 2


class Numbers(Struct, frozen=True):
    """A number for each layer, by the path of its module; `name` is their heading."""

    name: str
    values: FrozenMap[str, float]

    @property
    def low(self) -> float:
        return min(self.values.values())

    @property
    def high(self) -> float:
        return max(self.values.values())

    @property
    def scale(self) -> Scale:
        """The legend: what the numbers are, and the texts of the least and the greatest."""
        return Scale(self.name, figure(self.low), figure(self.high))

    def place(self, value: float) -> float:
        """Return where a number is between the least, 0, and the greatest, 1."""
        low, high = self.low, self.high
        return (value / 2 - low / 2) / (high / 2 - low / 2) if high > low else 1.0

    def shown(self, paths: Iterable[str]) -> tuple[float, str] | None:
        """Return the place and the text of what stands for these paths; None where the file has no number of them.

        Where there are several, the text is their range, and the place that of the greatest.
        """
        numbers = [self.values[path] for path in paths if path in self.values]
        if not numbers:
            return None
        texts = dict.fromkeys((figure(min(numbers)), figure(max(numbers))))
        return self.place(max(numbers)), " to ".join(texts)


def read(file: Path, known: Iterable[str]) -> Numbers:
    """Read the numbers of a file, CSV of two columns or a JSON object, for the layers at the `known` paths.

    A first line of a CSV without a number heads its columns, and names the numbers; else the file's name does. Raises
    NumbersError.
    """
    try:
        size = file.stat().st_size
        if size > LARGEST_FILE:
            raise NumbersError(
                f"{file.name} has {size / 1024**2:.0f} MiB, and a file of numbers at most "
                f"{LARGEST_FILE // 1024**2}. Leave one number for each layer."
            )
        text = file.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise NumbersError(f"{file}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise NumbersError(
            f"{file.name} is not a text in UTF-8. Save it so: {FORMS}."
        ) from error
    name, rows = (
        _json_rows(file, text)
        if text.lstrip().startswith("{")
        else _csv_rows(file, text)
    )
    paths = frozenset(known)
    values: dict[str, float] = {}
    for line, path, value in rows:
        where = f"{file.name}, line {line}"
        if path not in paths:
            raise NumbersError(f"{where}: {_unknown(path, paths)}")
        if path in values:
            raise NumbersError(f"{where}: {path} is there twice. Leave one of them.")
        values[path] = _finite(value, path, where)
    if not values:
        raise NumbersError(f"{file.name} has no numbers. Write {FORMS}.")
    return Numbers(name or file.stem, FrozenMap(values))


def _unknown(path: str, known: frozenset[str]) -> str:
    near = get_close_matches(path, known, NEAR, 0.5) or sorted(known)[:NEAR]
    return (
        f"there is no layer {path[:LONGEST]!r}. Write the path of one, such as {', '.join(near)}."
        if near
        else "the network has no layers. Draw it first."
    )


def _finite(value: object, path: str, where: str) -> float:
    try:
        number = float(value) if isinstance(value, str | int | float) else math.nan
    except (ValueError, OverflowError):
        number = math.nan
    if isinstance(value, bool) or not math.isfinite(number):
        raise NumbersError(
            f"{where}: {str(value)[:LONGEST]!r} of {path} is not a finite number. Write one, such as 0.5, or leave the "
            "layer out."
        )
    return number


Row = tuple[int, str, object]


def _csv_rows(file: Path, text: str) -> tuple[str, Iterator[Row]]:
    """Return the heading of the numbers, and line, path and text of each."""
    first = text.partition("\n")[0]
    delimiter = next((mark for mark in ("\t", ";") if mark in first), ",")
    reader = csv.reader(text.splitlines(), delimiter=delimiter)
    rows: list[Row] = []
    name = ""
    try:
        for cells in reader:
            trimmed = [cell.strip() for cell in cells]
            if not any(trimmed):
                continue
            if len(trimmed) != 2:
                raise NumbersError(
                    f"{file.name}, line {reader.line_num}: {counted(len(trimmed), 'column')}, not two: a path and its "
                    f"number. Write {FORMS}."
                )
            rows.append((reader.line_num, trimmed[0], trimmed[1]))
    except csv.Error as error:
        raise NumbersError(
            f"{file.name}, line {reader.line_num}: {error}. Write {FORMS}."
        ) from error
    if rows and _is_heading(str(rows[0][2])):
        name = str(rows[0][2])
        del rows[0]
    return name, iter(rows)


def _is_heading(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return bool(cell)
    return False


def _json_rows(file: Path, text: str) -> tuple[str, Iterator[Row]]:
    """Return no heading, and line, path and value of each number."""
    try:
        pairs = json.loads(text, object_pairs_hook=list)
    except (ValueError, RecursionError) as error:
        line = getattr(error, "lineno", 1)
        reason = getattr(error, "msg", "it is nested too deeply")
        raise NumbersError(
            f"{file.name}, line {line}: this is not JSON: {reason}. Write {FORMS}."
        ) from error
    return "", _with_lines(text, pairs)


def _with_lines(text: str, pairs: list[tuple[str, object]]) -> Iterator[Row]:
    at = 0
    for path, value in pairs:
        start = text.find(json.dumps(path, ensure_ascii=False), at)
        at = start if start >= 0 else at  # a key may be written with escapes
        yield text.count("\n", 0, at) + 1, path, value
        at += 1


def painted(drawing: Drawing, numbers: Numbers) -> Drawing:
    """Return the drawing with the numbers of its boxes and groups, and their scale; nothing else of it differs."""

    def with_number(part: Part) -> Part:
        shown = numbers.shown(part.paths)
        return _marked(part, *shown) if shown is not None else part

    return replace(
        drawing,
        boxes=tuple(map(with_number, drawing.boxes)),
        groups=tuple(map(with_number, drawing.groups)),
        scale=numbers.scale,
    )


def _marked(part: Part, place: float, text: str) -> Part:
    tags = (*(f"{text} · {tag}" for tag in part.tags), text)
    return replace(part, tags=tags, heat=place)
