"""The page "Compare": two models asked for by keys, the layer where they part, both in one picture, and what goes
wrong."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace as with_values
from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QApplication, QPushButton, QWidget
from pytestqt.qtbot import QtBot

from app.diagram.layout import Sizes, pack
from app.engine import observe_process
from app.engine.own_engine import OwnEngine
from app.features.compare import control as control_module
from app.features.compare.ask_dialog import ELSEWHERE, ITSELF, OTHER, AskDiffDialog
from app.features.compare.layer_rows import COLUMNS, rows_of
from app.features.compare.merged_tree import MergedTree
from app.features.compare.page import STRUCTURE, Compared, DiffPage, LayerTable
from app.features.compare.side_reader import CompareTrustDialog
from app.features.compare.source_lines import SourceLine
from app.features.compare.values import (
    Alone,
    Apart,
    Changed,
    Difference,
    Layer,
    Moved,
    Setting,
    Structure,
)
from app.project.project import Project
from app.views.settings import Settings
from app.views.ui import theme
from app.views.ui.background import Background
from tests.support.whole_window import WholeWindow
from tests.support.windows import leave
from tests.views.window.test_window import ready

NET = """
import pathlib
from torch import nn

pathlib.Path({marker!r}).touch()




class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.norm = nn.LayerNorm(8, eps={eps})
        self.last = nn.Linear(8, 3)

    def forward(self, x):
        return self.last(self.norm(self.first(x)).relu())
"""

pytestmark = pytest.mark.usefixtures("nothing_trusted")


@pytest.fixture
def nets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, eps in (("one", 1e-5), ("two", 1e-3)):
        (tmp_path / f"{name}_net.py").write_text(
            NET.format(marker=str(tmp_path / f"ran_{name}"), eps=eps)
        )
    return tmp_path


@pytest.fixture
def digits(qtbot: QtBot, window: WholeWindow) -> WholeWindow:
    window.files.open_example("digits.tape")
    ready(qtbot, window)
    return window


def asked(qtbot: QtBot, window: WholeWindow) -> AskDiffDialog:
    window.actions_by_key["compare-with"].trigger()
    qtbot.waitUntil(
        lambda: any(part.isVisible() for part in window.findChildren(AskDiffDialog))
    )
    return next(part for part in window.findChildren(AskDiffDialog) if part.isVisible())


def agree(qtbot: QtBot, dialog: AskDiffDialog, word: str) -> None:
    """Answer the question about a file."""
    qtbot.waitUntil(
        lambda: any(one.isVisible() for one in dialog.findChildren(CompareTrustDialog))
    )
    question = next(
        one for one in dialog.findChildren(CompareTrustDialog) if one.isVisible()
    )
    button = next(
        one for one in question.findChildren(QPushButton) if one.text() == word
    )
    qtbot.mouseClick(button, Qt.MouseButton.LeftButton)


def itself(qtbot: QtBot, window: WholeWindow) -> DiffPage:
    """Compare the open project in float32 and bfloat16."""
    dialog = asked(qtbot, window)
    dialog.what.set_value(ITSELF)
    qtbot.keyClick(dialog, Qt.Key.Key_Return)
    return window.diff


def test_the_layer_where_two_files_part_is_named_once_both_are_trusted(
    qtbot: QtBot, window: WholeWindow, nets: Path
) -> None:
    dialog = asked(qtbot, window)
    qtbot.keyClicks(dialog.a, "one_net.py:Net")
    qtbot.keyClicks(dialog.b, "two_net.py:Net")
    qtbot.keyClicks(dialog.inputs, "2x4")
    dialog.b.setFocus()
    qtbot.keyClick(dialog.b, Qt.Key.Key_Return)
    agree(qtbot, dialog, "Trust and compare")
    assert not [*nets.glob("ran_*")]
    agree(qtbot, dialog, "Trust and compare")
    page = window.diff
    qtbot.waitUntil(lambda: page.compared is not None)
    assert (
        page.compared.found.first.a == "norm"
        and "They first differ at norm, in the forward pass"
        in (page.verdict.sentence.text())
    )
    assert {one.name for one in nets.glob("ran_*")} == {
        "ran_one",
        "ran_two",
    } and "two_net" not in sys.modules
    # its row is selected and marked, and its line is shown in both files
    assert page.table.current.layer.a == "norm" and page.home is page.table
    qtbot.waitUntil(lambda: "two_net.py" in page.lines.b.caption.text())
    line = (
        NET.splitlines().index(
            "        return self.last(self.norm(self.first(x)).relu())"
        )
        + 1
    )
    assert page.lines.a.edit.is_selected_line(
        line
    ) and page.lines.b.edit.is_selected_line(line)
    model = page.table.model()
    tones = {
        page.table.rows[row].layer.a: model.data(
            model.index(row, 0), Qt.ItemDataRole.AccessibleTextRole
        )
        for row in range(model.rowCount())
    }
    assert tones["norm"] == "norm, adds" and tones["last"] == "last, inherited"
    # by a click on the head the largest error of its own comes first
    header = page.table.horizontalHeader()
    at = QPoint(
        header.sectionViewportPosition(titles().index("Added")) + 12,
        header.height() // 2,
    )
    qtbot.mouseClick(header.viewport(), Qt.MouseButton.LeftButton, pos=at)
    qtbot.mouseClick(header.viewport(), Qt.MouseButton.LeftButton, pos=at)
    assert page.table.rows[0].layer.a == "norm" and page.table.current.layer.a == "norm"
    # both in one picture, where the layer is selected too
    page.which.set_value(STRUCTURE)
    qtbot.waitUntil(lambda: page.structure.scene.current_key() == "a:norm")
    box = next(one for one in page.structure.drawing().boxes if one.id == "a:norm")
    assert box.mark == "changed" and "eps 1e-05 → 0.001" in box.lines
    assert [one.key for one in page.structure.table.rows] == ["a:norm"]
    qtbot.keyClick(page.structure.view, Qt.Key.Key_Left)
    assert page.table.current.layer.a == "first"
    # where the row has no line, as that of a whole model, it is that of the operation where they part
    page.lines.show_lines(SourceLine(), SourceLine())
    page.layerChosen.emit(with_values(page.table.rows[0].layer, line_a=0, line_b=0))
    qtbot.waitUntil(lambda: "two_net.py" in page.lines.b.caption.text())
    assert page.lines.b.edit.is_selected_line(line)
    QGuiApplication.clipboard().clear()
    page.copy_menu.actions()[1].trigger()
    qtbot.waitUntil(lambda: QGuiApplication.clipboard().text().startswith("{"))
    assert json.loads(QGuiApplication.clipboard().text())["first"]["line_b"] == line


def test_the_command_waits_for_its_page_which_is_made_on_demand(qtbot: QtBot) -> None:
    window = WholeWindow(Settings("TapedeckTest", "compared"))
    window.show()
    window.start()
    dialog = asked(qtbot, window)
    assert dialog.what.value() == OTHER and not dialog.compare_button.isEnabled()
    dialog.reject()
    leave(window)


def test_the_focus_is_on_the_page_while_it_compares_and_on_its_layers_then(
    qtbot: QtBot, digits: WholeWindow
) -> None:
    digits.activateWindow()
    digits.pages.show("diff")
    qtbot.waitUntil(lambda: hasattr(digits, "diff") and digits.diff.isVisible())
    digits.diff.empty.button.setFocus()
    page = itself(qtbot, digits)
    qtbot.waitUntil(lambda: digits.focusWidget() is page.cancel)
    qtbot.waitUntil(lambda: page.compared is not None and not page.working_on)
    qtbot.waitUntil(lambda: digits.focusWidget() is page.table)
    page.ask.setFocus()
    page.compared = None
    itself(qtbot, digits)
    qtbot.waitUntil(lambda: page.compared is not None and not page.working_on)
    qtbot.waitUntil(lambda: digits.focusWidget() is page.table)


def test_nothing_runs_without_trust_and_the_field_says_so(
    qtbot: QtBot, digits: WholeWindow, nets: Path
) -> None:
    dialog = asked(qtbot, digits)
    assert dialog.a.placeholderText().startswith("digits")
    for words, why in (
        ("no_such.tape", "There is no file"),
        ("nothing", "does not name a model"),
        ("digits.runs@", "Nothing follows the @"),
        ("one_net.py:Net", "was run. Compare again to review and trust it."),
    ):
        dialog.b.setText(words)
        qtbot.mouseClick(dialog.compare_button, Qt.MouseButton.LeftButton)
        if words == "one_net.py:Net":
            agree(qtbot, dialog, "Not now")
        qtbot.waitUntil(lambda why=why: why in dialog.entries["b"].note.text())
    dialog.what.set_value(ELSEWHERE)
    assert not dialog.compare_button.isEnabled()
    qtbot.keyClicks(dialog.python, "no_such_python")
    qtbot.mouseClick(dialog.compare_button, Qt.MouseButton.LeftButton)
    assert "no_such_python is not an executable" in dialog.entries["python"].note.text()
    assert (
        not (nets / "ran_one").exists()
        and digits.diff.compared is None
        and not digits.diff.working_on
    )


def test_the_open_project_in_two_modes_leads_to_its_nodes_until_another_is_opened(
    qtbot: QtBot, digits: WholeWindow
) -> None:
    page = itself(qtbot, digits)
    qtbot.waitUntil(lambda: page.compared is not None)
    assert "Nothing differs beyond rounding" in page.verdict.sentence.text()
    page.table.choose("conv2")
    qtbot.keyClick(page.table, Qt.Key.Key_Return)
    assert digits.pages.is_front("network")
    chosen = {
        digits.document.project.graph.nodes[one].name for one in digits.selection.ids
    }
    assert chosen == {"conv2"}
    digits.document.new(Project())
    assert (
        page.note.text() == "A and B are of the project that was open before."
        and page.compared is not None
    )
    digits.pages.show("diff")
    page.table.setFocus()
    qtbot.keyClick(
        page.table, Qt.Key.Key_Return
    )  # its lines, now that there is no node
    qtbot.waitUntil(lambda: "generated code" in page.lines.a.caption.text())
    assert digits.pages.is_front("diff")


def test_a_process_that_is_killed_and_a_cancel_leave_what_is_shown(
    qtbot: QtBot, digits: WholeWindow, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = itself(qtbot, digits)
    qtbot.waitUntil(lambda: page.compared is not None)
    before = page.compared
    begun: list[OwnEngine] = []
    ask = observe_process.answer_in

    def kept(engine: OwnEngine, request: object, **more: object) -> object:
        os.kill(engine.pid, signal.SIGSTOP)  # it computes for as long as the test wants
        begun.append(engine)
        return ask(engine, request, **more)

    monkeypatch.setattr(control_module.observe_process, "answer_in", kept)
    itself(qtbot, digits)
    qtbot.waitUntil(lambda: bool(begun))
    os.kill(begun[0].pid, signal.SIGKILL)
    qtbot.waitUntil(page.banner.isVisible)
    assert (
        "SIGKILL" in page.banner.reason()
        and page.compared is before
        and not page.working_on
    )
    itself(qtbot, digits)
    qtbot.waitUntil(lambda: len(begun) == 2)
    assert page.cancel.isVisible()
    page.table.setFocus()
    qtbot.keyClick(page.table, Qt.Key.Key_Escape)
    assert not page.working_on and page.compared is before
    qtbot.waitUntil(lambda: begun[1].pid is None)


def test_numbers_have_room_at_another_text_size(
    qtbot: QtBot, qapp: QApplication
) -> None:
    table = LayerTable()
    qtbot.addWidget(table)
    table.resize(600, 300)
    apart = Apart(1e-3, 0.00441, 0.9999905)
    table.set_layers(
        rows_of([Layer("body", "body", "Linear", forward=apart, backward=apart)])
    )
    with qtbot.waitExposed(table):
        table.show()
    before = table.rowHeight(0)
    theme.apply(qapp, "dark", 1.5)
    try:
        qtbot.waitUntil(lambda: table.rowHeight(0) > before)
        cosine = titles().index("Cosine")
        qtbot.waitUntil(
            lambda: table.columnWidth(cosine) >= table.sizeHintForColumn(cosine)
        )
        assert table.rowHeight(0) >= table.fontMetrics().height() + 8
    finally:
        theme.apply(qapp, "dark", 1.0)


def test_a_small_page_in_large_text_shows_a_whole_row_and_every_control(
    qtbot: QtBot, qapp: QApplication
) -> None:
    background = Background()
    dock = QWidget()
    page = DiffPage(background, dock)
    qtbot.addWidget(dock)
    theme.apply(qapp, "dark", 1.5)
    try:
        apart = Apart(1e-3, 0.00441, 0.9999905)
        layers = [
            Layer(f"layer{at}", f"layer{at}", "Linear", forward=apart, backward=apart)
            for at in range(9)
        ]
        rows = rows_of(layers)
        found = Difference(
            "the first.tape", "the second.tape", layers=tuple(layers), ran=True
        )
        page.show_compared(Compared(found, rows, MergedTree(found), ""))
        page.resize(361, 286)  # of a window of 1024x700
        dock.resize(page.size())
        with qtbot.waitExposed(dock):
            dock.show()
        qtbot.waitUntil(lambda: page.names.text().startswith("A  "))
        row = page.table.visualRect(page.table.model().index(0, 0))
        assert (
            page.table.viewport().visibleRegion().boundingRect().bottom()
            >= row.bottom()
        )
        assert (
            page.which.width() >= page.which.sizeHint().width()
            and page.names.width() > 100
        )
    finally:
        theme.apply(qapp, "dark", 1.0)
        background.close()


def test_both_hierarchies_are_one_tree_and_equal_ones_fold_into_a_row() -> None:
    pairs = [
        ("", ""),
        ("body", "body"),
        *((f"body.{at}", f"body.{at}") for at in range(6)),
        ("body.6", "body.7"),
        ("head", "head"),
    ]
    structure = Structure(
        tuple(pairs),
        (Alone("body.6", "ReLU"),),
        (Alone("old", "Linear"),),
        (Moved("body.6", "body.7", "Linear"),),
        (Changed("head", "head", (Setting("out_features", "3", "4"),)),),
    )
    tree = MergedTree(Difference("a", "b", structure=structure))
    drawn = tree.drawing(tree.opened())
    texts = [(box.title, box.mark) for box in drawn.boxes]
    assert texts == [
        ("0 … 5", ""),
        ("6", "moved"),
        ("6", "added"),
        ("head", "changed"),
        ("old", "removed"),
    ]
    whole = tree.drawing(tree.opened() | {"a:body*"})
    assert len(whole.boxes) == len(drawn.boxes) + 5
    placed = pack(whole, Sizes({box.id: (100, 40) for box in whole.boxes}), 400)
    rects = [*placed.boxes.values()]
    assert max(one.right for one in rects) <= 400 and len({one.y for one in rects}) > 2
    for at, one in enumerate(rects):
        assert not any(
            one.x < other.right
            and other.x < one.right
            and one.y < other.bottom
            and other.y < one.bottom
            for other in rects[:at]
        )


def titles() -> list[str]:
    return [column.title for column in COLUMNS]
