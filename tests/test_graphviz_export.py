"""Every text arrives in DOT and JSON letter for letter."""

from __future__ import annotations

import json
from collections.abc import Callable
from xml.etree import ElementTree

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app.diagram.diagram import Arrow, Box, Chip, Drawing, Group
from app.graphviz_export import has_dot, quote, render, text_of, to_dot, to_json


def sample() -> Drawing:
    return Drawing(
        (
            Box(
                "1",
                "ConvolutionBackward0",
                group="conv1",
                category="conv",
                chips=(Chip("input 1.00 KiB"),),
            ),
            Box(
                "2",
                "conv1.weight",
                "AccumulateGrad",
                group="conv1",
                category="conv",
                shape="leaf",
                under="1",
            ),
            Box(
                "fold:loss", "loss", lines=("2 nodes",), category="loss", shape="folded"
            ),
        ),
        (
            Arrow("fold:loss", "1", "4×10", "gradient", 2),
            Arrow("1", "2", kind="gradient"),
        ),
        (Group("conv1", "conv1", "conv", caption="1.00 KiB"),),
        "RL",
        "3 nodes",
    )


def texts(svg: bytes) -> list[str]:
    root = ElementTree.fromstring(svg)
    return [
        element.text or "" for element in root.iter("{http://www.w3.org/2000/svg}text")
    ]


def test_groups_become_clusters() -> None:
    dot = to_dot(sample())
    assert "rankdir=RL" in dot and "subgraph cluster_0" in dot
    assert dot.index("subgraph") < dot.index("ConvolutionBackward0") < dot.index("  }")
    assert "×2" in dot


@pytest.mark.skipif(not has_dot(), reason="Graphviz's dot is not installed")
@pytest.mark.parametrize(
    "text",
    [
        '"',
        "\\",
        "end\\",
        "\\N \\G \\l",
        "<b>bold</b>",
        "<table>",
        "&lt;&amp;&#65;",
        "node",
        "digraph",
        "{a|b}",
        "[x]",
        "a -> b",
        "// no comment",
        "/* none */",
        "# 1",
        '\\"',
        "é 漢字 😀",
        "-1.5",
        "a;b",
        "%s",
        "'",
    ],
)
def test_a_text_is_shown_as_it_is(text: str) -> None:
    drawing = Drawing(
        (Box(text, text, group=text),), (Arrow(text, text, text),), (Group(text, text),)
    )
    assert texts(render(to_dot(drawing), "svg")).count(text) == 3


@pytest.mark.skipif(not has_dot(), reason="Graphviz's dot is not installed")
@given(st.lists(st.text(max_size=30), min_size=8, max_size=8, unique=True))
@example(["\x00", "\ud800", "\r", "\n", "\x7f", "\u2028", "\ufeff", "\t"])
def test_dot_takes_every_text(words: list[str]) -> None:
    boxes = tuple(Box(word, word, word[::-1], (word,)) for word in words)
    drawing = Drawing(
        boxes,
        (Arrow(words[0], words[1], words[2]),),
        (Group(words[3], words[4]),),
        title=words[5],
    )
    ElementTree.fromstring(render(to_dot(drawing), "svg"))


@given(st.text())
def test_a_quoted_text_ends_where_it_should(text: str) -> None:
    inner = quote(text)[1:-1]
    assert "\n" not in inner and "\0" not in inner
    assert '"' not in inner.replace("\\\\", "").replace('\\"', "")
    assert (len(inner) - len(inner.rstrip("\\"))) % 2 == 0


# -- what Graphviz makes of it, and JSON -------------------------------------------------------------------------------


def nested() -> Drawing:
    boxes = (
        Box("in", "input"),
        Box("a", "a", group="outer"),
        Box("b", "b", group="inner"),
        Box("c", "c", group="inner"),
        Box("d", "d", group="deep"),
    )
    groups = (
        Group("outer", "outer"),
        Group("inner", "inner", parent="outer"),
        Group("deep", "deep", parent="inner"),
    )
    arrows = (
        Arrow("in", "a"),
        Arrow("a", "b", "N×3"),
        Arrow("b", "c"),
        Arrow("c", "d"),
        Arrow("a", "d", count=2),
    )
    return Drawing(boxes, arrows, groups, title="nested")


@pytest.mark.skipif(not has_dot(), reason="Graphviz's dot is not installed")
@pytest.mark.parametrize("make", [sample, nested])
def test_graphviz_reads_every_node_edge_and_cluster(
    make: Callable[[], Drawing],
) -> None:
    drawing = make()
    read = json.loads(render(to_dot(drawing), "json"))
    objects = read["objects"]
    clusters = {
        one["_gvid"]: one for one in objects if one["name"].startswith("cluster")
    }
    nodes = [one for one in objects if not one["name"].startswith("cluster")]
    assert len(nodes) == len(drawing.boxes) and len(clusters) == len(drawing.groups)
    assert len(read["edges"]) == len(drawing.arrows)
    inner = {
        one["label"].split("   ")[0]: {
            clusters[at]["label"] for at in one.get("subgraphs", ())
        }
        for one in clusters.values()
    }
    for group in drawing.groups:
        children = {child.title for child in drawing.groups if child.parent == group.id}
        assert children <= inner[group.title]
    labels = {one["_gvid"]: one["label"].split("\\n")[0] for one in nodes}
    titles = {box.id: box.title for box in drawing.boxes}
    ends = [(labels[edge["tail"]], labels[edge["head"]]) for edge in read["edges"]]
    assert sorted(ends) == sorted(
        (titles[arrow.source], titles[arrow.target]) for arrow in drawing.arrows
    )


@given(st.text())
def test_json_keeps_every_letter(word: str) -> None:
    drawing = Drawing(
        (Box(word, word, word, (word,), chips=(Chip(word),)),),
        (Arrow(word, word, word),),
        title=word,
    )
    read = json.loads(json.dumps(to_json(drawing)))
    (box,), (arrow,) = read["boxes"], read["arrows"]
    assert (
        read["title"]
        == box["id"]
        == box["title"]
        == box["lines"][0]
        == box["chips"][0]["text"]
        == word
    )
    assert (arrow["source"], arrow["target"], arrow["label"]) == (word, word, word)


def test_json_has_all() -> None:
    read = json.loads(text_of(nested(), "json"))
    assert read["direction"] == "LR"
    assert [len(read[part]) for part in ("boxes", "arrows", "groups")] == [5, 5, 3]
    assert read["groups"][2] == {
        "id": "deep",
        "title": "deep",
        "category": "io",
        "parent": "inner",
        "caption": "",
        "link": None,
        "tags": [],
        "mark": "",
        "paths": [],
        "heat": None,
    }
