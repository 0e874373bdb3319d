"""Tables as programs of several countries export them, with the values that pandas reads of them."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from app.data.config import DataConfig
from app.data.loaders import read_files
from app.data.sources import DataError
from app.util.frozen import FrozenMap
from tests.slow.odd_outcome import Outcome

ROWS = 40


@dataclass(frozen=True)
class Kind:
    """The bytes of a table whose last column is the target; how pandas is to read it; and options of ours.

    `refused` are the words that name why the table cannot be used; `bad` is the first row that cannot be read.
    """

    content: bytes
    pandas: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    refused: str = ""
    bad: str = ""
    said: str = ""


def _comma(value: float, digits: int = 2) -> str:
    return f"{value:.{digits}f}".replace(".", ",")


def _values() -> list[tuple[float, float, str]]:
    drawn = random.Random(1)
    return [
        (drawn.uniform(-3, 3), drawn.uniform(1000, 9000), ("Käse", "Kröte")[n % 2])
        for n in range(ROWS)
    ]


def _rows(
    separator: str = ",",
    end: str = "\n",
    number: Callable[[float], str] = "{:.2f}".format,
    labels: str = "{}",
    head: str = "a,b,c",
) -> str:
    lines = [
        separator.join((number(a), number(b), labels.format(c)))
        for a, b, c in _values()
    ]
    return end.join((head.replace(",", separator), *lines, ""))


def _grouped(group: str, decimal: str) -> Callable[[float], str]:
    def write(value: float) -> str:
        return (
            f"{value:,.2f}".replace(",", "\0")
            .replace(".", decimal)
            .replace("\0", group)
        )

    return write


def _lines(head: str, row: Callable[[int], str]) -> bytes:
    return "\n".join((head, *(row(number) for number in range(ROWS)), "")).encode()


def table_kinds() -> dict[str, Kind]:
    """Return the kinds by name."""
    semicolon = {"sep": ";", "decimal": ","}
    german, plain = _rows(";", "\r\n", _comma), _rows()
    kinds = {
        f"{encoding}, commas": Kind(plain.encode(encoding), {"encoding": encoding})
        for encoding in (
            "utf-8",
            "utf-8-sig",
            "utf-16",
            "utf-16-le",
            "utf-16-be",
            "utf-32",
            "cp1252",
            "latin-1",
        )
    }
    kinds |= {
        f"{encoding}, semicolons, decimal comma": Kind(
            german.encode(encoding), {**semicolon, "encoding": encoding}
        )
        for encoding in ("utf-8", "utf-8-sig", "utf-16", "cp1252")
    }
    kinds |= {
        f"{encoding}, chosen": Kind(
            plain.encode(encoding), {"encoding": encoding}, {"encoding": encoding}
        )
        for encoding in (
            "cp437",
            "cp850",
            "mac-roman",
            "cp1250",
            "iso8859-15",
            "utf-16-le",
        )
    }
    words = {
        "cp1251": ("Москва", "Казань"),
        "koi8-r": ("Москва", "Казань"),
        "cp932": ("東京", "大阪"),
        "gb18030": ("北京", "上海"),
        "big5": ("台北", "高雄"),
        "cp949": ("서울", "부산"),
    }
    for encoding, labels in words.items():
        text = "\n".join(("x,y", *(f"{n}.5,{labels[n % 2]}" for n in range(ROWS))))
        kinds[f"{encoding}, guessed"] = Kind(
            text.encode(encoding), {"encoding": encoding}, said="which is a guess"
        )
    return kinds | {
        "tab": Kind(_rows("\t").encode(), {"sep": "\t"}),
        "bar": Kind(_rows("|").encode(), {"sep": "|"}),
        "UTF-16 with tabs": Kind(
            _rows("\t").encode("utf-16"), {"sep": "\t", "encoding": "utf-16"}
        ),
        "sep= of Excel": Kind(
            ("sep=;\r\n" + german).encode(), {**semicolon, "skiprows": 1}
        ),
        "line ends of Windows": Kind(_rows(end="\r\n").encode()),
        "line ends of old Macs": Kind(_rows(end="\r").encode()),
        "all quoted": Kind(_rows(number='"{:.2f}"'.format, labels='"{}"').encode()),
        "spaces around": Kind(
            _rows(" , ").replace("\n", " \n").encode(),
            {"sep": r"\s*,\s*", "engine": "python"},
        ),
        "1,234.50 in quotes": Kind(
            _rows(number=lambda v: f'"{v:,.2f}"').encode(), {"thousands": ","}
        ),
        "1.234,50": Kind(
            _rows(";", number=_grouped(".", ",")).encode(),
            {**semicolon, "thousands": "."},
        ),
        "1 234,50": Kind(
            _rows(";", number=_grouped(" ", ",")).encode(),
            {**semicolon, "thousands": " "},
        ),
        "1'234.50": Kind(
            _rows(";", number=_grouped("'", ".")).encode(),
            {"sep": ";", "thousands": "'"},
        ),
        "narrow blanks": Kind(
            _rows(";", number=_grouped("\u202f", ",")).encode(),
            {
                **semicolon,
                "converters": dict.fromkeys(
                    "ab", lambda t: float(t.replace("\u202f", "").replace(",", "."))
                ),
            },
        ),
        "three decimals, commas": Kind(
            _rows(";", number=lambda v: _comma(v, 3)).encode(), semicolon
        ),
        "exponents": Kind(_rows(number="{:.3e}".format).encode()),
        "plus signs": Kind(_rows(number="{:+.2f}".format).encode()),
        "decimal comma in quotes": Kind(
            _rows(number=lambda v: f'"{_comma(v)}"').encode(), {"decimal": ","}
        ),
        "trailing commas": Kind(
            (plain.replace("\n", ",\n")).encode(),
            {"usecols": [0, 1, 2]},
            said="is empty",
        ),
        "commas at the end of rows": Kind(
            plain.replace("\n", ",\n").replace("a,b,c,", "a,b,c").encode(),
            {"index_col": False},
        ),
        "blank lines": Kind(plain.replace("\n", "\n\n").encode()),
        "rows of commas": Kind((plain + ",,\n,,\n").encode(), {"nrows": ROWS}),
        "names twice": Kind(plain.replace("a,b,c", "a,a,c").encode()),
        "names missing": Kind(plain.replace("a,b,c", ",,c").encode()),
        "names of Python": Kind(plain.replace("a,b,c", "lambda,a.b c,class").encode()),
        "no names": Kind(
            plain.removeprefix("a,b,c\n").encode(), {"header": None}, {"header": False}
        ),
        "numbers as names": Kind(
            _lines("1,2,3", lambda n: f"{n}.5,{n}.25,{n % 2}"),
            said="is read as column names",
        ),
        "labels 0.0 and 1.0": Kind(
            _lines("x,y", lambda n: f"{n}.5,{n % 2}.0"), said="are read as 2 classes"
        ),
        "labels from 1": Kind(
            _lines("x,y", lambda n: f"{n}.5,{1 + n % 3}"), said="are read as 3 classes"
        ),
        "labels -1 and 1": Kind(
            _lines("x,y", lambda n: f"{n}.5,{2 * (n % 2) - 1}"),
            said="are read as 2 classes",
        ),
        "labels True and False": Kind(_lines("x,y", lambda n: f"{n}.5,{n % 2 == 0}")),
        "labels 01 and 1": Kind(
            _lines("x,y", lambda n: f"{n}.5,{'01' if n % 2 else '1'}"),
            {"dtype": {"y": str}},
            said="are two of them",
        ),
        "a target of decimals": Kind(_lines("x,y", lambda n: f"{n}.5,{n}.75")),
        "text in quotes": Kind(
            _lines('x,"two\nlines",y', lambda n: f'{n}.5,{n}.25,"a ""{n % 2}"", b\nc"')
        ),
        "postcodes": Kind(
            _lines("zip,y", lambda n: f"0{1000 + n % 3},{n % 2}"),
            {"dtype": {"zip": str}},
            said="has leading zeros",
        ),
        "a constant column": Kind(
            _lines("x,z,y", lambda n: f"1.0,{n}.5,{n % 2}"),
            said="x is 1.0 in every row",
        ),
        "a column that counts": Kind(
            _lines("x,id,y", lambda n: f"{n}.5,{n},{n % 2}"), said="id counts the rows"
        ),
        "NA": Kind(
            _lines("x,y", lambda n: f"{'NA' if n == 3 else n},{n % 2}"),
            bad="row 5, x: 'NA' is not a number",
        ),
        "empty cell": Kind(
            _lines("x,y", lambda n: f"{'' if n == 3 else n},{n % 2}"),
            bad="row 5, x is empty",
        ),
        "inf": Kind(
            _lines("x,y", lambda n: f"{'inf' if n == 3 else n},{n % 2}"),
            bad="row 5, x: inf is not finite",
        ),
        "1_000": Kind(
            _lines("x,y", lambda n: f"{'1_000' if n == 3 else n},{n % 2}"),
            bad="row 5, x: '1_000' is not",
        ),
        "a short row": Kind(
            _lines("x,z,y", lambda n: f"{n},1" if n == 3 else f"{n},1,{n % 2}"),
            bad="row 5: 2 fields",
        ),
        "an empty label": Kind(
            _lines("x,y", lambda n: f"{n},{'' if n == 3 else n % 2}"),
            bad="row 5, y is empty",
        ),
        "names alone": Kind(b"x,y\n", refused="no rows below its column names"),
        "one row": Kind(b"x,y\n1.0,0\n", refused="has one row"),
        "one column": Kind(b"x\n1\n2\n", refused="has one column"),
        "an open quotation": Kind(
            plain.encode() + b'1,2,"a\n' + plain.encode(), refused="never closed"
        ),
        "a workbook": Kind(
            b"PK\x03\x04" + bytes(40), refused="is a zip archive or an Excel workbook"
        ),
        "gzip": Kind(b"\x1f\x8b\x08" + bytes(40), refused="is compressed with gzip"),
        "another encoding chosen": Kind(
            plain.encode("cp1252"),
            options={"encoding": "utf-8"},
            refused="is not UTF-8",
        ),
    }


def check_table(name: str, folder: Path) -> Outcome:
    """Write a table of this kind, read it, and compare columns and labels with those of pandas."""
    kind, path = table_kinds()[name], folder / "t.csv"
    path.write_bytes(kind.content)
    options = FrozenMap({"standardise": False, **kind.options})
    data = DataConfig("file.csv", path=str(path), options=options, bad="skip")
    try:
        read = read_files(data, lambda *_: None)
    except DataError as error:
        right = bool(kind.refused) and kind.refused in str(error)
        return Outcome(name, str(error), "" if right else f"refused: {error}")
    if kind.refused:
        return Outcome(name, "", f"read, not refused by “{kind.refused}”")
    spec = read.spec
    if kind.bad or spec.bad:
        right = (
            bool(kind.bad) and len(spec.bad) == 1 and spec.bad[0].startswith(kind.bad)
        )
        return Outcome(
            name, "; ".join(spec.bad), "" if right else f"unreadable: {spec.bad}"
        )
    notes = " ".join(spec.notes)
    fault = _difference(kind, path, read) or (
        "" if kind.said in notes else f"said: {notes}"
    )
    return Outcome(
        name,
        f"{spec.count} rows, {len(spec.columns)} values and label as pandas; {notes}",
        fault,
    )


def _difference(kind: Kind, path: Path, read: Any) -> str:
    """Return what pandas reads otherwise, "" for nothing."""
    import pandas

    frame = pandas.read_csv(path, **{"keep_default_na": False, **kind.pandas})
    spec, last = read.spec, frame.columns[-1]
    numbers = [
        column for column in frame.columns[:-1] if frame[column].dtype.kind in "iuf"
    ]
    inputs = read.inputs.double().numpy()
    if len(frame) != len(inputs):
        return f"{len(inputs)} rows, pandas reads {len(frame)}"
    if len(numbers) == len(frame.columns) - 1:
        theirs = frame[numbers].to_numpy(np.float64)
    else:  # categories of one text column
        theirs = np.stack(
            [frame.iloc[:, 0] == one.partition("=")[2] for one in spec.columns], 1
        ).astype(np.float64)
    if inputs.shape != theirs.shape or not np.allclose(inputs, theirs, rtol=1e-6):
        return f"inputs {inputs[0].tolist()}, pandas reads {theirs[0].tolist()}"
    if spec.task == "values":
        return (
            ""
            if np.allclose(read.labels[:, 0], frame[last], rtol=1e-6)
            else "other targets than pandas"
        )
    ours = [spec.classes[number] for number in read.labels.tolist()]
    return (
        ""
        if _same(ours, frame[last].tolist())
        else f"labels {ours[:3]}, pandas reads {frame[last].tolist()[:3]}"
    )


def _same(ours: list[str], theirs: list[Any]) -> bool:
    """Return whether labels are equal, numbers by their value."""
    return all(
        own == str(their) or float(own) == float(their)
        for own, their in zip(ours, theirs, strict=True)
    )
