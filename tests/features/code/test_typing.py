"""Typing in the Code tab: values and names become edits of the drawing, anything else is told why it cannot."""

from __future__ import annotations

import pytest
from PySide6.QtCore import QMimeData, Qt
from PySide6.QtGui import QTextCursor
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from app.builder.analysis import analyse
from app.builder.blocks import Block, with_blocks
from app.builder.catalog.catalog import Param, catalog
from app.builder.expressions import Expr
from app.features.code.code_view import CodeView
from app.project.document import Document
from app.project.project import Project
from app.util.frozen import FrozenMap
from app.views.navigation import Navigation, SheetDocument
from app.views.selection import Selection
from tests.support.builder_sheets import row_of

BLOCK = Block(
    "Unit",
    row_of(
        [
            (
                "c",
                "nn.Conv2d",
                "conv",
                {"out_channels": Expr("width"), "kernel_size": 3},
            ),
            ("r", "nn.ReLU", "act"),
        ]
    ),
    params=(Param("width", "int", 8),),
)
PROJECT = Project(
    graph=row_of(
        [
            ("u", "block.Unit", "unit", {"width": 4}),
            ("d", "F.dropout", "drop", {"p": 0.5}),
            ("f", "nn.Flatten", "flat"),
            ("l", "nn.Linear", "head", {"out_features": 10}),
        ],
        (1, 8, 8),
    ),
    blocks=FrozenMap(Unit=BLOCK),
)
KEY = Qt.Key


class Tab:
    """The Code tab over a document, its text made anew after every edit."""

    def __init__(self, qtbot: QtBot) -> None:
        self.document = Document(PROJECT)
        self.sheet = SheetDocument(self.document, Navigation(self.document))
        self.selection = Selection()
        self.view = CodeView(self.selection)
        self.view.edits(self.sheet, with_blocks(catalog(), PROJECT.blocks))
        qtbot.addWidget(self.view)
        self.view.resize(760, 600)
        with qtbot.waitExposed(self.view):
            self.view.show()
        self.document.changed.connect(lambda _before, _after: self.generate())
        self.generate()
        self.edit, self.qtbot = self.view.edit, qtbot
        self.edit.setFocus()
        qtbot.waitUntil(self.edit.hasFocus)

    def generate(self) -> None:
        project = self.document.project
        self.view.set_source(
            analyse(project.graph, with_blocks(catalog(), project.blocks)).source
        )

    def put(self, words: str, further: int = 0) -> None:
        """The caret at the beginning of some words."""
        place = self.edit.document().find(words)
        assert not place.isNull(), self.edit.toPlainText()
        cursor = self.edit.textCursor()
        cursor.setPosition(place.selectionStart() + further)
        self.edit.setTextCursor(cursor)
        QApplication.processEvents()

    def press(
        self, key: KEY, modifiers: Qt.KeyboardModifier = Qt.KeyboardModifier.NoModifier
    ) -> None:
        self.qtbot.keyClick(self.edit, key, modifiers)
        QApplication.processEvents()

    def write(self, text: str) -> None:
        self.qtbot.keyClicks(self.edit, text)
        QApplication.processEvents()

    @property
    def hint(self) -> str:
        hint = self.view.typing.hint
        return hint.text() if hint.isVisible() else ""

    @property
    def undos(self) -> int:
        return self.document.undo_stack.count()


@pytest.fixture
def tab(qtbot: QtBot) -> Tab:
    return Tab(qtbot)


def test_enter_where_there_is_no_value_says_where_layers_are_added(tab: Tab) -> None:
    tab.put("def forward")
    tab.press(KEY.Key_Return)
    assert "Tab" in tab.hint and "paste" in tab.hint
    assert tab.document.project is PROJECT


def test_a_value_typed_over_is_one_edit(tab: Tab) -> None:
    tab.put("144, 10", 5)
    tab.press(KEY.Key_Return)
    assert tab.edit.textCursor().selectedText() == "10"
    tab.write("32")
    assert tab.document.project is PROJECT, "nothing is done before it is finished"
    assert "set out_features of head to 32" in tab.hint
    tab.press(KEY.Key_Return)
    assert tab.document.project.graph.nodes["l"].params["out_features"] == 32
    assert (
        tab.undos == 1
        and tab.document.undo_stack.undoText() == "Set out_features of head to 32"
    )
    assert (
        tab.edit.textCursor().block().text().strip() == "self.head = nn.Linear(144, 32)"
    )
    assert tab.edit.textCursor().positionInBlock() == len(
        "        self.head = nn.Linear(144, 32"
    )
    tab.document.undo_stack.undo()
    assert "nn.Linear(144, 10)" in tab.edit.toPlainText()


def test_what_the_rules_refuse_stays_red_until_escape(tab: Tab) -> None:
    tab.put("144, 10", 5)
    tab.press(KEY.Key_Return)
    tab.write("-3")
    tab.press(KEY.Key_Return)
    assert (
        tab.document.project is PROJECT and "out_features must be at least" in tab.hint
    )
    assert "nn.Linear(144, -3)" in tab.edit.toPlainText()
    marks = tab.edit.extraSelections()
    assert marks[-1].cursor.selectedText() == "-3"
    tab.put("nn.Conv2d", 3)
    tab.write("x")
    assert (
        "Finish the red line" in tab.hint
        and "nn.Linear(144, -3)" in tab.edit.toPlainText()
    )
    tab.put("144, -3")
    tab.press(KEY.Key_Escape)
    assert (
        "nn.Linear(144, 10)" in tab.edit.toPlainText()
        and not tab.hint
        and not tab.view.typing.under_way
    )


def test_what_does_not_parse_is_told(tab: Tab) -> None:
    tab.put("144, 10", 5)
    tab.write("(")
    assert "Python cannot read this" in tab.hint
    tab.press(KEY.Key_Backspace)
    tab.press(KEY.Key_Return)
    assert tab.document.project is PROJECT and tab.undos == 0


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("import torch", "Imports follow"),
        ("class Net", "Rename a block in the inspector"),
        ("def forward", "the network's inputs"),
        ("super()", "begins with this line"),
        ("return x", "wires into the outputs"),
        ("Maps x", "docstring"),
    ],
)
def test_what_cannot_be_typed_says_why(tab: Tab, words: str, reason: str) -> None:
    before = tab.edit.toPlainText()
    tab.put(words, 2)
    for key in (KEY.Key_A, KEY.Key_Backspace, KEY.Key_Delete):
        tab.press(key)
    assert tab.edit.toPlainText() == before and reason in tab.hint
    tab.put("nn.Conv2d")
    assert not tab.hint, "the reason goes when the caret does"


def test_a_wire_is_named_as_one(tab: Tab) -> None:
    tab.put("x, 0.5")
    tab.press(KEY.Key_Delete)
    tab.write("y")
    assert "set by a wire" in tab.hint
    tab.press(KEY.Key_Escape)
    tab.put("0.5")
    tab.press(KEY.Key_Return)
    tab.write("0.25")
    tab.press(KEY.Key_Return)
    assert tab.document.project.graph.nodes["d"].params["p"] == 0.25


def test_a_default_can_be_added_and_taken_away(tab: Tab) -> None:
    tab.put("width, 3)", len("width, 3"))
    tab.write(", stride=2")
    tab.press(KEY.Key_Return)
    assert tab.document.project.blocks["Unit"].graph.nodes["c"].params["stride"] == 2
    tab.put(", stride=2")
    for _ in ", stride=2":
        tab.press(KEY.Key_Delete)
    tab.press(KEY.Key_Return)
    assert (
        "stride" not in tab.document.project.blocks["Unit"].graph.nodes["c"].params
        and tab.undos == 2
    )


def test_a_layer_is_renamed_where_it_is_made_and_where_it_is_called(tab: Tab) -> None:
    tab.put("self.head = ", 6)
    tab.press(KEY.Key_F2)
    assert tab.edit.textCursor().selectedText() == "head"
    tab.write("logits")
    tab.press(KEY.Key_Return)
    assert (
        tab.document.project.graph.nodes["l"].name == "logits"
        and "x = self.logits(x)" in tab.edit.toPlainText()
    )
    tab.put("self.logits(x)", 6)
    tab.press(KEY.Key_Return)
    tab.write("training")
    assert "Every nn.Module has training" in tab.hint
    tab.press(KEY.Key_Escape)


def test_leaving_a_line_finishes_it(tab: Tab) -> None:
    tab.put("144, 10", 5)
    tab.press(KEY.Key_Return)
    tab.write("12")
    tab.press(KEY.Key_Up)
    assert tab.document.project.graph.nodes["l"].params["out_features"] == 12
    tab.put("144, 12", 5)
    tab.press(KEY.Key_Return)
    tab.write("14")
    tab.view.copy_button.setFocus()
    QApplication.processEvents()
    assert tab.document.project.graph.nodes["l"].params["out_features"] == 14


def test_a_paste_is_one_line_and_only_where_one_may_type(tab: Tab) -> None:
    words = QMimeData()
    words.setText("1\n6")
    before = tab.edit.toPlainText()
    tab.put("import torch")
    tab.edit.insertFromMimeData(words)
    assert tab.edit.toPlainText() == before
    tab.put("144, 10", 5)
    tab.press(KEY.Key_Return)
    words.setText("1_6\n")
    tab.edit.insertFromMimeData(words)
    tab.press(KEY.Key_Return)
    assert tab.document.project.graph.nodes["l"].params["out_features"] == 16


def test_an_edit_elsewhere_waits_for_the_line_under_way(tab: Tab) -> None:
    tab.put("144, 10", 5)
    tab.press(KEY.Key_Return)
    tab.write("2")
    graph = tab.document.project.graph.with_param("d", "p", 0.125)
    tab.sheet.apply("Set p", Project(graph=graph, blocks=PROJECT.blocks))
    assert (
        "nn.Linear(144, 2)" in tab.edit.toPlainText()
        and "0.125" not in tab.edit.toPlainText()
    )
    tab.press(KEY.Key_Escape)
    assert (
        "0.125" in tab.edit.toPlainText()
        and "nn.Linear(144, 10)" in tab.edit.toPlainText()
    )


def test_undo_is_that_of_the_drawing(tab: Tab) -> None:
    from PySide6.QtGui import QKeySequence, QShortcut

    undone: list[bool] = []
    QShortcut(QKeySequence.StandardKey.Undo, tab.view, lambda: undone.append(True))
    tab.put("144, 10", 5)
    tab.press(KEY.Key_Return)
    tab.write("-3")
    tab.press(KEY.Key_Return)
    assert "nn.Linear(144, -3)" in tab.edit.toPlainText() and tab.view.typing.under_way
    tab.press(KEY.Key_Z, Qt.KeyboardModifier.ControlModifier)
    assert not undone and "nn.Linear(144, 10)" in tab.edit.toPlainText(), (
        "a red line is undone before the drawing"
    )
    tab.press(KEY.Key_Z, Qt.KeyboardModifier.ControlModifier)
    assert undone


def test_a_selection_over_lines_cannot_be_typed_over(tab: Tab) -> None:
    before = tab.edit.toPlainText()
    tab.put("self.head = ")
    cursor = tab.edit.textCursor()
    cursor.movePosition(QTextCursor.MoveOperation.Up, QTextCursor.MoveMode.KeepAnchor)
    tab.edit.setTextCursor(cursor)
    tab.press(KEY.Key_Delete)
    assert tab.edit.toPlainText() == before and "One line at a time" in tab.hint
