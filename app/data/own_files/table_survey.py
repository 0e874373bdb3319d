"""Inspect a text table: its encoding, columns and number format, and the classes of its target."""

from __future__ import annotations

import csv
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from msgspec import Struct

from app.data.own_files.encodings import encoding_of
from app.data.own_files.file_survey import FileSurvey, check_class_count
from app.data.own_files.tables import column_names, cut_blank_end, number_of, table_rows
from app.data.spec import CLASSES, VALUES, DataError, TargetInfo
from app.util.formatting import counted
from app.util.frozen import FrozenMap

SEPARATORS = (",", ";", "\t", "|")
# A text column with more distinct values is a name or a remark, used only if chosen.
MOST_TEXTS = 50
# An integer column with at most this many distinct values is a class rather than a value.
MOST_CLASSES = 20
WIDEST = 100_000
NUMERIC = 0.9  # least share of numbers in a column that is numeric
SEEN = 50  # lines that the separator is found with
# What stands for no value among numbers, in lower case; among texts it is a text.
MISSING = frozenset(
    (
        "na",
        "n/a",
        "#n/a",
        "nan",
        "null",
        "none",
        "nil",
        "?",
        "-",
        "--",
        "—",
        ".",
        "missing",
    )
)
_GROUPS = ",.' \u00a0\u202f\u2019"  # signs that group thousands


class NumberFormat(Struct, frozen=True):
    """How the numbers of a table are written: the decimal sign, and the sign between thousands, "" for none."""

    decimal: str = "."
    thousands: str = ""

    def value(self, text: str) -> float | None:
        """Return the number that a cell is, None if it is none."""
        try:
            return number_of(text, self.decimal, self.thousands)
        except ValueError:
            return None


class Column(Struct, frozen=True):
    """The cells of a column. `texts` are the different ones if they are categories; None for numbers."""

    name: str
    cells: tuple[str, ...]
    texts: tuple[str, ...] | None

    @property
    def width(self) -> int:
        """How many input values a cell makes."""
        return 1 if self.texts is None else len(self.texts)


def survey_csv(path: Path, options: Mapping[str, Any]) -> FileSurvey:
    """Inspect a table: columns, their types, and the classes of the target. Raises DataError, OSError."""
    encoding, guess = encoding_of(path, options["encoding"])
    separator = _separator(path, encoding, options["separator"])
    names, cells = _columns(path, encoding, separator, options["header"])
    form, form_note = number_format(
        (cell for column in cells for cell in column), separator, options["decimal"]
    )
    columns = [
        Column(name, tuple(column_cells), _texts(name, column_cells, form, options))
        for name, column_cells in zip(names, cells, strict=True)
    ]
    blank = [index for index, column in enumerate(columns) if not any(column.cells)]
    roles, fields, notes = _roles(path, columns, blank, options)
    targets = roles["targets"]
    classes = {
        index: _classes(
            columns[index],
            form,
            options["task"] if index == targets[0] else _task(names[index], options),
        )
        for index in targets
    }
    notes = [
        *filter(None, (guess, form_note)),
        *notes,
        *_remarks(columns, roles["inputs"], form, options),
    ]
    notes += [
        note
        for index in targets
        if (note := _class_note(columns[index], classes[index], form))
    ]
    inputs = {index: columns[index].texts for index in roles["inputs"]}
    arguments = {
        "separator": separator,
        "header": options["header"],
        "columns": FrozenMap(inputs),
        "targets": FrozenMap(
            {names[index]: (index, texts) for index, texts in classes.items()}
        ),
        "encoding": encoding,
        "decimal": form.decimal,
        "thousands": form.thousands,
    }
    if fields:
        arguments["fields"] = FrozenMap(
            {
                name: _value_places(inputs, field_columns)
                for name, field_columns in fields.items()
            }
        )
    values = tuple(_value_names(names, inputs))
    if len(values) > WIDEST:
        raise DataError(
            f"{path.name} makes {len(values):,} values per row. Remove columns with many different texts."
        )
    if len(cells[0]) == 1:
        raise DataError(f"{path.name} has one row; training needs several.")
    infos = tuple(
        TargetInfo(
            names[index],
            VALUES if texts is None else CLASSES,
            texts or (),
            (1,) if texts is None else (),
        )
        for index, texts in classes.items()
    )
    task = VALUES if classes[targets[0]] is None else CLASSES
    several = infos if len(infos) > 1 else ()
    return FileSurvey(
        arguments,
        task,
        classes[targets[0]] or (),
        values,
        tuple(names),
        tuple(notes),
        several,
    )


def _columns(
    path: Path, encoding: str, separator: str, header: bool
) -> tuple[list[str], list[list[str]]]:
    """Return names and cells of each column; rows of another length are skipped here, and reported on reading."""
    try:
        rows = [row for _, row in table_rows(path, encoding, separator)]
    except csv.Error as error:
        raise DataError(f"{path.name}: {error}.") from error
    _check_quotes(path, encoding, separator, rows)
    if len(rows) < 1 + header:
        raise DataError(
            f"{path.name} has no rows{' below its column names' if rows else ''}."
        )
    names = column_names(rows[0], header)
    if len(names) < 2:
        raise DataError(
            f"{path.name} has one column; a table needs an input and a target. Check the separator."
        )
    complete_rows = [
        row
        for row in (cut_blank_end(row, len(names)) for row in rows[header:])
        if len(row) == len(names)
    ]
    return names, [[row[index] for row in complete_rows] for index in range(len(names))]


def _check_quotes(
    path: Path, encoding: str, separator: str, rows: list[list[str]]
) -> None:
    """Reject a table that ends inside a quotation, which would swallow rows. Raises DataError."""
    if not rows or "\n" not in rows[-1][-1]:
        return
    with path.open(newline="", encoding=encoding) as file:
        table = csv.reader(file, delimiter=separator, strict=True)
        first = 1
        try:
            for _ in table:
                first = table.line_num + 1
        except csv.Error as error:
            if "unexpected end" in str(error):
                raise DataError(
                    f"{path.name}, line {first}: a quotation mark is opened and never closed."
                ) from error


def _separator(path: Path, encoding: str, chosen: str) -> str:
    """Return the chosen separator, or the one by which most of the first lines have as many cells as the first."""
    if chosen != "auto":
        return {"tab": "\t"}.get(chosen, chosen)
    with path.open(newline="", encoding=encoding) as file:
        first = file.readline()
        lines = [first, *islice(file, SEEN)]
    if named := re.fullmatch(r"sep=(.)\s*", first):
        return named[1]

    def fitness(separator: str) -> tuple[float, int]:
        widths = [len(row) for row in csv.reader(lines, delimiter=separator) if row]
        if not widths or widths[0] < 2:
            return 0.0, 0
        return sum(width == widths[0] for width in widths) / len(widths), widths[0]

    return max(SEPARATORS, key=fitness)


def number_format(
    cells: Iterable[str], separator: str, chosen: str = "auto"
) -> tuple[NumberFormat, str]:
    """Return how the numbers among some cells are written, and a sentence if that is not the usual way.

    A comma or a point that cannot stand between thousands is a decimal sign. Where all could, a comma is one if the
    separator is another sign.
    """
    counts, groups = Counter[str](), set[str]()
    for cell in cells:
        if cell.isdecimal():
            continue
        if re.fullmatch(r"[+-]?\d*,\d+([eE][+-]?\d+)?", cell):
            counts[
                "comma or group"
                if re.fullmatch(r"[+-]?[1-9]\d{0,2},\d{3}", cell)
                else "comma"
            ] += 1
        elif re.fullmatch(r"[+-]?\d*\.\d*([eE][+-]?\d+)?", cell):
            counts[
                "point or group"
                if re.fullmatch(r"[+-]?[1-9]\d{0,2}\.\d{3}", cell)
                else "point"
            ] += 1
        elif grouped := re.fullmatch(
            rf"[+-]?\d{{1,3}}([{_GROUPS}])\d{{3}}(\1\d{{3}})*(?:([.,])\d*)?", cell
        ):
            if grouped[1] != grouped[3]:
                groups.add(grouped[1])
                counts.update(
                    {",": ["comma"], ".": ["point"]}.get(grouped[3] or "", ())
                )
                counts.update({",": ["point"], ".": ["comma"]}.get(grouped[1], ()))
    decimal = chosen
    if chosen == "auto":
        undecided = counts["comma"] == counts["point"] == 0
        commas = (
            separator != "," and counts["comma or group"] > counts["point or group"]
        )
        decimal = (
            "," if (commas if undecided else counts["comma"] > counts["point"]) else "."
        )
    if decimal == "." and counts["comma or group"]:
        groups.add(",")
    if decimal == "," and counts["point or group"]:
        groups.add(".")
    thousands = "".join(sorted(groups - {decimal}))
    signs = ["a decimal comma"] * (decimal == ",") + [
        f"thousands grouped by “{sign}”" for sign in thousands
    ]
    return NumberFormat(
        decimal, thousands
    ), f"Numbers are read with {' and '.join(signs)}." if signs else ""


def _roles(
    path: Path, columns: list[Column], blank: list[int], options: Mapping[str, Any]
) -> tuple[dict[str, list[int]], dict[str, list[int]], list[str]]:
    """Return the places of inputs and targets, the columns of each field, and what is left out. Raises DataError."""
    names = [column.name for column in columns]
    full = [index for index in range(len(names)) if index not in blank]
    if not full:
        raise DataError(f"{path.name} has no values below its column names.")
    target = _column_index(options["target"], names) if options["target"] else full[-1]
    targets = [
        target,
        *(_column_index(name, names) for name in options["more_targets"]),
    ]
    if len(set(targets)) < len(targets):
        raise DataError(
            f"A column of {path.name} is named twice as a target: {names[target]}. Remove one."
        )
    fields = _csv_fields(path, options["fields"], names)
    chosen = [_column_index(name, names) for name in options["inputs"]]
    chosen += [
        index
        for field_columns in fields.values()
        for index in field_columns
        if index not in chosen
    ]
    notes = [
        f"{names[index]} is ignored: it is empty."
        for index in blank
        if index not in (*chosen, *targets)
    ]
    if not chosen:
        free = [index for index in full if index not in targets]
        long = [
            index
            for index in free
            if columns[index].texts is not None and columns[index].width > MOST_TEXTS
        ]
        chosen = [index for index in free if index not in long]
        notes += [
            f"{names[index]} is ignored: it has {columns[index].width:,} different texts."
            for index in long
        ]
    if both := [names[index] for index in targets if index in chosen]:
        raise DataError(
            f"{both[0]} is the target and an input of {path.name}. Remove one of the two."
        )
    if not chosen:
        raise DataError(
            f"{path.name} has no input column besides {names[target]}. {' '.join(notes)}".strip()
        )
    if fields and (
        loose := [
            names[index]
            for index in chosen
            if not any(index in field_columns for field_columns in fields.values())
        ]
    ):
        raise DataError(
            f"inputs of {path.name} lists {', '.join(loose)}, which no field contains. Add it to a field."
        )
    return {"inputs": chosen, "targets": targets}, fields, notes


def _csv_fields(path: Path, text: str, names: list[str]) -> dict[str, list[int]]:
    """Return the columns of each input, from “size: width, height; place: city”. Raises DataError."""
    fields: dict[str, list[int]] = {}
    for field_text in filter(None, (piece.strip() for piece in text.split(";"))):
        name, colon, columns = (piece.strip() for piece in field_text.partition(":"))
        if not colon or not name.isidentifier() or name in fields:
            raise DataError(
                f"fields: “{field_text}” is not an input of {path.name}. Write a unique name and its "
                "columns, as “size: "
                "width, height”, and separate several by semicolons."
            )
        fields[name] = [
            _column_index(column.strip(), names) for column in columns.split(",")
        ]
    if len(fields) == 1:
        raise DataError(
            f"fields names one input of {path.name}. Name several, or none."
        )
    return fields


def _value_places(
    inputs: Mapping[int, tuple[str, ...] | None], selected: list[int]
) -> tuple[int, ...]:
    """Return the places of some columns' values among those of all input columns.

    >>> _value_places({0: None, 1: ("a", "b"), 2: None}, [2, 1])
    (3, 1, 2)
    """
    starts, at = {}, 0
    for column_index, texts in inputs.items():
        starts[column_index] = at
        at += len(texts or "1")
    return tuple(
        starts[column] + number
        for column in selected
        for number in range(len(inputs[column] or "1"))
    )


def _value_names(
    names: list[str], inputs: Mapping[int, tuple[str, ...] | None]
) -> Iterable[str]:
    """Name each input value of a row: a column, or a column and one of its categories."""
    for index, texts in inputs.items():
        yield from (
            [names[index]]
            if texts is None
            else [f"{names[index]}={text}" for text in texts]
        )


def _task(name: str, options: Mapping[str, Any]) -> str:
    """Return the task of an additional target."""
    return (
        VALUES
        if name in options["numbers"]
        else CLASSES
        if name in options["categories"]
        else "auto"
    )


def _column_index(name: str, names: list[str]) -> int:
    if name not in names:
        raise DataError(
            f"There is no column “{name}”. There are: {', '.join(names[:20])}."
        )
    return names.index(name)


def _is_numeric(cells: Iterable[str], form: NumberFormat) -> bool:
    """Return whether nine in ten cells that have a value are numbers."""
    present = [cell for cell in cells if cell and cell.lower() not in MISSING]
    return bool(present) and sum(
        form.value(cell) is not None for cell in present
    ) >= NUMERIC * len(present)


def _is_code(cell: str) -> bool:
    """Return whether a cell has leading zeros, as postcodes and article numbers, and no number."""
    return len(cell) > 1 and cell[0] == "0" and cell.isdecimal()


def _texts(
    name: str, cells: list[str], form: NumberFormat, options: Mapping[str, Any]
) -> tuple[str, ...] | None:
    """Return the texts of a column, None for a numeric one."""
    code = any(map(_is_code, cells))
    if name in options["numbers"] or (
        name not in options["categories"] and not code and _is_numeric(cells, form)
    ):
        return None
    return _ordered(set(filter(None, cells)), form)


def _ordered(texts: Iterable[str], form: NumberFormat) -> tuple[str, ...]:
    """Sort numbers by value, then texts alphabetically."""

    def order(text: str) -> tuple[bool, float, str]:
        number = form.value(text)
        return (
            (True, 0.0, text)
            if number is None or math.isnan(number)
            else (False, number, text)
        )

    return tuple(sorted(texts, key=order))


def _classes(column: Column, form: NumberFormat, task: str) -> tuple[str, ...] | None:
    """Return the classes of a target, None for regression. Raises DataError for too many."""
    kinds = set(filter(None, column.cells))
    if task == "auto" and _is_numeric(column.cells, form):
        numbers = {
            cell: form.value(cell) for cell in kinds if cell.lower() not in MISSING
        }
        finite = {
            cell: value
            for cell, value in numbers.items()
            if value is not None and math.isfinite(value)
        }
        integral = all(value.is_integer() for value in finite.values())
        codes = any(map(_is_code, finite))
        task = (
            CLASSES if codes or (integral and len(finite) <= MOST_CLASSES) else VALUES
        )
        kinds = set(finite)  # another text is a cell that cannot be read
    if task == VALUES:
        return None
    check_class_count(f"“{column.name}”", len(kinds), sum(map(bool, column.cells)))
    return _ordered(kinds, form)


def _class_note(
    column: Column, classes: tuple[str, ...] | None, form: NumberFormat
) -> str:
    """Say that numbers are read as classes, and which of those are one number in two notations."""
    values = [form.value(text) for text in classes or ()]
    if not classes or None in values:
        return ""
    note = f"The whole numbers of {column.name} are read as {counted(len(classes), 'class', 'classes')}"
    double = next(
        (
            (a, b)
            for a, b in zip(classes, classes[1:], strict=False)
            if form.value(a) == form.value(b)
        ),
        None,
    )
    return (
        f"{note}: “{double[0]}” and “{double[1]}” are two of them."
        if double
        else f"{note}; task sets another use."
    )


def _remarks(
    columns: list[Column],
    inputs: Iterable[int],
    form: NumberFormat,
    options: Mapping[str, Any],
) -> Iterable[str]:
    """Yield what is odd about the input columns, and about a header that has numbers."""
    names = [column.name for column in columns]
    if options["header"] and all(form.value(name) is not None for name in names):
        yield f"The first row ({', '.join(names[:3])}) is read as column names; disable header if it has values."
    for index in inputs:
        column = columns[index]
        present = [cell for cell in column.cells if cell]
        if len(set(present)) == 1 and len(present) > 1:
            yield f"{column.name} is {' '.join(present[0].split())} in every row."
        elif (
            column.texts is not None
            and any(map(_is_code, present))
            and column.name not in options["categories"]
        ):
            yield f"{column.name} has leading zeros, so it is read as categories; to read it as numbers, set numbers."
        elif column.texts is None and _counts_rows(
            [form.value(cell) for cell in present]
        ):
            yield f"{column.name} counts the rows; leave it out if it has no other meaning."


def _counts_rows(values: list[float | None]) -> bool:
    """Return whether values are consecutive integers in the order of the rows."""
    first = values[0] if len(values) > 2 else None
    return first is not None and values == [
        first + number for number in range(len(values))
    ]
