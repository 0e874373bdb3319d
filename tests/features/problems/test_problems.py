"""The problems panel: what is wrong, where, and the click that mends it."""

from __future__ import annotations

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from app.builder.catalog.catalog import catalog
from app.builder.diagnostics.problems import Cure, Problem, RemoveNode, SetParam
from app.builder.graph import Graph, Node
from app.builder.results import Analysis
from app.features.problems.problems import ProblemsPanel
from app.source.generated import Source
from app.util.frozen import FrozenMap
from app.views.selection import Selection

GRAPH = Graph(
    FrozenMap(
        {
            f"n{i}": Node(f"n{i}", "nn.Linear", f"fc{i}", FrozenMap(out_features=2))
            for i in range(1, 6)
        }
    )
)
FLATTEN = Cure("Insert Flatten", (SetParam("n1", "bias", False),))
REMOVE = Cure("Remove fc2", (RemoveNode("n2"),))
ERROR = Problem(
    "error",
    "n1",
    "Linear expects 9216 features",
    "64 · 12 · 12 = 9216.",
    "mat1 and mat2 cannot be multiplied",
    cures=(FLATTEN, REMOVE),
)
WARNING = Problem(
    "warning",
    "n2",
    "fc2 is not connected to an output",
    "Connect it on.",
    cures=(REMOVE,),
)


def analysis(
    *problems: Problem, assumed: frozenset[str] = frozenset(), graph: Graph = GRAPH
) -> Analysis:
    return Analysis(graph, Source(""), problems=problems, assumed=assumed)


@pytest.fixture
def selection() -> Selection:
    return Selection()


@pytest.fixture
def panel(qtbot: QtBot, selection: Selection) -> ProblemsPanel:
    view = ProblemsPanel(catalog(), selection)
    qtbot.addWidget(view)
    view.resize(1000, 240)
    with qtbot.waitExposed(view):
        view.show()
    return view


def show(panel: ProblemsPanel, *problems: Problem, **more: object) -> None:
    panel.set_analysis(analysis(*problems), **more)
    QApplication.processEvents()


def test_errors_come_first_and_are_counted(qtbot: QtBot, panel: ProblemsPanel) -> None:
    with qtbot.waitSignal(panel.count_changed) as counted:
        show(panel, WARNING, ERROR)
    assert counted.args == [1, 1] and panel.counts == (1, 1)
    assert [row.problem for row in panel.rows] == [ERROR, WARNING]
    assert panel.rows[0].accessibleName() == "error, fc1: Linear expects 9216 features"
    assert panel.ok_line.text() == "The other 3 nodes have no problems."


def test_problems_between_net_and_data_are_counted_too(panel: ProblemsPanel) -> None:
    show(
        panel,
        more=(Problem("error", None, "There is no data source 'x'", "Choose one."),),
    )
    assert panel.counts == (1, 0)
    assert panel.rows[0].accessibleName() == "There is no data source 'x'"


@pytest.mark.parametrize(
    ("assumed", "graph", "words"),
    [
        (frozenset(), GRAPH, "No problems in 5 nodes."),
        (
            frozenset({"n4", "n5"}),
            GRAPH,
            "The other 3 nodes have no problems. 2 nodes wait",
        ),
        (frozenset(), Graph(), "Drag a layer"),
    ],
)
def test_the_last_line_says_what_is_fine(
    panel: ProblemsPanel, assumed: frozenset[str], graph: Graph, words: str
) -> None:
    panel.set_analysis(analysis(assumed=assumed, graph=graph))
    assert panel.ok_line.text().startswith(words)


def test_a_click_jumps_and_selects(
    qtbot: QtBot, panel: ProblemsPanel, selection: Selection
) -> None:
    show(panel, ERROR, WARNING)
    with qtbot.waitSignal(panel.jump_requested) as jumped:
        qtbot.mouseClick(panel.rows[1], Qt.MouseButton.LeftButton, pos=QPoint(80, 20))
    assert jumped.args == ["n2"] and selection.ids == {"n2"}


def test_everything_by_keyboard(qtbot: QtBot, panel: ProblemsPanel) -> None:
    show(panel, ERROR, WARNING)
    panel.rows[0].setFocus()
    qtbot.keyClick(panel.rows[0], Qt.Key.Key_Down)
    assert panel.rows[1].hasFocus()
    with qtbot.waitSignal(panel.jump_requested) as jumped:
        qtbot.keyClick(panel.rows[1], Qt.Key.Key_Return)
    assert jumped.args == ["n2"]
    qtbot.keyClick(panel.rows[1], Qt.Key.Key_Up)
    qtbot.keyClick(panel.rows[0], Qt.Key.Key_Tab)
    assert panel.rows[0].cure.hasFocus()
    with qtbot.waitSignal(panel.cure_requested) as cured:
        qtbot.keyClick(panel.rows[0].cure, Qt.Key.Key_Space)
    assert cured.args == [FLATTEN]


def test_the_fixes_of_the_selected_node_are_a_menu_away(
    qtbot: QtBot, panel: ProblemsPanel, selection: Selection
) -> None:
    show(panel, ERROR, WARNING)
    for ids, cure in (({"n2"}, REMOVE), ((), FLATTEN)):
        selection.set(ids)
        panel.offer_fixes()
        with qtbot.waitSignal(panel.cure_requested) as cured:
            qtbot.keyClick(QApplication.activePopupWidget(), Qt.Key.Key_Return)
        assert cured.args == [cure]


def test_the_menu_has_every_cure_and_the_text(
    qtbot: QtBot, panel: ProblemsPanel
) -> None:
    show(panel, ERROR)
    actions = {action.text(): action for action in panel.rows[0].menu().actions()}
    assert {"Insert Flatten", "Remove fc2", "Show fc1", "Copy text"} <= set(actions)
    with qtbot.waitSignal(panel.cure_requested) as cured:
        actions["Remove fc2"].trigger()
    assert cured.args == [REMOVE]
    actions["Copy text"].trigger()
    copied = QGuiApplication.clipboard().text()
    assert "fc1" in copied and "PyTorch: mat1 and mat2" in copied


def test_equal_problems_leave_the_rows_alone(panel: ProblemsPanel) -> None:
    show(panel, ERROR)
    row = panel.rows[0]
    row.setFocus()
    show(panel, ERROR)
    assert panel.rows[0] is row and row.hasFocus()


def test_the_focus_stays_in_the_list_when_a_row_goes(panel: ProblemsPanel) -> None:
    show(panel, ERROR, WARNING)
    panel.rows[0].setFocus()
    show(panel, WARNING)
    assert panel.rows[0].hasFocus()


def test_a_very_long_list_is_cut_and_says_so(qtbot, panel: ProblemsPanel) -> None:
    many = tuple(Problem("warning", None, f"problem {i}") for i in range(300))
    show(panel, *many)
    qtbot.waitUntil(lambda: len(panel.rows) == 200)
    assert panel.ok_line.text().startswith(
        "Only the first 200 of 300 problems are shown."
    )
    assert panel.counts == (0, 300)


def test_what_is_forgotten_is_neither_wrong_nor_fine(panel: ProblemsPanel) -> None:
    show(
        panel,
        *(Problem("error", "n1", f"wrong {number}", "") for number in range(30)),
        WARNING,
    )
    panel.forget()
    QApplication.processEvents()
    assert (
        panel.rows == []
        and panel.counts == (0, 0)
        and "not been checked" in panel.ok_line.text()
    )
    show(panel, ERROR)
    assert [row.problem for row in panel.rows] == [ERROR] and panel.counts == (1, 0)
