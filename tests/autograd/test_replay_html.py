"""A backward pass as one HTML file: its numbers are backward's, nothing of a net runs in it, and its script plays."""

from __future__ import annotations

import json
import math
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec.structs import replace
from msgspec.structs import replace as with_values
from PySide6.QtQml import QJSEngine

from app.autograd.batch import TrainingBatch
from app.autograd.grouping import fold, group_by_layer
from app.autograd.pictures.diagram import draw
from app.autograd.pictures.replay_html import played_json, replay_html
from app.autograd.playback.playback import Playback
from app.autograd.playback.steps import PassResult
from app.autograd.tape import Tape
from app.util import resources
from tests.support.playback_nets import NETS, Residual, batch, loss

NODE = shutil.which("node")


class Page(HTMLParser):
    """What a browser would make of it: elements with their attributes, and the text of each script and style."""

    VOID = {"meta", "input", "link", "img", "br"}

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.raw: list[str] = []
        self.open: list[str] = []
        self.words = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag in ("script", "style"):
            self.raw.append("")
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("script", "style"):
            self.raw[-1] += data
        else:
            self.words += data

    @property
    def data(self) -> dict[str, Any]:
        return json.loads(self.raw[1])


def played(net: torch.nn.Module) -> tuple[Tape, PassResult]:
    """A pass through a net."""
    x, y = batch()
    with TrainingBatch(net, x, loss, y).hold() as graph:
        playback = Playback(graph)
        playback.run()
        result = playback.result()
    return graph.tape, result


def page_of(
    tape: Tape, result: PassResult, unfolded: bool = True, **more: Any
) -> tuple[Page, str]:
    groups = group_by_layer(tape)
    folded = fold(
        tape,
        groups,
        frozenset(group.key for group in groups) if unfolded else frozenset(),
    )
    text = replay_html(tape, folded, draw(tape, folded), result, **more)
    return Page(text), text


def views_of(page: Page) -> list[tuple[dict[str, bool], list[int]]]:
    """Of each view of the graph its parts, with whether they are folded, and the numbers of its arrows."""
    views: list[tuple[dict[str, bool], list[int]]] = []
    for tag, a in page.elements:
        if tag == "svg" and a.get("viewbox") and a.get("role") == "img":
            views.append(({}, []))
        if key := a.get("data-key"):
            views[-1][0][key] = "folded" in (a["class"] or "")
        if arrow := a.get("data-arrow"):
            views[-1][1].append(int(arrow))
    return views


@pytest.mark.parametrize("name", ["residual", "shared", "custom", "convolutions"])
def test_its_norms_are_those_of_a_plain_backward(name: str) -> None:
    torch.manual_seed(0)
    net = NETS[name]().eval()
    x, y = batch()
    with TrainingBatch(net, x, loss, y, train=False).hold() as graph:
        playback = Playback(graph)
        playback.run()
        tape, result = graph.tape, playback.result()
    loss(net(x), y).backward()
    page, _ = page_of(tape, result)
    steps = page.data["steps"]
    assert [step["node"] for step in steps] == list(tape.order)
    found = {
        step["parameters"][0]: step["norm"] for step in steps if step["parameters"]
    }
    real = {
        key: float(p.grad.norm())
        for key, p in net.named_parameters()
        if p.grad is not None
    }
    assert set(found) == set(real)
    for key, norm in real.items():
        assert math.isclose(found[key], norm, rel_tol=1e-5, abs_tol=1e-8), key
    assert page.data["held"][0] == tape.held_bytes and page.data["held"][-1] == 0
    whole = played_json(result)
    assert (
        whole["order"] == list(tape.order)
        and sum(whole["released_bytes"]) == tape.held_bytes
    )
    assert len(whole["edge_norms"]) == len(result.edge_norms)


def test_it_stands_by_itself() -> None:
    tape, result = played(Residual())
    page, text = page_of(tape, result, title="Residual")
    assert not page.open, "every element is closed"
    tags = [tag for tag, _ in page.elements]
    assert (
        not {"link", "img", "iframe", "base", "object"} & set(tags)
        and tags.count("script") == 2
    )
    for _, attributes in page.elements:
        assert not {"src", "href", "style"} & set(attributes)
        assert not [name for name in attributes if name.startswith("on")]
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "").replace(
        "http-equiv", ""
    )
    policy = next(
        a["content"] for tag, a in page.elements if tag == "meta" and "http-equiv" in a
    )
    assert (
        policy is not None
        and policy.startswith("default-src 'none'")
        and "unsafe" not in policy
    )
    assert page.raw[2] == resources.path("replay", "page.js").read_text("utf-8")
    assert (
        "innerHTML" not in page.raw[2]
        and "prefers-color-scheme" in page.raw[0]
        and "@media print" in page.raw[0]
    )


HOSTILE = [
    "</script><script>canary()</script>",
    "<img src=x onerror=canary()>",
    '"><svg onload=canary()>',
    "<!--",
    "]]>",
    "javascript:canary()",
    "&lt;script&gt;",
    "@DATA@",
    "@SCRIPT@",
    "\u2028canary()",
    "\x00\x1b[2J",
    "${canary()}",
    "\ud800",
]


@pytest.mark.parametrize("name", HOSTILE)
def test_names_are_words_and_run_nowhere(name: str) -> None:
    tape, result = played(Residual())
    plain, _ = page_of(tape, result)
    nodes = tuple(
        with_values(
            node,
            name=name,
            layer=name,
            parameters=(name,) * len(node.parameters),
            saved=tuple(
                with_values(saved, name=name, dtype=name) for saved in node.saved
            ),
        )
        for node in tape.nodes
    )
    hostile = replace(tape, nodes=nodes, text=f"{name}\n" * 40)
    page, text = page_of(hostile, result, title=name, failed=name)
    script, wanted = (
        page.raw[2],
        [tag for tag, _ in plain.elements if tag in ("script", "style", "img")],
    )
    assert [
        tag for tag, _ in page.elements if tag in ("script", "style", "img")
    ] == wanted and script == plain.raw[2]
    assert not [
        a
        for _, a in page.elements
        for key in a
        if key.startswith("on") or key in ("src", "href")
    ]
    assert (
        page.data["steps"][0]["saved"][0]["name"] == name
        or page.data["steps"][0]["name"] == name
    )
    assert text.encode("utf-8", "strict")


def test_numbers_that_json_has_not_are_told_all_the_same() -> None:
    tape, result = played(Residual())
    record = result.records[1]
    arriving = tuple(
        with_values(stats, norm=math.nan, mean=math.inf)
        for stats in record.arriving
        if stats
    )
    bad = with_values(record, arriving=arriving)
    page, _ = page_of(
        tape, PassResult((result.records[0], bad)), failed="stopped there"
    )
    assert len(page.data["steps"]) == 2 and page.data["steps"][1]["norm"] == "nan"
    assert (
        page.data["steps"][1]["arriving"][0]["mean"] == "inf"
        and "stopped there" in page.words
    )
    assert len(page.data["held"]) == 3


@pytest.mark.skipif(NODE is None, reason="node runs the page's script, and is not here")
@pytest.mark.parametrize("unfolded", [True, False])
def test_the_script_plays(unfolded: bool, tmp_path: Path) -> None:
    assert NODE is not None
    tape, result = played(Residual())
    page, _ = page_of(tape, result, unfolded)
    drawn = views_of(page)
    assert len(drawn) == len(page.data["views"]) == 2 and page.data["view"] == int(
        unfolded
    )
    view = page.data["views"][page.data["view"]]
    keys, arrows = drawn[page.data["view"]]
    assert len(keys) == len(view["parts"]) and arrows == list(
        range(len(view["arrows"]))
    )
    (tmp_path / "data.json").write_text(page.raw[1])
    (tmp_path / "page.js").write_text(page.raw[2])
    (tmp_path / "parts.json").write_text(
        json.dumps([{"keys": keys, "arrows": arrows} for keys, arrows in drawn])
    )
    files = [str(tmp_path / name) for name in ("data.json", "page.js", "parts.json")]
    runner, total = (
        str(Path(__file__).parents[1] / "support" / "replay_dom.js"),
        len(tape.order),
    )
    asked = [
        "0",
        "5",
        "ArrowLeft",
        "Home",
        "play",
        "t",
        "5",
        "f" if unfolded else "u",
        "u" if unfolded else "f",
    ]
    done = subprocess.run(
        [NODE, runner, *files, *asked], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    start, fifth, fourth, home, end, toggled, again, other, back = json.loads(
        done.stdout
    )
    steps = [
        {**one, **changes}
        for one, changes in zip(page.data["steps"], view["steps"], strict=True)
    ]
    assert (
        start["counter"] == f"0 of {total} steps have run"
        and not any(start["reached"])
        and not start["ran"]
    )
    assert start["next"] == [str(steps[0]["keys"][0])] and not any(start["norms"])
    assert [row[0] for row in fifth["rows"]] == [
        place < 5 for place in range(total)
    ] and fifth["head"] == "5"
    assert fifth["rows"][5][1] and fifth["next"] == [str(steps[5]["keys"][0])]
    assert (
        steps[4]["name"] in fifth["details"]
        and fourth["head"] == "4"
        and fourth["next"] == [str(steps[4]["keys"][0])]
    )
    assert home == start, "going back undoes all that going forth has shown"
    assert (
        set(end["ran"]) == set(keys)
        and not end["next"]
        and all(end["reached"])
        and all(end["norms"])
    )
    assert (
        end["playing"] == "Play"
        and end["held"].startswith("0 B of ")
        and toggled["theme"] == "light"
    )
    widths = [float(width.removesuffix("px")) for width in end["widths"]]
    largest = max(
        range(len(arrows)),
        key=lambda n: math.hypot(*(edge["norm"] or 0 for edge in view["arrows"][n])),
    )
    assert widths[largest] == max(widths) and len(set(widths)) > 1
    sums = [step for step in steps if step["sums"]]
    assert (
        sums
        and abs(sum(share["share"] for share in sums[0]["sums"][0]["shares"]) - 1)
        < 1e-4
    )
    assert unfolded is bool(end["freed"])
    assert (
        other["view"] == int(not unfolded)
        and other["counter"] == again["counter"]
        and other["head"] == "5"
    )
    changes = page.data["views"][other["view"]]["steps"]
    assert other["next"] == [str(changes[5]["keys"][0])] and other["fold"] == [
        unfolded,
        not unfolded,
    ]
    counts = [part["count"] for part in page.data["views"][other["view"]]["parts"]]
    has_run = [
        sum(key in step["keys"] for step in changes[:5]) for key in range(len(counts))
    ]
    assert {int(key) for key in other["ran"]} == {
        key for key, many in enumerate(has_run) if many == counts[key]
    }
    assert {**back, "theme": ""} == {**again, "theme": ""}, (
        "folding and unfolding leave what ran as it is"
    )


def test_a_graph_of_blocks_unfolds_level_by_level_and_one_without_groups_not_at_all() -> (
    None
):
    from app.autograd.blocks import group_by_block

    inner = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh())
    nested = torch.nn.Sequential(
        inner, torch.nn.Sequential(torch.nn.Sequential(inner), torch.nn.Linear(8, 3))
    )
    tape, result = played(nested)
    groups = group_by_block(tape)
    folded = fold(tape, groups, frozenset())
    page = Page(replay_html(tape, folded, draw(tape, folded), result))
    sizes = [len(view["parts"]) for view in page.data["views"]]
    assert len(sizes) >= 3 and sizes == sorted(sizes) and page.data["view"] == 0
    assert [len(keys) for keys, _ in views_of(page)] == sizes
    everything = fold(tape, groups, frozenset(group.key for group in groups))
    bare = Page(
        replay_html(tape, everything, draw(tape, everything, grouped=False), result)
    )
    assert len(bare.data["views"]) == 1 and "off" not in [
        a.get("class") for _, a in bare.elements
    ]


def test_a_share_that_is_not_all_is_not_written_as_all(qapp: Any) -> None:
    script = resources.path("replay", "page.js").read_text("utf-8")
    (function,) = re.findall(r"const part = (share => .*?);", script, re.DOTALL)
    engine = QJSEngine()
    written = engine.evaluate(
        f"[0, 0.0005, 0.5, {1998 / 2000}, 0.9999, 1].map({function}).join()"
    )
    assert written.toString() == "0 %,< 0.1 %,50 %,99.9 %,> 99.9 %,100 %"
