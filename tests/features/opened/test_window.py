"""Opening any model in the window: asked for, run once beside the window, drawn; a file of one's own once trusted."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from PySide6.QtCore import QEvent, QObject, QPoint, QRectF, Qt
from PySide6.QtGui import QPaintEvent, QRegion
from PySide6.QtWidgets import QFileDialog, QPushButton, QWidget
from pytestqt.qtbot import QtBot

from app.features.opened import page as page_module
from app.features.opened.arrangement import READABLE, LayoutCancelledError
from app.features.opened.open_dialog import ObserveTrustDialog, OpenModelDialog
from app.features.opened.page import ObservedPage
from app.observe.figures import ModuleFigures
from app.observe.observation import Call, Flow, Observation
from app.sources.spec import AskedModel
from tests.support import own_code
from tests.support.whole_window import WholeWindow

MINE = """
import pathlib
from torch import nn

pathlib.Path({marker!r}).touch()


class Net(nn.Module):
    def __init__(self, wrong: int = 0) -> None:
        super().__init__()
        self.parts = nn.Sequential(*(nn.Sequential(nn.Linear(4, 4), nn.ReLU()) for _ in range(6)))
        self.head = nn.Linear(4 + wrong, 2)

    def forward(self, x):
        return self.head(self.parts(x))
"""

TWO = """
from torch import nn


class Two(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first = nn.Linear(width, 2)

    def forward(self, left, *, mask):
        return self.first(left) * mask
"""

pytestmark = pytest.mark.usefixtures("nothing_trusted")


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "mine.py"
    path.write_text(MINE.format(marker=str(tmp_path / "marker")))
    return path


def asked(qtbot: QtBot, window: WholeWindow) -> OpenModelDialog:
    window.actions_by_key["open-model"].trigger()
    qtbot.waitUntil(
        lambda: any(part.isVisible() for part in window.findChildren(OpenModelDialog))
    )
    return next(
        part for part in window.findChildren(OpenModelDialog) if part.isVisible()
    )


def shown(qtbot: QtBot, window: WholeWindow) -> ObservedPage:
    """The page, once the dialog has gone."""
    qtbot.waitUntil(lambda: not window.findChildren(OpenModelDialog))
    page = window.findChild(ObservedPage)
    qtbot.waitUntil(lambda: page.isVisible() and page.observation is not None)
    return page


def titles(page: ObservedPage) -> set[str]:
    drawing = page.drawing()
    assert drawing is not None
    return {part.title for part in (*drawing.boxes, *drawing.groups)}


def test_a_model_of_a_file_is_shown_once_it_is_trusted_and_unfolds(
    qtbot: QtBot, window: WholeWindow, mine: Path
) -> None:
    dialog = asked(qtbot, window)
    qtbot.keyClicks(dialog.source, "mine.py:Net")
    qtbot.keyClick(dialog.source, Qt.Key.Key_Return)
    (question,) = dialog.findChildren(ObserveTrustDialog)
    assert (
        "nn.Linear(4 + wrong, 2)" in question.file.file.text
        and not (mine.parent / "marker").exists()
    )
    agree = next(
        button
        for button in question.findChildren(QPushButton)
        if button.text() == "Trust and open"
    )
    qtbot.mouseClick(agree, Qt.MouseButton.LeftButton)
    page = shown(qtbot, window)
    assert (mine.parent / "marker").exists() and "mine" not in sys.modules
    assert {"x", "Net", "parts", "parts.0–5", "head", "output"} <= titles(page)
    row = next(key for key, part in page._tree.by_key.items() if part.repeated == 6)
    page.scene.choose(row)
    page.view.setFocus()
    page.view.zoom_to(1.6)  # so that the picture does not fit

    def corner() -> QPoint:
        rect = page.scene.rect_of(row)
        return page.view.mapFromScene(rect.x, rect.y)

    before = corner()
    for inside in (True, False, True):
        qtbot.keyClick(page.view, Qt.Key.Key_Return)
        assert ({"parts.0", "parts.5"} <= titles(page)) is inside
        assert (
            corner() - before
        ).manhattanLength() <= 2  # what was clicked stays under the pointer
    for front, inspector in (
        ("observed", window.call_inspector),
        ("autograd", window.tape_inspector),
    ):
        window.pages.show(front)
        assert window.inspectors.currentWidget() is inspector


@pytest.mark.parametrize(
    ("file", "source"),
    [("net.py", "net.py:"), ("net.onnx", "net.onnx"), ("net.pt2", "net.pt2")],
)
def test_any_file_that_is_drawn_can_be_chosen(
    qtbot, window, monkeypatch, file, source
) -> None:
    filters = []
    monkeypatch.setattr(
        QFileDialog,
        "getOpenFileName",
        lambda *words: (filters.append(words[-1]) or file, ""),
    )
    dialog = asked(qtbot, window)
    dialog.browse.click()
    assert dialog.source.text() == source and f"*{Path(file).suffix}" in filters[0]
    dialog.reject()


def test_a_model_that_was_named_at_the_start_opens_by_itself(
    qtbot: QtBot, window: WholeWindow, mine: Path
) -> None:
    asked = AskedModel("mine:Net", inputs=("3x4",), trust=True)
    window.actions_by_key.trigger("open-source", asked)
    page = shown(qtbot, window)
    assert (mine.parent / "marker").exists() and not page.banner.isVisible()
    assert [one.shape for one in page.observation.calls[0].outputs] == [(3, 4)]


def nested(parts: int = 3) -> Observation:
    """A model of modules in modules with an operation each, all of them different."""
    calls = [Call(0, "input", "x", "input"), Call(1, "module", "", "mine.Net")]
    for number in range(parts):
        calls += [
            Call(2 + 3 * number, "module", f"p{number}", "mine.P", 1),
            Call(3 + 3 * number, "module", f"p{number}.q", "mine.Q", 2 + 3 * number),
            Call(
                4 + 3 * number,
                "operation",
                f"p{number}.q",
                f"torch.f{number}",
                3 + 3 * number,
            ),
        ]
    flows = (
        Flow(0, 4),
        *(Flow(1 + 3 * number, 4 + 3 * number) for number in range(1, parts)),
    )
    return Observation("Net", tuple(calls), flows, {})


class Painted(QObject):
    """Whether all that is seen of a widget was painted at once, from now on."""

    def __init__(self, widget: QWidget) -> None:
        super().__init__(widget)
        self.whole = False
        widget.installEventFilter(self)

    def eventFilter(self, widget: QObject, event: QEvent) -> bool:
        if isinstance(event, QPaintEvent) and isinstance(widget, QWidget):
            self.whole |= QRegion(widget.rect()).subtracted(event.region()).isEmpty()
        return False


def places(page: ObservedPage) -> dict[str, QPoint]:
    """Where the corners of all boxes are in the view."""
    return {
        key: page.view.mapFromScene(rect.x, rect.y)
        for key, rect in page.scene.layout_.boxes.items()
    }


def test_the_first_picture_can_be_read_and_a_capture_moves_nothing(
    qtbot: QtBot,
) -> None:
    page = ObservedPage()
    qtbot.addWidget(page)
    page.resize(700, 420)
    page.show()
    for parts, level in (
        (2, {"f0", "f1"}),
        (14, {"p0", "p13"}),
    ):  # as many levels as fit
        page.set_observation(nested(parts), "mine:Net")
        qtbot.waitUntil(lambda: not page.busy)
        assert (
            level <= {box.title for box in page.drawing().boxes}
            and page.view.zoom >= READABLE
        )
        seen = page.view.visible_area()
        assert all(
            seen.contains(QRectF(*rect)) for rect in page.scene.layout_.boxes.values()
        )
    page.view.pan(-31, 17)
    key = next(box.id for box in page.drawing().boxes if box.title == "p3")
    page.scene.choose(key)
    before = places(page)
    page.set_figures([ModuleFigures("p3", 5130, 0.25, 2048)])
    assert places(page) == before and page.scene.current_key() == key
    assert page.scene.boxes[key].box.tags[-1] == "‖grad‖ 0.250"
    assert "5,130 parameters" in page.scene.boxes[key].tooltip
    for parts in (3, 1):  # around the smaller one nothing of the larger one stays
        painted = Painted(page.view.viewport())
        page.set_observation(nested(parts), "mine:Net")
        qtbot.waitUntil(lambda painted=painted: painted.whole)


def test_a_level_keeps_what_is_selected_where_it_is(qtbot: QtBot) -> None:
    page = ObservedPage()
    qtbot.addWidget(page)
    page.resize(700, 420)
    page.show()
    page.set_observation(nested(14), "mine:Net")
    qtbot.waitUntil(lambda: not page.busy)
    key = next(box.id for box in page.drawing().boxes if box.title == "p4")
    page.scene.choose(key)
    page.view.zoom_to(1.5)
    page.view.show_near(page.scene.area_of_boxes([key]))
    before = places(page)[key]
    for sign in (Qt.Key.Key_BracketRight, Qt.Key.Key_BracketLeft):
        qtbot.keyClick(page.view, sign)
        qtbot.waitUntil(lambda: not page.busy)
        rect = page.scene.rect_of(key)
        assert (page.view.mapFromScene(rect.x, rect.y) - before).manhattanLength() <= 2


def test_a_layout_can_be_stopped(qtbot: QtBot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_module, "AT_ONCE", 0)
    page = ObservedPage()
    qtbot.addWidget(page)
    page.show()
    page.set_observation(nested(), "mine:Net")
    qtbot.waitUntil(lambda: not page.busy)
    shown, ended = page.drawing(), threading.Event()

    def endless(
        *_: object, tell: Callable[[float], object], cancelled: Callable[[], bool]
    ) -> None:
        tell(0.25)
        while not cancelled():
            pass
        ended.set()
        raise LayoutCancelledError

    monkeypatch.setattr(type(page._arranger), "arrange", staticmethod(endless))
    page._fold_all()
    qtbot.waitUntil(lambda: "25 %" in page.summary.text() and page.stop.isVisible())
    qtbot.mouseClick(page.stop, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(ended.is_set)
    assert not page.busy and page.drawing() is shown and not page.stop.isVisible()
    assert "Laying out" not in page.summary.text() and page.fold_all.isEnabled()


def test_a_large_picture_is_laid_out_beside_the_window_and_unfolds_by_levels(
    qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_module, "AT_ONCE", 0)
    page = ObservedPage()
    qtbot.addWidget(page)
    page.set_observation(nested(), "mine:Net")
    assert page.busy and "Laying out" in page.summary.text()
    qtbot.waitUntil(lambda: not page.busy)
    assert {"f0", "f2"} <= titles(
        page
    ) and page.summary.text() == "Net · 7 module calls · 3 operations"
    for key, shown in (
        (Qt.Key.Key_BracketLeft, {"p0.q"}),
        (Qt.Key.Key_BracketLeft, {"p0"}),
        (Qt.Key.Key_BracketRight, {"p0.q"}),
        (Qt.Key.Key_BracketRight, {"f0"}),
    ):
        qtbot.keyClick(page.view, key)
        qtbot.waitUntil(lambda: not page.busy)
        assert shown <= {box.title for box in page.drawing().boxes}


def test_of_a_model_that_raises_the_call_that_did_is_chosen_and_said(
    qtbot: QtBot, window: WholeWindow, mine: Path
) -> None:
    own_code.trust("mine:Net", mine.parent)
    dialog = asked(qtbot, window)
    qtbot.keyClicks(dialog.source, "mine:Net")
    qtbot.keyClicks(dialog.arguments, '{"wrong": 1}')
    qtbot.keyClick(dialog.arguments, Qt.Key.Key_Return)
    page = shown(qtbot, window)
    assert page.banner.isVisible() and "mat1 and mat2" in page.banner.reason()
    (red,) = [box for box in page.drawing().boxes if box.category == "error"]
    assert red.title == "head" and page.scene.current_key() == red.id


def test_inputs_come_from_a_function_of_a_file_that_is_reviewed_too(
    qtbot: QtBot, window: WholeWindow, mine: Path
) -> None:
    other = mine.parent / "inputs.py"
    other.write_text("import torch\n\n\ndef example():\n    return torch.ones(7, 4)\n")
    dialog = asked(qtbot, window)
    dialog.source.setText("mine:Net")
    dialog.inputs.setPlainText("1x4")
    dialog.example.setText(f"{other}:example")
    dialog.start()
    assert "choose one of both" in dialog.entries["example"].note.text()
    dialog.inputs.setPlainText("")
    dialog.open_model(
        AskedModel("mine:Net", "", (), trust=True, example=f"{other}:example")
    )
    page = shown(qtbot, window)
    assert "7×4" in str([box for box in page.drawing().boxes])


def test_what_cannot_be_opened_is_said_where_it_was_typed(
    qtbot: QtBot, window: WholeWindow, mine: Path
) -> None:
    dialog = asked(qtbot, window)
    assert not dialog.open_button.isEnabled()
    qtbot.keyClicks(dialog.source, "nothing")
    qtbot.keyClick(dialog.source, Qt.Key.Key_Return)
    assert (
        "does not name a model" in dialog.entries["source"].note.text()
        and dialog.focusWidget() is dialog.source
    )
    dialog.source.setText("torchvision:resnet")
    dialog.inputs.setPlainText("1x")
    dialog.start()
    assert "does not describe an input" in dialog.entries["inputs"].note.text()
    dialog.inputs.setPlainText("")
    dialog.start()
    qtbot.waitUntil(lambda: "torchvision has no model resnet" in dialog.state.text())
    assert (
        dialog.open_button.isEnabled() and dialog.source.text() == "torchvision:resnet"
    )
    (mine.parent / "two.py").write_text(TWO)
    for words, entry in (
        ("two.py:Two needs width: give", "arguments"),
        ("forward takes left, mask", "inputs"),
    ):
        dialog.open_model(AskedModel("two.py:Two", dialog.arguments.text(), trust=True))
        note = dialog.entries[entry].note
        qtbot.waitUntil(lambda note=note, words=words: words in note.text())
        dialog.arguments.setText('{"width": 8}')
    assert (
        dialog.inputs.toPlainText() == "left=2x8\nmask=2x16:bool"
        and dialog.focusWidget() is dialog.inputs
    )
    dialog.inputs.setPlainText("")
    dialog.source.setText("torchvision:vgg11")
    dialog.start()
    dialog.reject()  # stops it; the dialog stays
    qtbot.waitUntil(lambda: dialog.state.text().startswith("Stopped"))
    qtbot.keyClick(dialog, Qt.Key.Key_Escape)
    qtbot.waitUntil(lambda: not window.findChildren(OpenModelDialog))
