"""The Autograd tab's second page in the window: run, stop, trust, and which graph the inspector speaks of."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QFileDialog, QLabel

from app.features.snippets.control import SnippetControl
from app.features.snippets.values import ready_snippet
from app.views.pictures.picture_export import PictureDialog
from app.views.trust_dialog import TrustDialog
from tests.autograd.test_replay_html import Page
from tests.support.whole_window import WholeWindow

CONTROL = Qt.KeyboardModifier.ControlModifier


@pytest.fixture
def window(qtbot, window: WholeWindow) -> Iterator[WholeWindow]:
    yield window
    window.snippets.close()
    qtbot.waitUntil(lambda: not window.snippets.running)


def finish(qtbot, window: WholeWindow) -> None:
    qtbot.waitUntil(lambda: not window.snippets.running)


def test_a_snippet_runs_on_ctrl_enter_and_its_graph_is_inspected(window, qtbot) -> None:
    snippets = window.snippets
    assert not window.graphs.toggle.isVisible()
    window.actions_by_key["snippet"].trigger()
    assert (
        window.graphs.toggle.isVisible()
        and snippets.page.isVisible()
        and snippets.page.edit.hasFocus()
    )
    assert not snippets.running, "nothing runs before somebody says so"
    snippets.page.load(
        "x = torch.ones(2, requires_grad=True)\ny = x.exp().sum()\nprint('ran')"
    )
    QTest.keyClick(snippets.page.edit, Qt.Key.Key_Return, CONTROL)
    assert snippets.running and snippets.page.stop.isEnabled()
    finish(qtbot, window)
    page = snippets.page
    assert page.answer.error is None and page.output.toPlainText().strip() == "ran"
    assert page.room.tape is page.answer.graph.tape
    assert window.room.tape is None, "the net's own graph is another"
    box = next(
        key
        for key, item in page.room.scene.boxes.items()
        if item.box.title == "ExpBackward0"
    )
    page.room.scene.choose(box)
    assert window.tape_inspector.shown_item().name == "ExpBackward0"
    window.graphs.toggle.set_value("net")
    assert window.room.isVisible() and window.tape_inspector.shown_item() is None
    window.graphs.toggle.set_value("snippet")
    assert window.tape_inspector.shown_item().name == "ExpBackward0"
    snippets.close()
    again = SnippetControl(window.workspace)
    again.follow(window.graphs, window.tape_inspector, window.tape_control.replay.write)
    assert again.page.edit.text() == page.edit.text() and not again.running, (
        "it is kept, and does not run by itself"
    )
    again.page.load("import os", "theirs.py", Path("theirs.py"))
    again.close()
    assert window.settings.snippet == page.edit.text(), (
        "what nobody trusts is not kept as one's own"
    )
    again.page.load_ready(ready_snippet("spreading"))
    again.close()
    assert window.settings.snippet == ""


def test_a_snippet_is_stepped_through_and_written_as_a_page_that_plays_it(
    window, qtbot, tmp_path, monkeypatch
) -> None:
    snippets = window.snippets
    window.actions_by_key["snippet"].trigger()
    snippets.page.load(
        "w = torch.ones(4, requires_grad=True)\nloss = (w * 3).sum()\nloss.backward()"
    )
    snippets.run()
    finish(qtbot, window)
    page = snippets.page
    page.deck.deck.button("step").click()
    assert window.tape_inspector.shown_item().name == "MulBackward0", (
        "what runs next is looked at"
    )
    words = "\n".join(
        part.text() for part in window.tape_inspector.widget().findChildren(QLabel)
    )
    assert "grad_out, arriving" in words and "2.00" in words
    file = tmp_path / "page.html"
    monkeypatch.setattr(
        QFileDialog,
        "getSaveFileName",
        lambda *_args: (str(file), "HTML replay (*.html)"),
    )
    page.room.exportRequested.emit(page.room.drawing())
    window.findChild(PictureDialog).save_button.click()
    qtbot.waitUntil(
        lambda: file.exists() and file.read_text("utf-8").rstrip().endswith("</html>"),
    )
    steps = Page(file.read_text("utf-8")).data["steps"]
    assert [step["norm"] for step in steps] == [1.0, 2.0, 6.0]


def test_the_steps_of_the_net_do_not_stand_beside_a_snippet(window, qtbot) -> None:
    window.pages.show("autograd")
    window.pages.turn_to("steps")
    window.graphs.show("snippet")
    assert not window.pages.is_front("steps") and window.pages.is_front("layers")
    window.graphs.show("net")
    assert window.pages.is_front("steps")
    window.pages.turn_to("layers")


def test_steps_and_tape_stay_in_the_bar_beside_a_snippet_and_a_click_brings_the_net_back(
    window, qtbot
) -> None:
    for dock, pane, key in (
        ("left", window.left.pane, "steps"),
        ("bottom", window.bottom.pane, "tape"),
    ):
        window.pages.show("autograd")
        window.graphs.show("snippet")
        assert window.pages.is_offered(dock, key) and not window.pages.is_front(key)
        place = pane.tabs.tabRect(pane.tabs.index(key)).center()
        QTest.mouseClick(pane.tabs, Qt.MouseButton.LeftButton, pos=place)
        assert window.graphs.shows("net") and window.pages.is_front(key)
    window.pages.turn_to("layers")


CUT = """w = torch.ones(3, requires_grad=True)
b = torch.zeros(3, requires_grad=True)
x = torch.arange(3.0)
h = (w * x).detach()
loss = (h + b).sum()
loss.backward()
"""


def test_a_snippet_has_its_findings_and_neither_tape_nor_findings_of_the_net_stand_beside_it(
    window, qtbot
) -> None:
    snippets, pages = window.snippets, window.pages
    pages.show("tape")
    window.actions_by_key["snippet"].trigger()
    assert not pages.is_front("tape")
    snippets.page.load(CUT)
    window.actions_by_key["findings"].trigger()
    page = window.snippet_findings.page
    assert (
        page.isVisible()
        and not window.findings_control.page.isVisible()
        and not snippets.running
    )
    QTest.mouseClick(page.empty.button, Qt.MouseButton.LeftButton)
    assert page.stop.isVisible()
    finish(qtbot, window)
    (row,) = page.list.rows
    assert (
        row.finding.title == "w"
        and "cut at line 4" in row.finding.sentence
        and "detach()" in row.finding.cure
    )
    QTest.mouseClick(row, Qt.MouseButton.LeftButton)
    assert snippets.page.edit.extraSelections()[0].cursor.blockNumber() == 3
    snippets.page.edit.set_text(CUT.replace(".detach()", ""), undo=True)
    QTest.keyClick(snippets.page.edit, Qt.Key.Key_Return, CONTROL)
    finish(qtbot, window)
    assert not page.list.rows and "Nothing found" in page.list.foot.text(), (
        "a run beside the findings is for them too"
    )
    window.graphs.toggle.set_value("net")
    assert window.findings_control.page.isVisible() and pages.is_offered(
        "bottom", "tape"
    )


def test_stop_ends_a_snippet_and_the_net_comes_back_to_the_front(window, qtbot) -> None:
    snippets = window.snippets
    window.actions_by_key["snippet"].trigger()
    snippets.page.load("print('here')\nwhile True:\n    pass")
    snippets.page.run.click()
    qtbot.waitUntil(lambda: "here" in snippets.page.output.toPlainText())
    snippets.page.stop.click()
    finish(qtbot, window)
    assert (
        snippets.page.status.text() == "Stopped."
        and snippets.page.output.toPlainText().strip() == "here"
    )
    assert snippets.page.run.isEnabled() and not snippets.page.stop.isEnabled()
    window.pages.show("network")
    assert not window.graphs.toggle.isVisible()
    window.actions_by_key["capture"].trigger()
    assert window.graphs.toggle.value() == "net" and window.room.isVisible()
    qtbot.waitUntil(lambda: not window.background.busy)


def test_a_file_runs_only_when_it_is_trusted(window, qtbot, tmp_path: Path) -> None:
    snippets, mark = window.snippets, tmp_path / "ran"
    file = tmp_path / "theirs.py"
    file.write_text(
        f"from pathlib import Path\nPath({str(mark)!r}).touch()\nx = torch.ones(1)\n"
    )
    snippets.open(file)
    window.pages.show("autograd")
    assert (
        snippets.page.banner.isVisible()
        and "not trusted" in snippets.page.banner.title()
    )
    snippets.run()
    dialog = window.findChild(TrustDialog)
    assert dialog is not None and not snippets.running and not mark.exists()
    assert "separate process" in dialog.warning
    dialog.trust_button.click()
    qtbot.waitUntil(lambda: snippets.page.foreign is None)
    assert not mark.exists(), "trusted, and still nobody has pressed Run"
    snippets.run()
    finish(qtbot, window)
    assert mark.exists() and snippets.page.answer.tensor("x").shape == (1,)
