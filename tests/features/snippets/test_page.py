"""The page "Snippet": editor, output, named tensors and graph, with answers of snippets that were really run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QKeySequence, QShortcut, QTextCursor
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QLabel, QWidget

from app.features.snippets.page import EDITED, OWN, SnippetPage
from app.features.snippets.table import columns_of
from app.features.snippets.values import Limits, SnippetAnswer, ready, ready_snippet
from app.views.ui import theme
from app.views.ui.cut_texts import is_cut
from app.views.ui.inspector import TapeInspector
from app.views.ui.widgets import Button
from tests.features.snippets.snippet_answers import ran, shown

CONTROL, NONE = Qt.KeyboardModifier.ControlModifier, Qt.KeyboardModifier.NoModifier

COLUMNS = tuple(column.title for column in columns_of(()))


@pytest.fixture
def page(qtbot, qapp) -> Iterator[SnippetPage]:
    theme.apply(qapp, "dark")
    widget = SnippetPage(Limits())
    qtbot.addWidget(widget)
    widget.resize(1000, 600)
    with qtbot.waitExposed(widget):
        widget.show()
    yield widget


def show(page: SnippetPage, key: str) -> SnippetAnswer:
    page.load_ready(ready_snippet(key))
    answer = shown(key)
    page.set_answer(answer)
    return answer


# -- the editor --------------------------------------------------------------------------------------------------------


def test_a_ready_snippet_stands_there_at_first_and_others_can_be_chosen(page) -> None:
    assert (
        page.edit.text() == ready()[0].text.rstrip("\n")
        and "requires a gradient" in page.words.text()
    )
    assert [page.ready.itemText(at) for at in range(page.ready.count())] == [
        OWN,
        *(one.title for one in ready()),
    ]
    before = page.edit.text()
    page.ready.setCurrentIndex(3)
    page.ready._emit_edited()
    assert page.edit.text() == ready()[2].text.rstrip("\n")
    page.edit.undo()
    assert page.edit.text() == before


def test_what_is_typed_into_a_ready_snippet_is_ones_own(page) -> None:
    QTest.keyClicks(page.edit, "y = 1")
    assert page.ready.value() is None and page.snippet().text.startswith("y = 1")
    assert len(page.edit.lexed.lines) == page.edit.blockCount()


def test_the_description_of_an_example_goes_with_its_last_line(page) -> None:
    page.load_ready(ready()[0])
    QTest.keyClicks(page.edit, "# mine")
    assert page.words.isVisible(), "the example with a change is still the example"
    page.edit.selectAll()
    QTest.keyClicks(page.edit, "x = 1")
    assert not page.words.isVisible()
    page.load_ready(ready()[0])
    assert page.words.isVisible()


def test_ctrl_z_beside_the_line_of_an_error_undoes_what_was_typed_and_no_step_of_the_project(
    page,
) -> None:
    undone: list[bool] = []
    QShortcut(QKeySequence.StandardKey.Undo, page, lambda: undone.append(True))
    before = page.edit.text()
    QTest.keyClicks(page.edit, "y = = 1")
    page.edit.mark_error(1)
    while page.edit.text() != before:
        QTest.keyClick(page.edit, Qt.Key.Key_Z, CONTROL)
        assert not undone


def test_undo_takes_back_word_by_word_what_was_typed(page) -> None:
    page.load("")
    QTest.keyClicks(page.edit, "loss = torch.exp(w_1)")
    seen = []
    while page.edit.text():
        QTest.keyClick(page.edit, Qt.Key.Key_Z, CONTROL)
        seen.append(page.edit.text())
    assert seen == ["loss = torch.exp(", "loss = ", ""]
    QTest.keyClick(page.edit, Qt.Key.Key_Y, CONTROL)
    QTest.keyClicks(page.edit, "3")
    QTest.keyClick(page.edit, Qt.Key.Key_Z, CONTROL)
    assert page.edit.text() == "loss = ", (
        "what was typed after an undo is a step of its own"
    )


def test_lines_are_indented_as_python_wants_them(page) -> None:
    page.load("")
    QTest.keyClicks(page.edit, "for i in x:")
    QTest.keyClick(page.edit, Qt.Key.Key_Return)
    QTest.keyClicks(page.edit, "print(i)")
    QTest.keyClick(page.edit, Qt.Key.Key_Return)
    QTest.keyClick(page.edit, Qt.Key.Key_Backspace)
    QTest.keyClicks(page.edit, "y")
    assert page.edit.text() == "for i in x:\n    print(i)\ny"
    page.edit.selectAll()
    QTest.keyClick(page.edit, Qt.Key.Key_Tab)
    assert page.edit.text() == "    for i in x:\n        print(i)\n    y"
    page.edit.selectAll()
    QTest.keyClick(page.edit, Qt.Key.Key_Backtab)
    assert page.edit.text() == "for i in x:\n    print(i)\ny"
    page.load("    return x")
    page.edit.moveCursor(QTextCursor.MoveOperation.End)
    QTest.keyClick(page.edit, Qt.Key.Key_Return)
    QTest.keyClicks(page.edit, "z")
    assert page.edit.text() == "    return x\nz"


def test_ctrl_enter_runs_from_anywhere_and_escape_leaves_the_editor(
    page, qtbot
) -> None:
    page.edit.setFocus()
    with qtbot.waitSignal(page.runRequested):
        QTest.keyClick(page.edit, Qt.Key.Key_Return, CONTROL)
    QTest.keyClick(page.edit, Qt.Key.Key_Escape)
    assert page.run.hasFocus()
    with qtbot.waitSignal(page.runRequested):
        QTest.keyClick(page.table, Qt.Key.Key_Return, CONTROL)


def test_escape_stops_what_runs_and_run_is_offered_nowhere_meanwhile(
    page, qtbot
) -> None:
    (offer,) = (
        button for button in page.room.findChildren(Button) if button.text() == "Run"
    )
    assert offer.isVisible()
    page.set_running(True)
    assert not offer.isVisible()
    for widget in (page.edit, page.table):
        with qtbot.waitSignal(page.stopRequested):
            QTest.keyClick(widget, Qt.Key.Key_Escape)
    page.set_running(False)
    assert offer.isVisible()


def test_a_line_break_behind_a_line_that_is_too_long_shows_lines_from_their_beginning(
    page,
) -> None:
    page.load("")
    page.resize(760, 600)
    bar = page.edit.horizontalScrollBar()
    for line in ("while True:", "x"):
        while bar.value() == 0:
            QTest.keyClicks(page.edit, "x + ")
        page.edit.insertPlainText(line)
        QTest.keyClick(page.edit, Qt.Key.Key_Return)
        assert bar.value() == 0
    while bar.value() == 0:
        QTest.keyClicks(page.edit, "x + ")
    QTest.keyClick(page.edit, Qt.Key.Key_Home)
    assert bar.value() == 0


def test_a_text_that_is_not_trusted_cannot_come_back_by_undo(page, qtbot) -> None:
    page.load("import os", "theirs.py", Path("theirs.py"))
    assert page.foreign == Path("theirs.py") and page.banner.isVisible()
    page.load_ready(ready()[1])
    assert page.foreign is None and not page.banner.isVisible()
    page.edit.undo()
    assert "import os" not in page.edit.text()
    page.load("import os", "theirs.py", Path("theirs.py"))
    QTest.keyClicks(page.edit, "x = 1")
    assert page.foreign is not None, "a line added to it does not make it one's own"
    page.edit.selectAll()
    QTest.keyClick(page.edit, Qt.Key.Key_Delete)
    qtbot.waitUntil(lambda: page.foreign is None)
    page.edit.undo()
    assert page.edit.text() == ""


# -- what came of it ---------------------------------------------------------------------------------------------------


def test_named_tensors_stand_in_a_table_and_their_graphs_a_row_away(page) -> None:
    show(page, "retain_grad")
    model = page.table.cells
    rows = {
        model.data(model.index(row, 0)): [
            model.data(model.index(row, column)) for column in range(len(COLUMNS))
        ]
        for row in range(model.rowCount())
    }
    assert list(rows) == ["x", "w", "b", "u", "v", "loss"]
    assert dict(zip(COLUMNS, rows["u"], strict=True)) == {
        "Name": "u",
        "Shape": "3",
        "requires_grad": "True",
        "grad_fn": "MulBackward0",
        ".grad": "[1.2, −1.8, 6.2]  norm 6.567",
        "is_leaf": "False",
        "_version": "0",
        "dtype": "float32",
        "Values": "[0.5, −1, 3]",
    }
    assert page.shown.name == "loss" and page.room.head.root.text() == "loss.grad_fn"
    page.table.setCurrentIndex(model.index(3, 0))
    assert page.shown.name == "u" and page.room.tape is page.answer.graph_of("u").tape
    page.table.setCurrentIndex(model.index(0, 0))
    assert page.shown.name == "u", "x has no graph"


def test_a_graph_that_backward_freed_is_said_to_be(page) -> None:
    show(page, "retain_grad")
    assert "was freed by backward in line 9" in page.status.text()
    QTest.keyClicks(page.edit, "#")
    assert page.status.text() == EDITED


def test_an_error_marks_its_line_and_says_what_was_changed(page) -> None:
    show(page, "inplace_saved")
    assert page.edit.error_line == 7
    assert "RuntimeError in line 7" in page.status.text()
    assert (
        "SigmoidBackward0 (line 2) saved result at version 0; it is at version 1 now"
        in page.status.text()
    )
    text = page.output.toPlainText()
    assert (
        text.startswith("saved at version 0")
        and "modified by an inplace operation" in text
    )
    QTest.keyClicks(page.edit, "#")
    QTest.keyClick(page.edit, Qt.Key.Key_Return)
    assert page.edit.error_line == 8 and "RuntimeError" in page.status.text(), (
        "another line was edited"
    )
    caret = page.edit.textCursor()
    caret.setPosition(page.edit.document().findBlockByNumber(7).position())
    page.edit.setTextCursor(caret)
    QTest.keyClicks(page.edit, "#")
    assert page.edit.error_line == 0 and page.status.text() == EDITED
    end = QTextCursor(page.output.document())
    end.movePosition(QTextCursor.MoveOperation.End)
    assert (
        page.output.toPlainText() == text
        and end.charFormat().foreground().color() == theme.current().text3
    )
    while page.edit.error_line == 0:
        QTest.keyClick(page.edit, Qt.Key.Key_Z, CONTROL)
    assert page.edit.error_line == 7 and "RuntimeError in line 7" in page.status.text()


def test_boxes_carry_the_names_of_variables_and_lines_their_boxes(page, qtbot) -> None:
    show(page, "spreading")
    boxes = {item.box.title: item.box for item in page.room.scene.boxes.values()}
    assert boxes["AddBackward0"].subtitle == "b" and boxes["z"].shape == "leaf"
    page.room.scene.choose(
        next(
            key for key, item in page.room.scene.boxes.items() if item.box is boxes["z"]
        )
    )
    assert page.edit.is_selected_line(6)
    page.room.scene.choose("")
    page.edit.line_chosen.emit(6)
    assert [part.link for part in page.room.scene.linked_parts()] == ["line:6"]
    page.edit.line_chosen.emit(1)
    assert not page.room.scene.linked_parts()


@pytest.mark.parametrize(("text", "size"), [(1.0, (492, 310)), (1.5, (400, 290))])
def test_a_small_page_is_scrolled_and_cuts_nothing(
    page, qtbot, qapp, text, size
) -> None:
    holder = QWidget()
    qtbot.addWidget(holder)
    page.setParent(holder)
    show(page, "inplace_saved")
    theme.apply(qapp, "light", text)
    holder.resize(*size)
    page.resize(*size)
    page.show()
    holder.show()
    content = page.columns.widget()
    qtbot.waitUntil(lambda: content.width() >= content.minimumSizeHint().width() > 0)
    right = page.room.mapTo(content, page.room.rect().topRight()).x()
    assert right <= content.width() and page.table.height() >= 60
    assert text > 1 or content.width() <= page.columns.viewport().width(), (
        "nothing is scrolled sideways at 1024 px"
    )
    assert not is_cut(page.status) and not is_cut(page.words)
    heads = page.table.horizontalHeader()
    whole = [heads.fontMetrics().horizontalAdvance(name) for name in COLUMNS[:-1]]
    qtbot.waitUntil(
        lambda: all(
            heads.sectionSize(column) > width for column, width in enumerate(whole)
        )
    )
    theme.apply(qapp, "dark", 1.0)
    page.setParent(None)


def test_without_a_graph_it_says_why(page) -> None:
    page.load("x = torch.ones(2)")
    page.set_answer(ran("x = torch.ones(2)"))
    assert "requires_grad=True" in page.status.text() and page.room.tape is None
    assert page.table.model().rowCount() == 1


def test_running_is_said_and_a_limit_too(page) -> None:
    page.set_running(True)
    assert (
        not page.run.isEnabled()
        and page.stop.isEnabled()
        and page.status.text() == "Running…"
    )
    page.show_output("so far")
    assert page.output.toPlainText() == "so far"
    page.set_running(False)
    page.set_answer(
        SnippetAnswer(
            "time",
            "The snippet did not finish within 10 s and was stopped.",
            output="so far",
        )
    )
    assert (
        page.status.text() == "The snippet did not finish within 10 s and was stopped."
        and page.output.toPlainText() == "so far"
    )


@pytest.mark.parametrize("look", ["dark", "light"])
@pytest.mark.parametrize("size", [(740, 470), (1300, 800)])
def test_nothing_is_cut_in_a_small_window(
    page, qapp, look: str, size: tuple[int, int]
) -> None:
    theme.apply(qapp, look)
    show(page, "frozen_resnet18")
    page.resize(*size)
    qapp.processEvents()
    assert page.width() == size[0] and page.height() == size[1], (
        "it fits in what it is given"
    )
    parts = (page.edit, page.output, page.room, page.table)
    for widget in (page.run, page.stop, page.ready, page.open, page.save, *parts):
        assert (
            widget.isVisible()
            and widget.width() >= widget.minimumSizeHint().width() // 2
        )
        corner = widget.mapTo(page, widget.rect().bottomRight())
        assert corner.x() < page.width() and corner.y() < page.height()
    assert page.run.width() >= page.run.sizeHint().width()


# -- playing -----------------------------------------------------------------------------------------------------------

STEPPED = """w = torch.ones(3, requires_grad=True)
h = w.exp()
loss = (h * h).sum()
loss.backward()
"""


def play(page: SnippetPage, text: str) -> None:
    page.load(text)
    page.set_answer(ran(text, play=True))


def test_a_graph_is_stepped_through_with_its_norms_and_the_line_is_lit(
    page, qtbot
) -> None:
    assert page.snippet().play and page.deck.isHidden(), "there is nothing to play yet"
    play(page, STEPPED)
    player, order = page.player, page.shown.tape.order
    assert page.deck.isVisible() and page.deck.deck.state() == "at_start"
    assert page.deck.count.text() == f"1/{len(order)}"
    page.deck.deck.button("step").click()
    page.deck.deck.button("step").click()
    assert player.position == 2 and [record.node for record in player.records] == list(
        order[:2]
    )
    assert "ExpBackward0, line 2 runs next, grad_out 9.42" in page.deck.words.toolTip()
    assert page.room.scene.played.boxes and page.edit._hovered == {2}
    page.deck.deck.button("step_back").click()
    assert (
        player.position == 1
        and "MulBackward0, line 3 runs next, grad_out 1.73" in page.deck.words.toolTip()
    )
    page.deck.deck.button("to_end").click()
    assert (
        page.deck.deck.state() == "at_end"
        and page.deck.words.toolTip() == "All nodes have run."
    )
    page.deck.deck.button("to_start").click()
    assert player.position == 0 and page.deck.deck.state() == "at_start"
    player.set_speed(None)
    page.deck.deck.button("run").click()
    qtbot.waitUntil(
        lambda: player.position == len(order) and page.deck.deck.state() == "at_end",
    )
    assert len(player.norms) == sum(len(record.leaving) for record in player.records)


def test_play_stops_where_it_is_paused_and_another_graph_begins_anew(
    page, qtbot
) -> None:
    play(page, STEPPED)
    page.player.set_speed(1.0)
    page.player.play()
    assert page.deck.deck.state() == "running"
    page.deck.deck.button("run").click()
    assert page.player.state == "standing" and page.deck.deck.state() != "running"
    page.player.step()
    play(page, STEPPED.replace("exp", "sin"))
    assert (
        page.player.position == 0
        and not page.player.keeps
        and not page.room.scene.played.boxes
    )
    page.set_answer(None)
    assert page.deck.isHidden() and len(page.player) == 0


def test_where_a_pass_ended_and_why_there_is_none_is_said(page) -> None:
    play(
        page,
        "w = torch.ones(3, requires_grad=True)\nh = w.exp()\nz = h.sin() * 2\nh.add_(1)\n"
        "loss = z.sum()\nloss.backward()",
    )
    page.player.seek(99)
    assert page.deck.words.toolTip().startswith(
        "The backward pass ended here. RuntimeError: one of the variables needed for gradient"
    )
    page.set_answer(ran(STEPPED))
    assert (
        page.deck.deck.state() == "blocked"
        and "to play it" in page.deck.words.toolTip()
    )


def test_a_saved_view_says_how_much_its_whole_storage_holds(qtbot) -> None:
    tape = ran(
        "w = torch.ones(2, requires_grad=True)\nx = (w.expand(1024, 2) * 2)[:1]\ny = x.exp() * x"
    ).graph.tape
    page = TapeInspector()
    qtbot.addWidget(page)
    node = next(
        one
        for one in tape.nodes
        if any(s.bytes < tape.storages[s.storage].bytes for s in one.saved)
    )
    page.show_item(tape, node)
    view = next(
        one for one in page.findChildren(QLabel) if one.toolTip().startswith("A view")
    )
    assert view.text() == "8 B\nof 8.00 KiB"
