"""The Code tab: a line is a node, a node is its lines, and reading is not disturbed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QApplication, QWidget
from pytestqt.qtbot import QtBot

from app.features.code.code_view import CodeView
from app.source.generated import Source
from app.util.frozen import FrozenMap
from app.views.selection import Selection
from app.views.ui import theme
from app.views.ui.code_edit import CodeEdit
from app.views.ui.highlighting import spans

LINES = [
    "from torch import nn",
    "",
    "class Net(nn.Module):",
    "    def __init__(self):",
    "        super().__init__()",
    "        self.conv1 = nn.Conv2d(1, 32, 3)",
    "        self.relu1 = nn.ReLU()",
    "",
    "    def forward(self, x):",
    "        x = self.conv1(x)  # (N, 32, 6, 6)",
    "        x = self.relu1(x)",
    "        return x",
]
SOURCE = Source("\n".join(LINES) + "\n", lines=FrozenMap(c=(6, 10), r=(7, 11)))


@pytest.fixture
def selection() -> Selection:
    return Selection()


@pytest.fixture
def view(qtbot: QtBot, selection: Selection) -> CodeView:
    result = CodeView(selection)
    qtbot.addWidget(result)
    result.resize(700, 400)
    with qtbot.waitExposed(result):
        result.show()
    result.set_source(SOURCE)
    QApplication.processEvents()
    return result


def point_in_line(view: CodeView, line: int) -> QPoint:
    block = view.edit.document().findBlockByNumber(line - 1)
    box = view.edit.blockBoundingGeometry(block).translated(view.edit.contentOffset())
    return QPoint(120, int(box.center().y()))


def marked(view: CodeView) -> set[int]:
    return {mark.cursor.blockNumber() + 1 for mark in view.edit.extraSelections()}


def test_no_line_number_stands_beside_the_scroll_bar(view: CodeView) -> None:
    edit = view.edit
    view.resize(220, 160)
    QApplication.processEvents()
    assert edit.horizontalScrollBar().isVisible()
    gutter = next(
        one for one in edit.findChildren(QWidget) if type(one).__name__ == "_Gutter"
    )
    assert (
        gutter.geometry().bottom()
        <= edit.horizontalScrollBar().parentWidget().geometry().top()
    )


def test_a_node_marks_its_lines(view: CodeView, selection: Selection) -> None:
    selection.set({"c"})
    assert marked(view) == {6, 10}
    selection.set({"c", "r"})
    assert marked(view) == {6, 7, 10, 11}
    selection.set(())
    selection.hover("r")
    assert marked(view) == {7, 11}


def test_a_line_selects_its_node(
    qtbot: QtBot, view: CodeView, selection: Selection
) -> None:
    qtbot.mouseClick(
        view.edit.viewport(), Qt.MouseButton.LeftButton, pos=point_in_line(view, 11)
    )
    assert selection.ids == {"r"}
    qtbot.mouseClick(
        view.edit.viewport(), Qt.MouseButton.LeftButton, pos=point_in_line(view, 3)
    )
    assert selection.ids == {"r"}, "a line without a node changes nothing"


def test_the_caret_selects_by_keyboard(
    qtbot: QtBot, view: CodeView, selection: Selection
) -> None:
    view.edit.setFocus()
    for _ in range(5):
        qtbot.keyClick(view.edit, Qt.Key.Key_Down)
    assert selection.ids == {"c"}
    qtbot.keyClick(view.edit, Qt.Key.Key_Down)
    assert selection.ids == {"r"}


def test_a_click_on_the_line_again_selects_again(
    qtbot: QtBot, view: CodeView, selection: Selection
) -> None:
    qtbot.mouseClick(
        view.edit.viewport(), Qt.MouseButton.LeftButton, pos=point_in_line(view, 6)
    )
    selection.set(())
    qtbot.mouseClick(
        view.edit.viewport(), Qt.MouseButton.LeftButton, pos=point_in_line(view, 6)
    )
    assert selection.ids == {"c"}


def test_an_update_keeps_place_and_selection(
    view: CodeView, selection: Selection
) -> None:
    long = Source(
        "\n".join(f"x{i} = {i}" for i in range(500)) + "\n", lines=FrozenMap(c=(300,))
    )
    view.set_source(long)
    view.edit.verticalScrollBar().setValue(210)
    selection.set({"c"})
    at = view.edit.verticalScrollBar().value()
    assert at != 210, "the lines of a node selected elsewhere come into sight"
    view.set_source(Source(long.text.replace("x7 =", "y7 ="), lines=long.lines))
    assert view.edit.verticalScrollBar().value() == at
    assert marked(view) == {300}
    assert selection.ids == {"c"}


def test_without_source_it_says_why(view: CodeView) -> None:
    view.set_source(None, "The net has a loop.")
    assert (
        view.empty.isVisible()
        and view.empty.accessibleDescription() == "The net has a loop."
    )
    view.set_source(SOURCE, "in step")
    assert view.note.text() == "12 lines · in step"


def test_copy_takes_the_whole_text(qtbot: QtBot, view: CodeView) -> None:
    qtbot.mouseClick(view.copy_button, Qt.MouseButton.LeftButton)
    assert QGuiApplication.clipboard().text() == SOURCE.text
    assert view.copy_button.text() == "Copied"


def test_find_goes_round(qtbot: QtBot, view: CodeView) -> None:
    view.edit.setFocus()
    qtbot.keyClick(view.edit, Qt.Key.Key_F, Qt.KeyboardModifier.ControlModifier)
    bar = view.find_bar
    assert bar.field.hasFocus()
    qtbot.keyClicks(bar.field, "relu1")
    assert bar.count.text() == "1 of 2"
    qtbot.keyClick(bar.field, Qt.Key.Key_Return)
    assert bar.count.text() == "2 of 2"
    qtbot.keyClick(bar.field, Qt.Key.Key_Return)
    assert bar.count.text() == "1 of 2"
    qtbot.keyClick(bar.field, Qt.Key.Key_Return, Qt.KeyboardModifier.ShiftModifier)
    assert bar.count.text() == "2 of 2"
    qtbot.keyClicks(bar.field, "zz")
    assert bar.count.text() == "none found"
    qtbot.keyClick(bar.field, Qt.Key.Key_Escape)
    assert (
        not bar.isVisible() and view.edit.hasFocus() and not view.edit.extraSelections()
    )


def test_it_cannot_be_typed_into(qtbot: QtBot, view: CodeView) -> None:
    view.edit.setFocus()
    qtbot.keyClicks(view.edit, "x")
    assert view.edit.toPlainText() == SOURCE.text.rstrip("\n")


def test_python_is_coloured_by_line() -> None:
    found = spans('class Net:\n    """Two\n    lines 𝒳"""\n    x = 1  # é\n')
    assert [(s.role, s.start, s.length) for s in found[0]] == [
        ("keyword", 0, 5),
        ("name", 6, 3),
    ]
    assert found[1][-1].role == found[2][-1].role == "comment"
    assert ("number", 8, 1) in [(s.role, s.start, s.length) for s in found[3]]
    assert found[3][-1] == type(found[3][-1])(11, 3, "comment")


def test_the_colours_follow_the_theme(view: CodeView) -> None:
    app = QApplication.instance()
    before = theme.manager().choice

    def color() -> str:
        block = view.edit.document().findBlockByNumber(2)
        layout = block.layout()
        ranges = layout.formats()
        return str(ranges[0].format.foreground().color().name())

    try:
        theme.apply(app, "dark")
        dark = color()
        theme.apply(app, "light")
        assert color() != dark
    finally:
        theme.apply(app, before)


@given(
    st.lists(
        st.lists(
            st.sampled_from(["x = 1", "", '"""', "def f():", "# é", "y = '𝒳'"]),
            max_size=8,
        ),
        min_size=2,
    )
)
def test_touching_only_what_differs_gives_the_same_text_and_colours(
    qtbot: QtBot, texts: list[list[str]]
) -> None:
    edit = CodeEdit()
    qtbot.addWidget(edit)
    for lines in texts:
        text = "\n".join(lines)
        edit.show_text(text)
        assert edit.toPlainText() == text
        assert edit.lexed.spans == spans(text)
