"""Numbers of layers from a file: what is read, what is refused with line and cure, and what a drawing shows of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.diagram.diagram import Box, Drawing, Group
from app.diagram.numbers import LARGEST_FILE, NumbersError, painted, read

KNOWN = frozenset(("conv1", "block.fc", "größe", "block"))


def test_csv_and_json_say_the_same(tmp_path: Path) -> None:
    table, data = tmp_path / "ms.csv", tmp_path / "ms.json"
    table.write_bytes("\ufeffconv1;0.5\r\n\r\ngröße; -2e3\r\n".encode())
    data.write_text('{"conv1": 0.5, "gr\\u00f6\\u00dfe": -2000}')
    assert read(table, KNOWN) == read(data, KNOWN)
    assert read(table, KNOWN).name == "ms"


def test_a_heading_names_the_numbers(tmp_path: Path) -> None:
    file = tmp_path / "ms.csv"
    file.write_text("layer,latency in ms\nconv1,0.5\nblock,2\n")
    numbers = read(file, KNOWN)
    assert numbers.name == numbers.scale.caption == "latency in ms"
    assert (numbers.scale.low, numbers.scale.high) == ("0.500", "2.00")


@pytest.mark.parametrize(
    ("name", "content", "parts"),
    [
        ("n.csv", "conv1,1\n\nconv,2", ("line 3", "'conv'", "such as conv1")),
        ("n.csv", "conv1,1\nblock,fast", ("line 2", "'fast' of block", "0.5")),
        ("n.csv", "conv1,nan", ("line 1", "'nan' of conv1", "leave the layer out")),
        ("n.csv", "conv1,1,2", ("line 1", "3 columns, not two")),
        ("n.csv", "conv1,1\nconv1,2", ("line 2", "twice", "Leave one")),
        ("n.csv", "layer,ms\n", ("no numbers", 'a line "conv1,0.5"')),
        ("n.json", '{"conv1": 1,\n "block": NaN}', ("line 2", "'nan' of block")),
        ("n.json", '{"conv1": 1,\n "conv1": 2}', ("line 2", "twice")),
        ("n.json", '{"conv1": 1,\n "block": true}', ("line 2", "'True' of block")),
        ("n.json", '{"conv1": 1e999}', ("line 1", "finite")),
        ("n.json", '{"block": {"fc": 1}}', ("line 1", "of block is not")),
        ("n.json", '{"conv1": 1,\n "block": ', ("line 2", "not JSON")),
        ("n.json", '{"a":' * 100_000, ("not JSON",)),
        ("n.csv", b"\xff\xfe", ("UTF-8",)),
        ("n.csv", b"\0" * (LARGEST_FILE + 1), ("4 MiB", "one number for each layer")),
    ],
)
def test_what_cannot_be_shown_is_refused_with_line_and_cure(
    tmp_path: Path, name: str, content: str | bytes, parts: tuple[str, ...]
) -> None:
    file = tmp_path / name
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(NumbersError) as refused:
        read(file, KNOWN)
    assert all(part in str(refused.value) for part in ("n.", *parts)), refused.value


def test_a_layer_that_stands_for_several_shows_their_range(tmp_path: Path) -> None:
    file = tmp_path / "n.json"
    file.write_text('{"b.0": 1, "b.1": 3, "b": 5, "tiny": -1e308, "huge": 1e308}')
    paths = ("b.0", "b.1", "b", "tiny", "huge", "none")
    drawing = Drawing(
        (
            Box("row", "b ×2", paths=("b.0", "b.1"), tags=("20 parameters",)),
            Box("low", "tiny", paths=("tiny",)),
            Box("high", "huge", paths=("huge",)),
            Box("other", "none", paths=("none",), group="g"),
        ),
        groups=(Group("g", "b", paths=("b",)),),
    )
    shown = painted(drawing, read(file, paths))
    row, low, high, other = shown.boxes
    assert row.tags == ("1.00 to 3.00 · 20 parameters", "1.00 to 3.00")
    assert (low.heat, high.heat, other.heat) == (0.0, 1.0, None)
    assert other == drawing.boxes[3] and shown.groups[0].tags == ("5.00",)
