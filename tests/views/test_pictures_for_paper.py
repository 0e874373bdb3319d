"""Pictures are laid out for paper by Tapedeck itself: sizes, fonts, the canvas's arrangement, TikZ."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest
from PySide6.QtGui import QImage
from PySide6.QtSvg import QSvgRenderer

from app.cli import nets
from app.diagram.diagram import Arrow, Box, Chip, Drawing, Frame
from app.graphviz_export import (
    ExportError,
    GraphvizError,
    NoGraphvizError,
    has_dot,
    render,
)
from app.project import picture_file
from app.project.file import read
from app.util.frozen import FrozenMap
from app.util.resources import path as resource_path
from app.views.pictures.headless_pictures import first_that_fits
from app.views.pictures.picture import write
from app.views.pictures.printing.paper import BODY, PAPERS, POINT, Choice, Words
from app.views.pictures.printing.paper import Frame as FrameMark
from app.views.pictures.printing.plate import printed
from app.views.pictures.printing.tikz import latex

CENTIMETRES = {"column": 8.5, "page": 17.0, "slide": 33.87}


def chain(count: int = 12) -> Drawing:
    boxes = tuple(
        Box(str(n), f"conv{n}", "Conv2d 32→64, 3×3", ("18,496 params",), "conv", "call")
        for n in range(count)
    )
    arrows = tuple(Arrow(str(n), str(n + 1), "N×64×8×8") for n in range(count - 1))
    return Drawing(boxes, arrows, title="a chain")


@pytest.fixture(scope="module")
def u_net() -> Drawing:
    return nets.drawing(read(resource_path("examples", "U-Net.tape")), "as drawn")


@pytest.mark.parametrize("purpose", list(PAPERS))
def test_a_picture_has_its_size_on_paper_with_text_of_six_points(qapp, purpose) -> None:
    sheet = printed(chain(), Choice(purpose))
    assert sheet.width / POINT == pytest.approx(CENTIMETRES[purpose], abs=0.01)
    assert sheet.text >= 6.0 and sheet.fits
    if purpose == "slide":
        assert sheet.width / sheet.height == pytest.approx(16 / 9)
    assert (
        min(mark.size for mark in sheet.plate.marks if isinstance(mark, Words)) == BODY
    )
    for mark in sheet.plate.marks:
        if isinstance(mark, FrameMark):
            assert mark.x >= 0 and mark.x + mark.width <= sheet.plate.width


@pytest.mark.parametrize("boxes", [2, 40])
def test_a_heading_is_above_the_picture_whole_and_in_the_same_size(
    qapp, boxes: int
) -> None:
    title = "What a first net learns of ten digits, and why it forgets all of them " * 2
    plain = printed(chain(boxes), Choice("page"))
    sheet = printed(chain(boxes), Choice("page", heading=(title.strip(), "Name: ___")))
    count = len(sheet.plate.marks) - len(plain.plate.marks)
    heading, rest = sheet.plate.marks[:count], sheet.plate.marks[count:]
    assert " ".join(row.text for row in heading) == f"{title.strip()} Name: ___"
    *rows, below = [row.size * sheet.scale for row in heading]
    assert len(rows) > 1 and below >= 8.5
    assert rows == pytest.approx([15.0] * len(rows), abs=0.5 * sheet.scale)
    for row in heading:
        assert row.left * sheet.scale + sheet.x >= 0
        assert (row.left + row.width) * sheet.scale + sheet.x <= sheet.width
    boxes_below = [mark.y for mark in rest if isinstance(mark, FrameMark)]
    assert heading[-1].y < min(boxes_below)
    assert sheet.width == plain.width and sheet.scale == plain.scale
    assert sheet.height > plain.height


def test_files_are_the_program_s_own_although_dot_is_there(
    qapp, tmp_path: Path, monkeypatch
) -> None:
    (tmp_path / "dot").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "dot").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    made = {
        form: write(chain(), tmp_path / f"net.{form}", Choice("column")).path
        for form in ("svg", "pdf", "png")
    }
    root = ElementTree.parse(made["svg"]).getroot()
    assert root.get("width") == "240.94pt" and QSvgRenderer(str(made["svg"])).isValid()
    # Text is outlined: no font is named that another machine may lack. Its letters can still be searched.
    assert not list(
        root.iter("{http://www.w3.org/2000/svg}text")
    ) and "font" not in made["svg"].read_text("utf-8")
    assert root.get("stroke") == "none", (
        "else ImageMagick paints each letter with a stroke as thick as it is large"
    )
    assert 'aria-label="Conv2d 32→64, 3×3"' in made["svg"].read_text("utf-8")
    pdf = made["pdf"].read_bytes()
    assert b"/FontFile" in pdf, "a font of the PDF is not embedded"
    assert b"/MediaBox [0 0 241.0" in pdf  # whole points
    image = QImage(str(made["png"]))
    assert image.width() / image.dotsPerMeterX() * 100 == pytest.approx(8.5, abs=0.02)
    corners = (
        (0, 0),
        (image.width() - 1, 0),
        (0, image.height() - 1),
        (image.width() - 1, image.height() - 1),
    )
    assert {image.pixelColor(*at).name() for at in corners} == {"#ffffff"}


def test_the_u_of_a_u_net_stays_a_u(qapp, u_net: Drawing) -> None:
    sheet = printed(u_net, Choice("page"))
    assert sheet.arranged == "canvas" and sheet.fits and sheet.text >= 6.0
    at = {
        mark.text: (mark.x, mark.y)
        for mark in sheet.plate.marks
        if isinstance(mark, Words) and mark.bold
    }
    for level, (down, up) in enumerate(
        (("relu1", "cat3"), ("relu2", "cat2"), ("relu3", "cat1")), 1
    ):
        assert at[down][0] < at[up][0] and at[down][1] == pytest.approx(
            at[up][1], abs=1
        )
        assert at[f"pool{level}"][1] > at[down][1]
    rows = printed(u_net, Choice("page", "rows"))
    assert rows.arranged == "rows" and rows.height > sheet.height
    narrow = printed(u_net, Choice("column"))
    assert narrow.arranged == "rows" and narrow.text >= 6.0 and narrow.fits
    wide = printed(u_net, Choice("column", "canvas"))
    assert (
        wide.arranged == "canvas"
        and wide.text >= 6.0
        and "does not fit the width" in wide.note
    )


def test_boxes_never_overlap_and_keep_their_order(qapp) -> None:
    boxes = (
        Box("a", "a" * 40),
        Box("b", "b"),
        Box("c", "c"),
        Box("d", "d" * 30),
        Box("e", "e"),
    )
    places = {"a": (0, 0), "b": (104, 4), "c": (10, 90), "d": (60, 180), "e": (300, 0)}
    arrows = (Arrow("a", "b"), Arrow("b", "c"), Arrow("c", "d"), Arrow("b", "e", "N×3"))
    drawing = Drawing(
        boxes,
        arrows,
        places=FrozenMap(places),
        frames=(Frame("Head", frozenset("ac")),),
    )
    sheet = printed(drawing, Choice("page", "canvas"))
    head, *rest = [
        mark for mark in sheet.plate.marks if isinstance(mark, FrameMark) and mark.line
    ]
    for one in rest:
        for other in rest:
            apart = (
                one.x + one.width <= other.x
                or other.x + other.width <= one.x
                or one.y + one.height <= other.y
                or other.y + other.height <= one.y
            )
            assert one is other or apart
    a, b, c, d, e = rest
    assert (
        a.x + a.width < b.x
        and b.x + b.width < e.x
        and c.y > a.y + a.height
        and d.y > c.y + c.height
    )
    assert head.dashed and all(head.x < one.x and head.y < one.y for one in (a, c))
    assert head.y + head.height < d.y and head.x + head.width < b.x, (
        "it is around its own alone"
    )


def test_open_blocks_are_wrapped_into_rows(qapp) -> None:
    drawing = nets.drawing(
        read(resource_path("examples", "Residual net on digits.tape")), "all"
    )
    assert (
        drawing.groups and printed(drawing, Choice("page", "canvas")).arranged == "rows"
    )


def test_as_many_levels_are_open_as_fit_the_paper(qapp) -> None:
    wide, fits, small = chain(300), chain(30), chain(3)
    made: list[Drawing] = []

    def given(drawing: Drawing) -> Callable[[], Drawing]:
        return lambda: made.append(drawing) or drawing

    assert (
        first_that_fits([given(wide), given(fits), given(small)], "page", None) is fits
    )
    assert first_that_fits([given(wide), given(chain(299))], "page", None) is wide
    made.clear()
    levels = [
        given(chain(length))
        for length in (300, 290, 280, 270, 260, 250, 240, 30, 20, 10)
    ]
    assert len(first_that_fits(levels, "page", None).boxes) == 30 and len(made) <= 5, (
        "few of many are laid out"
    )


def test_tikz_is_a_picture_to_include_that_compiles_alone_too(
    qapp, tmp_path: Path
) -> None:
    strange = Box(
        "x", r"a_b & 50% {x} \end{tikzpicture} $1$ #2 ~^", chips=(Chip("×²→−"),)
    )
    text = write(
        Drawing((strange,), title="two\nlines"), tmp_path / "net.tex", Choice("column")
    ).path.read_text("utf-8")
    assert (
        text.startswith("% Drawn by Tapedeck: two lines\n")
        and "\\input this file" in text
    )
    assert text.count("\\begin{tikzpicture}") == text.count("\\end{tikzpicture}") == 1
    assert "paperwidth=240.94bp" in text and "rectangle (240.94," in text
    assert r"a\_b \& 50\% \{x\} \textbackslash{}end\{tikzpicture\} \$1\$ \#2" in text
    assert r"$\times$$^2$$\rightarrow$$-$" in text and "lualatex" not in text
    body = text[text.index("\\begin{tikzpicture}") :]
    assert body.count("{") == body.count("}") + body.count("\\{") - body.count("\\}")
    assert "lualatex" in write(
        Drawing((Box("y", "層"),)), tmp_path / "kanji.tex"
    ).path.read_text("utf-8")
    assert latex("\x00") == "?"


@pytest.mark.skipif(not has_dot(), reason="Graphviz's dot is not installed")
def test_graphviz_draws_where_it_is_chosen_and_its_files_carry_the_project_too(
    qapp, tmp_path: Path
) -> None:
    for form, start in (("svg", b"<?xml"), ("pdf", b"%PDF"), ("png", b"\x89PNG")):
        path = write(
            chain(), tmp_path / f"net.{form}", Choice(arranged="dot"), b'{"a": 1}'
        ).path
        assert path.read_bytes().startswith(start)
        if form != "pdf":
            assert (
                picture_file.project_in(path.read_bytes(), path.suffix) == b'{"a": 1}'
            )
    assert "graphviz version" in (tmp_path / "net.svg").read_text("utf-8")
    with pytest.raises(ExportError, match="another arrangement for .tex"):
        write(chain(), tmp_path / "net.tex", Choice(arranged="dot"))


@pytest.mark.skipif(os.name == "nt", reason="the stand-in for dot is a shell script")
def test_a_graphviz_that_fails_hangs_or_is_missing_is_said(
    qapp, tmp_path: Path, monkeypatch
) -> None:
    def stand_in(script: str) -> None:
        (tmp_path / "dot").write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "dot").chmod(0o755)

    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoGraphvizError, match="apt install graphviz"):
        write(chain(), tmp_path / "net.svg", Choice(arranged="dot"))
    stand_in("echo 'Error: no room' >&2; exit 3")
    with pytest.raises(GraphvizError, match="code 3: Error: no room"):
        write(chain(), tmp_path / "net.svg", Choice(arranged="dot"))
    stand_in("exec /bin/sleep 60")
    with pytest.raises(GraphvizError, match="still drawing"):
        render("digraph {}", "svg", timeout=0.2)
    assert not (tmp_path / "net.svg").exists()


def test_what_cannot_be_written_says_why(qapp, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no such folder/graph\.png"):
        write(chain(), tmp_path / "no such folder" / "graph.png")
    with pytest.raises(ExportError, match=r"ends in \.gif; a picture can end in \.svg"):
        write(chain(), tmp_path / "graph.gif")
    with pytest.raises(ExportError, match="nothing to draw"):
        write(Drawing(()), tmp_path / "graph.svg")
