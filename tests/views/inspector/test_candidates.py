"""Other sizes of an Input: listed, tried behind the window, taken with a click."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from app.builder.analysis import analyse
from app.builder.catalog.catalog import catalog
from app.project.document import Document
from app.project.project import Project
from app.views.engine_service import EngineService
from app.views.inspector import Inspector
from app.views.inspector.explain.input_sizes import CandidatesSection
from app.views.selection import Selection
from app.views.ui.widgets import Button
from tests.support.builder_nets import net

ROWS = [
    ("input", "x", {"shape": (1, 28, 28)}),
    ("nn.Conv2d", "conv", {"out_channels": 4, "in_channels": 1}),
    ("nn.Flatten", "flat", {}),
    ("nn.Linear", "fc", {"out_features": 10}),
    ("output", "logits", {}),
]


class Window:
    """An inspector on a net, with an Input selected."""

    def __init__(self, engine: EngineService) -> None:
        self.document, self.selection = Document(Project("net", net(ROWS))), Selection()
        self.inspector = Inspector(self.document, self.selection, catalog(), engine)
        self.analyse()
        self.document.changed.connect(lambda before, after: self.analyse())
        self.selection.set({"x"})
        self.sizes.set_open(True)

    @property
    def sizes(self) -> CandidatesSection:
        return self.inspector.node_page.sizes

    def analyse(self) -> None:
        self.inspector.set_analysis(analyse(self.document.project.graph))

    def told(self) -> dict[str, str]:
        return {
            "×".join(map(str, row.shape)): row.result_text() for row in self.sizes.rows
        }


@pytest.fixture
def window(qtbot: QtBot) -> Iterator[Window]:
    engine = EngineService()
    made = Window(engine)
    qtbot.addWidget(made.inspector)
    made.inspector.resize(304, 900)
    with qtbot.waitExposed(made.inspector):
        made.inspector.show()
    wait_for_results(qtbot, made)
    yield made
    engine.close()


def wait_for_results(qtbot: QtBot, window: Window) -> None:
    rows = window.sizes.rows
    qtbot.waitUntil(
        lambda: bool(rows) and all(row.answer is not None for row in window.sizes.rows),
    )
    QApplication.processEvents()


def enter(qtbot: QtBot, window: Window, text: str) -> None:
    window.sizes.field.setText(text)
    qtbot.keyClick(window.sizes.field, Qt.Key.Key_Return)


def click(qtbot: QtBot, window: Window, row: int, text: str) -> None:
    buttons = window.sizes.rows[row].findChildren(Button)
    button = next(
        each for each in buttons if text in (each.text(), each.accessibleName())
    )
    qtbot.mouseClick(button, Qt.MouseButton.LeftButton)


def test_usual_sizes_are_tried_and_what_fails_says_where(window: Window) -> None:
    told = window.told()
    assert list(told) == ["1×32×32", "3×32×32", "3×224×224"]
    assert "parameters" in told["1×32×32"] and "multiply-adds" in told["1×32×32"]
    assert "gets 3" in told["3×32×32"]
    assert window.sizes.caption() == "1 of 3 run"


def test_a_person_adds_a_size_and_takes_others_away(
    qtbot: QtBot, window: Window
) -> None:
    enter(qtbot, window, "1x8x8")
    wait_for_results(qtbot, window)
    assert "4×" not in window.told() and "parameters" in window.told()["1×8×8"]
    click(qtbot, window, 1, "Stop trying 3×32×32")
    assert list(window.told()) == ["1×32×32", "3×224×224", "1×8×8"]
    enter(qtbot, window, "eight")
    assert window.sizes.word.isVisible() and window.sizes.field.text() == "eight"
    window.selection.set({"conv"})
    assert not window.sizes.isVisible()
    window.selection.set({"x"})
    assert list(window.told()) == ["1×32×32", "3×224×224", "1×8×8"]


def test_a_size_is_taken_as_one_undo_step_and_the_others_are_tried_anew(
    qtbot: QtBot, window: Window
) -> None:
    click(qtbot, window, 0, "Use")
    assert window.document.project.graph.nodes["x"].params["shape"] == (1, 32, 32)
    assert window.document.undo_stack.count() == 1
    wait_for_results(qtbot, window)
    assert list(window.told())[0] == "1×28×28"


def test_the_layer_that_fails_can_be_selected(qtbot: QtBot, window: Window) -> None:
    click(qtbot, window, 1, "conv")
    assert window.selection.ids == {"conv"}


def test_another_project_begins_with_the_usual_sizes(
    qtbot: QtBot, window: Window
) -> None:
    enter(qtbot, window, "5x5x5")
    window.document.new(Project("other", net(ROWS)))
    window.selection.set({"x"})
    assert "5×5×5" not in window.told()
