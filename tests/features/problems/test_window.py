"""The page "Problems" in the whole window: of another project, and of a net of a thousand nodes."""

from __future__ import annotations

from itertools import pairwise

import pytest
from msgspec.structs import replace
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QLabel
from pytestqt.qtbot import QtBot

from app.builder.arrange import GAP, GRID, NEXT_GAP
from app.builder.diagnostics.problems import Cure, Problem
from app.builder.edits import comments
from app.builder.graph import Graph, Node
from app.builder.results import Analysis
from app.source.generated import Source
from app.util.frozen import FrozenMap
from app.util.language import tr
from app.views.ui.cut_texts import is_cut
from tests.support.long_language import elisions as elisions
from tests.support.long_language import faults, longest
from tests.support.long_language import long_words as long_words
from tests.support.long_language import spoken as spoken
from tests.support.whole_window import WholeWindow
from tests.views.window.test_cut_texts import Elisions
from tests.views.window.test_large import at_rest, large, many  # noqa: F401
from tests.views.window.test_window import node, ready


def test_problems_of_the_last_project_are_gone_with_it(
    qtbot, window: WholeWindow
) -> None:
    window.files.open_example("digits.tape")
    ready(qtbot, window)
    project = window.document.project
    broken = project.graph.with_param(node(window, "fc2"), "in_features", 7)
    window.document.apply("Break it", replace(project, graph=broken))
    ready(qtbot, window)
    assert (
        window.problems_panel.counts[0] == 1
        and window.status.text("errors") == "1 error"
    )
    window.document.new()
    assert (
        not window.problems_panel.rows
        and "not been checked" in window.problems_panel.ok_line.text()
    )
    assert not window.status.text("errors") and not window.status.text("checked")
    ready(qtbot, window)
    assert not window.status.text("errors"), (
        "on an empty canvas is nothing that could be fine"
    )


def test_an_edit_keeps_the_rows_of_problems_that_stay(
    qtbot: QtBot,
    many: WholeWindow,
) -> None:
    panel = many.problems_panel
    qtbot.waitUntil(lambda: len(panel.rows) == 200)
    before = list(panel.rows)
    many.canvas.commands.add_at(
        "nn.ReLU", many.canvas.scene.content_rect().bottomRight()
    )
    at_rest(qtbot, many)
    qtbot.waitUntil(
        lambda: panel.counts[1] == len(many.live.analysis.problems) - panel.counts[0]
    )
    qtbot.waitUntil(lambda: len(panel.rows) == 200)
    assert len(set(before) & set(panel.rows)) >= 198, (
        "they say what they said, so they are not made anew"
    )
    said = [(row.problem.message, row.problem.node) for row in panel.rows]
    ranked = sorted(many.live.analysis.problems, key=lambda problem: problem.rank)
    assert said == [(problem.message, problem.node) for problem in ranked[:200]]


def test_views_hear_of_a_large_net_one_a_turn_and_only_the_newest_word(
    qtbot: QtBot,
    many: WholeWindow,
) -> None:
    heard: list[int] = []
    panel, told = many.problems_panel, many.problems_panel.set_analysis
    panel.set_analysis = lambda analysis: (
        heard.append(len(analysis.graph.nodes)),
        told(analysis),
    )
    at_once: list[int] = []
    many.live.analysed.connect(lambda _analysis: at_once.append(len(heard)))
    try:
        for _ in range(2):
            many.canvas.commands.add_at(
                "nn.ReLU", many.canvas.scene.content_rect().bottomRight()
            )
        at_rest(qtbot, many)
        qtbot.waitUntil(lambda: bool(heard))
    finally:
        del panel.set_analysis
    assert at_once[-1:] == [0], "the list of problems hears of it in a turn of its own"
    assert heard == [1_004], "what was out of date before it was told is not told"
    assert len(many.canvas.scene.nodes) == 1_004


@pytest.mark.parametrize("width", [1280, 1024])
def test_a_sentence_is_read_whole_beside_a_short_cure_and_above_a_long_one(
    qtbot: QtBot, long_words: WholeWindow, elisions: Elisions, width: int
) -> None:
    long_words.resize(width, 800)
    long_words.pages.show("problems")
    panel, conv = long_words.problems_panel, Node("n1", "nn.Conv2d", "conv3")
    move = tr("Move {first} behind {second}", first="flatten", second="conv3")
    move = tr("{cure} and infer {param}", cure=move, param="in_channels")
    problems = [
        Problem("error", "n1", message, reason, "size: [64, 1024]", cures=(cure,))
        for message, reason in zip(
            longest("builder/explain"),
            reversed(longest("builder/explain")),
            strict=True,
        )
        for cure in (Cure(move, ()), Cure("Fix", ()))
    ]
    graph = Graph(FrozenMap(n1=conv))
    panel.set_analysis(Analysis(graph, Source(""), problems=tuple(problems)))
    qtbot.waitUntil(lambda: len(panel.rows) == len(problems))
    found = faults(qtbot, long_words, panel, elisions)
    assert not found, "\n".join(sorted(found))
    for row in panel.rows:
        texts = {each.text(): each for each in row.findChildren(QLabel)}
        assert not row.cure.is_cut()
        for text in (row.problem.message, row.problem.reason):
            assert not is_cut(texts[text]), text
            assert texts[text].width() > panel.width() / 3, text


def test_a_layer_that_a_cure_moves_is_put_into_the_row_which_closes_up(
    qtbot: QtBot, window: WholeWindow
) -> None:
    window.files.open_example("digits.tape")
    ready(qtbot, window)
    window.pages.show("problems")
    scene, flatten = window.canvas.scene, node(window, "flatten")
    conv = window.canvas.commands.add_behind(
        "nn.Conv2d", flatten, FrozenMap(in_channels=1024, out_channels=8, kernel_size=3)
    )
    qtbot.waitUntil(lambda: bool(window.problems_panel.rows))
    broken = window.document.project
    (row,) = window.problems_panel.rows
    assert row.cure.text() == "Move flatten behind conv3 and infer in_channels"
    qtbot.mouseClick(row.cure, Qt.MouseButton.LeftButton)
    chain = [node(window, "pool1"), conv, flatten, node(window, "drop1")]
    bodies = [scene.nodes[each].body for each in chain]
    for left, right in pairwise(bodies):
        assert GAP <= right.left() - left.right() < NEXT_GAP + 2 * GRID
    assert window.canvas.view.visible_area().contains(bodies[2])
    window.document.undo_stack.undo()
    assert window.document.project == broken


def test_a_frame_goes_along_with_the_row_that_a_cure_moves(
    qtbot: QtBot, window: WholeWindow
) -> None:
    window.files.open_example("digits.tape")
    ready(qtbot, window)
    window.pages.show("problems")
    commands, scene = window.canvas.commands, window.canvas.scene
    held = {node(window, name) for name in ("flatten", "drop1")}
    project, frame = comments.frame(commands.project, held, scene.sizes(), "head")
    project, title = comments.frame(
        project, [node(window, "flatten")], scene.sizes(), "flat"
    )
    window.document.apply("Add frames", project)
    conv = commands.add_behind(
        "nn.Conv2d",
        node(window, "flatten"),
        FrozenMap(in_channels=1024, out_channels=8, kernel_size=3),
    )
    qtbot.waitUntil(lambda: bool(window.problems_panel.rows))
    broken = window.document.project
    qtbot.mouseClick(window.problems_panel.rows[0].cure, Qt.MouseButton.LeftButton)
    project = window.document.project
    assert project.positions != broken.positions
    for key, nodes in ((frame, held | {conv}), (title, {node(window, "flatten")})):
        assert comments.taken_along(project, [key], scene.sizes())[0] == nodes
    left = project.comments[frame].x - project.positions[conv][0]
    assert left == -comments.PAD
    room = project.positions[conv][1] - project.comments[frame].y
    assert room >= comments.TITLE_ROOM, "a higher node does not cover the title"
    window.document.undo_stack.undo()
    assert window.document.project == broken
