"""The page "Problems" in the whole window: of another project, and of a net of a thousand nodes."""

from __future__ import annotations

from msgspec.structs import replace
from pytestqt.qtbot import QtBot

from tests.support.whole_window import WholeWindow
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
