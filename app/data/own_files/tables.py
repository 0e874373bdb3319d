"""Read a text table into tensors. The exported `train.py` contains these functions verbatim.

torch is imported at the top since the code runs alone in that script: import this module lazily.
"""

import csv
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch


def table_rows(
    path: Path, encoding: str, separator: str
) -> Iterator[tuple[int, list[str]]]:
    """Yield the number of the last line and the cells of each row that is not blank. Cells are stripped.

    The line `sep=;` that Excel writes first is left out. Raises csv.Error, UnicodeDecodeError.
    """
    with path.open(newline="", encoding=encoding) as file:
        table = csv.reader(file, delimiter=separator)
        for row in table:
            cells = [cell.strip() for cell in row]
            if any(cells) and not (
                table.line_num == 1 and separator.join(row) == f"sep={separator}"
            ):
                yield table.line_num, cells


def column_names(row: Sequence[str], header: bool) -> list[str]:
    """Return unique names of columns: of the header if it is one; "column 3" and "x 2" where it has none or the same.

    >>> column_names(["x", "", "x"], True), column_names(["1", "2"], False)
    (['x', 'column 2', 'x 2'], ['column 1', 'column 2'])
    """
    names: list[str] = []
    for index, text in enumerate(row, 1):
        name = first = (text if header else "") or f"column {index}"
        number = 1
        while name in names or (number > 1 and name in row):
            number += 1
            name = f"{first} {number}"
        names.append(name)
    return names


def cut_blank_end(row: list[str], width: int) -> list[str]:
    """Return a row without the empty cells that a separator at its end makes."""
    return row if any(row[width:]) else row[:width]


def number_of(text: str, decimal: str = ".", thousands: str = "") -> float:
    """Parse a number as spreadsheets write it: with this decimal sign, and thousands grouped by one of these signs.

    Raises ValueError.

    >>> number_of("1.234,5", ",", "."), number_of("1e3"), number_of("1,234", ".", ",")
    (1234.5, 1000.0, 1234.0)
    """
    text = text.replace("\u2212", "-")
    if thousands:
        sign = re.escape(thousands)
        if re.fullmatch(
            rf"[+-]?\d{{1,3}}([{sign}]\d{{3}})+({re.escape(decimal)}\d*)?", text
        ):
            text = re.sub(f"[{sign}]", "", text)
    if decimal != ".":
        text = text.replace(".", "_").replace(decimal, ".")
    if "_" in text:  # which Python would leave out
        raise ValueError(f"{text!r} is not a number")
    return float(text)


def read_csv(
    path: Path,
    separator: str,
    header: bool,
    columns: Mapping[int, Sequence[str] | None],
    targets: Mapping[str, tuple[int, Sequence[str] | None]],
    fields: Mapping[str, Sequence[int]] | None = None,
    encoding: str = "utf-8-sig",
    decimal: str = ".",
    thousands: str = "",
) -> tuple[Any, Any, list[str]]:
    """Read a text table: inputs (N, values), and class ids (N,) or regression targets (N, 1).

    `columns` are the places of the inputs: a number each, or one value for each of the texts that are named. `targets`
    are the place of each target and its texts, None for numbers; the labels of several are a dictionary by name.
    `fields` are the places of the values of several inputs, which are a dictionary then.
    """
    inputs: list[list[float]] = []
    labels: dict[str, list[float]] = {name: [] for name in targets}
    ids = {
        name: {text: i for i, text in enumerate(texts or ())}
        for name, (_, texts) in targets.items()
    }
    bad: list[str] = []
    names: list[str] = []
    for line, cells in table_rows(path, encoding, separator):
        if not names:
            names = column_names(cells, header)
            if header:
                continue
        row = cut_blank_end(cells, len(names))
        if len(row) != len(names):
            bad.append(f"row {line}: {len(row)} fields instead of {len(names)}")
            continue
        try:
            values = [
                value
                for at, texts in columns.items()
                for value in cell_values(row[at], texts, names[at], decimal, thousands)
            ]
            row_labels = {}
            for name, (index, texts) in targets.items():
                text = row[index]
                if texts is None:
                    row_labels[name] = cell_values(
                        text, None, names[index], decimal, thousands
                    )[0]
                elif text in ids[name]:
                    row_labels[name] = ids[name][text]
                else:
                    raise ValueError(
                        f"{names[index]}: {text!r} is not a class"
                        if text
                        else f"{names[index]} is empty"
                    )
        except ValueError as error:
            bad.append(f"row {line}, {error}")
            continue
        inputs.append(values)
        for name, value in row_labels.items():
            labels[name].append(value)
    known_all = {name: torch.tensor(values) for name, values in labels.items()}
    for name, (_, texts) in targets.items():
        if texts is None:
            known_all[name] = torch.tensor(labels[name], dtype=torch.float32).unsqueeze(
                1
            )
    read = torch.tensor(inputs, dtype=torch.float32)
    named_inputs = (
        {name: read[:, list(positions)] for name, positions in (fields or {}).items()}
        if len(read)
        else {}
    )
    return named_inputs or read, alone(known_all), bad


def alone(parts: dict[str, Any]) -> Any:
    """Return inputs or labels by name; a single one without its name."""
    return parts if len(parts) > 1 else next(iter(parts.values()))


def cell_values(
    text: str,
    texts: Sequence[str] | None,
    column: str,
    decimal: str = ".",
    thousands: str = "",
) -> list[float]:
    """Parse a cell of a column as a number, or one-hot encode it. Raises ValueError that names the column."""
    if texts is not None:
        if text not in texts:
            raise ValueError(
                f"{column}: {text!r} is not one of its texts"
                if text
                else f"{column} is empty"
            )
        return [float(text == other) for other in texts]
    try:
        value = number_of(text, decimal, thousands)
    except ValueError:
        raise ValueError(
            f"{column}: {text!r} is not a number" if text else f"{column} is empty"
        ) from None
    if not math.isfinite(value):
        raise ValueError(f"{column}: {text} is not finite")
    return [value]
