"""Every text arrives in the picture letter for letter, and whoever draws is named."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from app.diagram.diagram import Arrow, Box, Chip, Drawing, Group
from app.graphviz_export import (
    ExportError,
    GraphvizError,
    NoGraphvizError,
    export,
    has_dot,
    quote,
    render,
    to_dot,
    to_json,
)

needs_dot = pytest.mark.skipif(not has_dot(), reason="Graphviz's dot is not installed")


def sample() -> Drawing:
    return Drawing(
        (
            Box("1", "ConvolutionBackward0", group="conv1", category="conv", chips=(Chip("input 1.00 KiB"),)),
            Box("2", "conv1.weight", "AccumulateGrad", group="conv1", category="conv", shape="leaf", under="1"),
            Box("fold:loss", "loss", lines=("2 nodes",), category="loss", shape="folded"),
        ),
        (Arrow("fold:loss", "1", "4×10", "gradient", 2), Arrow("1", "2", kind="gradient")),
        (Group("conv1", "conv1", "conv", caption="1.00 KiB"),),
        "RL",
        "3 nodes",
    )


def texts(svg: bytes) -> list[str]:
    root = ElementTree.fromstring(svg)
    return [element.text or "" for element in root.iter("{http://www.w3.org/2000/svg}text")]


def test_groups_become_clusters() -> None:
    dot = to_dot(sample())
    assert "rankdir=RL" in dot and "subgraph cluster_0" in dot
    assert dot.index("subgraph") < dot.index("ConvolutionBackward0") < dot.index("  }")
    assert "×2" in dot


@needs_dot
@pytest.mark.parametrize(
    "text",
    ['"', "\\", "end\\", "\\N \\G \\l", "<b>bold</b>", "<table>", "&lt;&amp;&#65;", "node", "digraph", "{a|b}", "[x]",
     "a -> b", "// no comment", "/* none */", "# 1", "\\\"", "é 漢字 😀", "-1.5", "a;b", "%s", "'"],
)  # fmt: skip
def test_a_text_is_shown_as_it_is(text: str) -> None:
    drawing = Drawing((Box(text, text, group=text),), (Arrow(text, text, text),), (Group(text, text),))
    assert texts(render(to_dot(drawing), "svg")).count(text) == 3


@needs_dot
@settings(max_examples=40)
@given(st.lists(st.text(max_size=30), min_size=8, max_size=8, unique=True))
@example(["\x00", "\ud800", "\r", "\n", "\x7f", "\u2028", "\ufeff", "\t"])
def test_dot_takes_every_text(words: list[str]) -> None:
    boxes = tuple(Box(word, word, word[::-1], (word,)) for word in words)
    drawing = Drawing(boxes, (Arrow(words[0], words[1], words[2]),), (Group(words[3], words[4]),), title=words[5])
    ElementTree.fromstring(render(to_dot(drawing), "svg"))


@given(st.text())
def test_a_quoted_text_ends_where_it_should(text: str) -> None:
    inner = quote(text)[1:-1]
    assert "\n" not in inner and "\0" not in inner
    assert '"' not in inner.replace("\\\\", "").replace('\\"', "")
    assert (len(inner) - len(inner.rstrip("\\"))) % 2 == 0


@needs_dot
@pytest.mark.parametrize(("ending", "start"), [("svg", b"<?xml"), ("pdf", b"%PDF"), ("png", b"\x89PNG")])
def test_dot_draws_all_forms(tmp_path: Path, ending: str, start: bytes) -> None:
    done = export(sample(), tmp_path / f"graph.{ending}")
    assert done.by == "dot" and done.path.read_bytes().startswith(start)


def test_dot_text_needs_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert export(sample(), tmp_path / "graph.dot").by == "tapedeck"
    assert (tmp_path / "graph.dot").read_text("utf-8") == to_dot(sample())


def test_without_dot_the_painter_draws_and_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    drawn = []
    done = export(sample(), tmp_path / "graph.svg", lambda drawing, path: drawn.append((drawing, path)))
    assert done.by == "tapedeck" and drawn == [(sample(), tmp_path / "graph.svg")]
    with pytest.raises(NoGraphvizError, match="apt install graphviz"):
        export(sample(), tmp_path / "graph.svg")


def test_other_endings_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=r"\.gif"):
        export(sample(), tmp_path / "graph.gif")


needs_sh = pytest.mark.skipif(os.name == "nt", reason="the stand-in for dot is a shell script")


def fake_dot(folder: Path, script: str) -> None:
    program = folder / "dot"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)


@needs_sh
def test_a_dot_that_fails_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_dot(tmp_path, "echo 'Error: no room' >&2; exit 3")
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    with pytest.raises(GraphvizError, match="code 3: Error: no room"):
        export(sample(), tmp_path / "graph.svg")
    assert not (tmp_path / "graph.svg").exists()


@needs_sh
def test_a_dot_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_dot(tmp_path, "exec sleep 60")
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    with pytest.raises(GraphvizError, match="still drawing"):
        render(to_dot(sample()), "svg", timeout=0.2)


# -- what Graphviz makes of it, and JSON -------------------------------------------------------------------------------


def nested() -> Drawing:
    boxes = (
        Box("in", "input"), Box("a", "a", group="outer"), Box("b", "b", group="inner"), Box("c", "c", group="inner"),
        Box("d", "d", group="deep"),
    )  # fmt: skip
    groups = (Group("outer", "outer"), Group("inner", "inner", parent="outer"), Group("deep", "deep", parent="inner"))
    arrows = (Arrow("in", "a"), Arrow("a", "b", "N×3"), Arrow("b", "c"), Arrow("c", "d"), Arrow("a", "d", count=2))
    return Drawing(boxes, arrows, groups, title="nested")


@needs_dot
@pytest.mark.parametrize("make", [sample, nested])
def test_graphviz_reads_every_node_edge_and_cluster(make: Callable[[], Drawing]) -> None:
    drawing = make()
    read = json.loads(render(to_dot(drawing), "json"))
    objects = read["objects"]
    clusters = {one["_gvid"]: one for one in objects if one["name"].startswith("cluster")}
    nodes = [one for one in objects if not one["name"].startswith("cluster")]
    assert len(nodes) == len(drawing.boxes) and len(clusters) == len(drawing.groups)
    assert len(read["edges"]) == len(drawing.arrows)
    inner = {one["label"].split("   ")[0]: {clusters[at]["label"] for at in one.get("subgraphs", ())}
             for one in clusters.values()}  # fmt: skip
    for group in drawing.groups:
        children = {child.title for child in drawing.groups if child.parent == group.id}
        assert children <= inner[group.title]
    labels = {one["_gvid"]: one["label"].split("\\n")[0] for one in nodes}
    titles = {box.id: box.title for box in drawing.boxes}
    ends = [(labels[edge["tail"]], labels[edge["head"]]) for edge in read["edges"]]
    assert sorted(ends) == sorted((titles[arrow.source], titles[arrow.target]) for arrow in drawing.arrows)


@given(st.text())
def test_json_keeps_every_letter(word: str) -> None:
    drawing = Drawing((Box(word, word, word, (word,), chips=(Chip(word),)),), (Arrow(word, word, word),), title=word)
    read = json.loads(json.dumps(to_json(drawing)))
    (box,), (arrow,) = read["boxes"], read["arrows"]
    assert read["title"] == box["id"] == box["title"] == box["lines"][0] == box["chips"][0]["text"] == word
    assert (arrow["source"], arrow["target"], arrow["label"]) == (word, word, word)


def test_json_needs_nobody_and_has_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    done = export(nested(), tmp_path / "graph.json")
    read = json.loads(done.path.read_text("utf-8"))
    assert done.by == "tapedeck" and read["direction"] == "LR"
    assert [len(read[part]) for part in ("boxes", "arrows", "groups")] == [5, 5, 3]
    assert read["groups"][2] == {
        "id": "deep", "title": "deep", "category": "io", "parent": "inner", "caption": "", "link": None,
        "tags": [], "mark": "",
    }  # fmt: skip
