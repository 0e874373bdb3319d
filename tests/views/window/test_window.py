"""The window when things go wrong or come in the wrong order: a word to the person, and a program that goes on."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

import pytest
from msgspec.structs import replace
from PySide6.QtCore import QPoint, QPointF, QRect, QSize, Qt, QUrl
from PySide6.QtGui import QDesktopServices
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QAbstractButton, QApplication, QDialog, QLabel, QMenu

from app.project import file
from app.project.project import Project
from app.runs import store
from app.runs.checkpoint_files import checkpoints
from app.training.config import Choice
from app.util import resources
from app.util.frozen import FrozenMap
from app.util.resources import path as resource_path
from app.views.canvas.gestures.gesture import Hit
from app.views.canvas.menus import menu_for
from app.views.settings import Settings
from app.views.ui import theme
from app.views.ui.dialogs.message import DialogAnswer, QuestionDialog
from app.views.ui.docks import TabbedPane
from app.views.ui.widgets import Button
from app.views.ui.widgets.banner import Form
from tests.support import windows
from tests.support.needs import needs
from tests.support.whole_window import WholeWindow
from tests.support.windows import leave, messages

DIGITS = resource_path("examples", "digits.tape")
CTRL = Qt.KeyboardModifier.ControlModifier
LONG = 100_000  # epochs that no test waits for


@pytest.fixture
def window(qtbot, window: WholeWindow) -> WholeWindow:
    """The window on the example, checked and ready to run."""
    window.files.open(DIGITS)
    ready(qtbot, window)
    return window


def ready(qtbot, window: WholeWindow) -> None:
    qtbot.waitUntil(lambda: window.live.up_to_date and window.furnished)


def change(window: WholeWindow, **training: object) -> None:
    """Other settings of the run, as the form makes them."""
    project = window.document.project
    window.document.apply(
        "Change the run",
        replace(project, training=replace(project.training, **training)),
    )


def node(window: WholeWindow, name: str) -> str:
    return next(
        n.id for n in window.document.project.graph.nodes.values() if n.name == name
    )


def wait_for(qtbot, window: WholeWindow, state: str) -> None:
    qtbot.waitUntil(lambda: window.session.state == state)


def press(window: WholeWindow, key: str) -> None:
    """A click on a key of the deck."""
    QTest.mouseClick(
        window.toolbar.deck.transport.button(key), Qt.MouseButton.LeftButton
    )


def run_to_the_end(qtbot, window: WholeWindow, epochs: int = 1) -> None:
    change(window, epochs=epochs)
    press(window, "run")
    wait_for(qtbot, window, "done")


# -- opening ----------------------------------------------------------------------------------------------------------


def test_only_one_window_is_ever_shown(qtbot, qapp) -> None:
    """No part of it flashes up as a window of its own while it is being made."""
    shown: list[object] = []
    qapp.focusWindowChanged.connect(shown.append)
    window = WholeWindow(Settings("TapedeckTest", "alone"))
    window.show()
    window.furnish()
    QApplication.processEvents()
    qapp.focusWindowChanged.disconnect(shown.append)
    assert {one for one in shown if one is not None} <= {window.windowHandle()}
    leave(window)


@pytest.mark.parametrize("text", [1.0, 2.0])
def test_the_search_field_has_the_words_for_which_there_is_room_from_the_start(
    qtbot, qapp, text: float
) -> None:
    theme.apply(qapp, "dark", text)
    try:
        window = WholeWindow(Settings("TapedeckTest", "words"))
        (field,) = window.menuBar().cornerWidget().findChildren(Button)
        assert ("Layers" in field.text()) == (text == 1.0)
        leave(window)
    finally:
        theme.apply(qapp, "dark", 1.0)


def test_it_draws_before_torch_is_there(qtbot, qapp) -> None:
    window = WholeWindow(Settings("TapedeckTest", "early"))
    window.show()
    window.files.open(DIGITS)
    assert len(window.canvas.scene.nodes) == 12
    window.canvas.add_op("nn.ReLU")
    assert len(window.document.project.graph.nodes) == 13
    assert "PyTorch is loading" in window.run_control.blocked
    window.document.undo_stack.setClean()
    leave(window)


def test_a_run_that_is_requested_while_torch_is_loading_starts_with_it(
    qtbot, qapp
) -> None:
    with windows.shown(qapp, "queued") as window:
        window.files.open(DIGITS)
        window.activateWindow()
        qtbot.waitUntil(window.isActiveWindow)
        QTest.keyClick(window, Qt.Key.Key_F5)
        assert (
            window.toolbar.deck.counter.message()
            == "Starts when PyTorch is loaded (F8 cancels)"
        )
        QTest.keyClick(window, Qt.Key.Key_F8)
        assert window.toolbar.deck.counter.message() == "PyTorch is loading"
        press(window, "run")
        assert window.banner.isHidden() and not window.session.active
        window.start()
        qtbot.waitUntil(lambda: window.session.active)


@pytest.mark.parametrize("content", [b"", b"[1, 2]", b'{"tapedeck": 99}', b"\xff\xfe"])
def test_a_bad_file_leaves_the_open_project(
    qtbot, window: WholeWindow, tmp_path: Path, content: bytes
) -> None:
    before = window.document.project
    bad = tmp_path / "bad.tape"
    bad.write_bytes(content)
    assert not window.files.open(bad)
    assert window.document.project is before
    assert window.banner.isVisible() and "bad.tape" in window.banner.title()


def test_the_window_comes_back_as_it_was(qtbot, qapp, tmp_path) -> None:
    path = tmp_path / "net.tape"
    file.write(file.read(DIGITS), path)

    def begun() -> WholeWindow:
        window = WholeWindow(Settings("TapedeckTest", "again"))
        window.resize(1280, 800)
        window.show()
        window.files.open(path)
        window.furnish()
        qtbot.waitUntil(lambda: window.canvas._framed)
        return window

    first = begun()
    first.selection.set([node(first, "fc1")])
    for pane, page in (
        (first.left.pane, "outline"),
        (first.right.pane, "training"),
        (first.bottom.pane, "console"),
    ):
        pane.show_page(page)
    first.overlay.set_value("Gradients")
    first.canvas.view.show_corner(QPointF(200, 100), QPointF(30, 20), 1.5)
    seen = first.canvas.view.visible_area().center()
    folded = first.training_form.loss
    folded._header.setFocus()
    QTest.keyClick(folded._header, Qt.Key.Key_Left)
    first.left.hide()
    leave(first)
    second = begun()
    assert second.left.isHidden() and not second.right.isHidden()
    assert [dock.pane.page for dock in (second.left, second.right, second.bottom)] == [
        "outline",
        "training",
        "console",
    ]
    assert second.overlay.value() == second.overlays.chosen == "Gradients"
    assert (
        second.selection.ids == {node(second, "fc1")} and second.canvas.view.zoom == 1.5
    )
    assert (second.canvas.view.visible_area().center() - seen).manhattanLength() < 3
    assert not second.training_form.loss.is_open()
    leave(second)


def test_nothing_moves_when_another_page_comes_to_the_front(
    qtbot, window: WholeWindow
) -> None:
    panes = (window.centre, window.left.pane, window.right.pane, window.bottom.pane)

    def places(pane: TabbedPane) -> list[QRect]:
        return [
            pane.geometry(),
            pane.tabs.geometry(),
            *map(pane.tabs.tabRect, range(pane.tabs.count())),
        ]

    for width, height in ((1280, 800), (1024, 700)):
        window.resize(width, height)
        window.canvas.view.show_corner(QPointF(90, 60), QPointF(40, 30), 0.8)
        QApplication.processEvents()
        seen = window.canvas.view.visible_area()
        before = {pane: places(pane) for pane in panes}
        for pane in panes:
            for key in (
                ("curves", "layer", "problems")
                if pane is window.bottom.pane
                else pane._keys
            ):
                if pane.tabs.isTabVisible(pane.tabs.index(key)):
                    pane.show_page(key)
                    QApplication.processEvents()
            assert all(rect.right() < pane.tabs.width() for rect in places(pane)[2:]), (
                "every tab is in sight"
            )
        pane_of = {pane: pane.page for pane in panes}
        window.pages.show("network")
        QApplication.processEvents()
        assert {pane: places(pane) for pane in panes} == before, pane_of
        assert window.canvas.view.visible_area() == seen
        rects = [
            each.geometry() for each in (*window.toolbar._sides, window.toolbar.deck)
        ]
        assert not any(a.intersects(b) for a, b in combinations(rects, 2)), (
            "nothing in the toolbar covers another"
        )


@pytest.mark.parametrize("text", [1.0, 1.5])
def test_no_tab_moves_whatever_page_is_in_front_at_any_size(
    qtbot, qapp, window: WholeWindow, text: float
) -> None:
    window.furnish()
    docks = (window.centre, window.left.pane, window.right.pane, window.bottom.pane)
    window.pages.set_offered("learn", False)  # as it is until it is asked for
    wide = {page.key for page in window._pages if page.width}  # which widen their dock

    def places() -> dict[tuple[TabbedPane, str], QRect]:
        found = {}
        for pane in docks:
            corner = pane.tabs.mapTo(window, QPoint(0, 0))
            for key in pane._keys:
                index = pane.tabs.index(key)
                if pane.tabs.isTabVisible(index):
                    found[pane, key] = pane.tabs.tabRect(index).translated(corner)
                    assert window.rect().contains(found[pane, key]), (
                        "every tab is in sight"
                    )
        return found

    theme.apply(qapp, "dark", text)
    try:
        for size in ((1024, 700), (1280, 800), (1600, 1000)):
            window.resize(*size)
            QApplication.processEvents()
            before = places()
            for pane in docks:
                front = pane.page
                for key in pane._keys:
                    shown = pane.tabs.isTabVisible(pane.tabs.index(key))
                    if shown and key not in wide:
                        pane.show_page(key)
                        QApplication.processEvents()
                        now = places()
                        moved = {
                            one
                            for one in before.keys() & now.keys()
                            if before[one] != now[one]
                        }
                        assert not moved, (size, key)
                pane.show_page(front)
    finally:
        theme.apply(qapp, "dark", 1.0)


def test_the_view_menu_has_the_pages_below_in_the_order_of_their_tabs(
    window: WholeWindow,
) -> None:
    menu = window.actions_by_key["show.problems"].associatedObjects()[0]
    actions = [action.objectName() for action in menu.actions()]
    shown = [key.removeprefix("show.") for key in actions if key.startswith("show.")]
    assert shown.index("findings") == shown.index("tape") + 1


@pytest.mark.parametrize("text", [1.0, 1.5, 2.0])
def test_the_name_of_the_project_does_not_run_into_its_arrow(
    qtbot, qapp, window: WholeWindow, text: float
) -> None:
    theme.apply(qapp, "dark", text)
    try:
        window.resize(960, 600)
        toolbar = window.toolbar
        for name in ("digits", "Transformer on digits, deeper"):
            for edits in (False, True):
                toolbar.set_project(name, True)
                window.run_control.edits_offered.emit(edits)
                QApplication.processEvents()
                assert toolbar.project.text().endswith("•")
                assert toolbar.project.width() >= toolbar.project.sizeHint().width()
                assert (
                    text > 1
                    or edits
                    or name != "digits"
                    or toolbar.project.text() == "digits •"
                )
    finally:
        window.run_control.edits_offered.emit(False)
        theme.apply(qapp, "dark", 1.0)


def test_docks_hide_and_come_back_from_the_menu(qtbot, window: WholeWindow) -> None:
    toggles = {action.text(): action for action in window.dock_menu.actions()}
    assert len(toggles) == 3
    for dock in (window.left, window.right, window.bottom):
        toggles[dock.windowTitle()].trigger()
        assert dock.isHidden()
        toggles[dock.windowTitle()].trigger()
        assert dock.isVisible()


PROPER = {
    "PyTorch",
    "TensorBoard",
    "CUDA",
    "Tapedeck",
    "Qt",
    "NaN",
    "Inf",
    "HTML",
    "Python",
    "Enter",
}


def test_every_command_is_in_sentence_case(window: WholeWindow) -> None:
    canvas, edges = window.canvas, window.sheet.project.graph.edges
    hits = (Hit(), Hit(node=node(window, "conv1")), Hit(wire=next(iter(edges))))
    menus = [menu_for(canvas, hit, QPoint()) for hit in hits]
    texts = {
        action.text() for action in window.actions_by_key.all() if action.objectName()
    }
    texts |= {action.text() for menu in menus for action in menu.actions()}
    for menu in menus:
        menu.deleteLater()
    shown = {
        text: text.replace("&", "").partition("\t")[0].split()[1:] for text in texts
    }
    wrong = {
        text
        for text, words in shown.items()
        for word in words
        if word[:1].isupper() and word.strip("…,.:()") not in PROPER
    }
    assert not wrong


def test_both_themes_on_a_living_window(qtbot, window: WholeWindow) -> None:
    for choice in ("light", "dark"):
        window.actions_by_key[f"theme.{choice}"].trigger()
        assert theme.current().name == choice
        ground = (
            window.grab().toImage().pixelColor(560, 480)
        )  # of the canvas, beside the nodes
        assert (ground.lightness() > 128) == (choice == "light")


# -- runs -------------------------------------------------------------------------------------------------------------


def test_keys_run_pause_step_and_stop(qtbot, window: WholeWindow) -> None:
    told = messages(window)
    change(window, epochs=LONG)
    window.activateWindow()
    QTest.keyClick(window, Qt.Key.Key_F5)
    wait_for(qtbot, window, "running")
    qtbot.waitUntil(lambda: len(window.session.history.steps) > 2)
    QTest.keyClick(window, Qt.Key.Key_F6)
    wait_for(qtbot, window, "paused")
    window.session.poll()
    steps = len(window.session.history.steps)
    QTest.keyClick(window, Qt.Key.Key_F7)
    qtbot.waitUntil(lambda: len(window.session.history.steps) == steps + 1)
    QTest.keyClick(window, Qt.Key.Key_F8)
    wait_for(qtbot, window, "stopped")
    assert window.toolbar.deck.transport.state() == "ready"
    assert any("Stopped" in text for text in told)


def test_stop_in_mid_epoch_then_run_again(qtbot, window: WholeWindow) -> None:
    change(window, epochs=LONG)
    press(window, "run")
    qtbot.waitUntil(
        lambda: bool(window.session.history) and len(window.session.history.steps) > 3,
    )
    press(window, "stop")
    wait_for(qtbot, window, "stopped")
    assert window.session.training_thread.result.state_dict is not None
    run_to_the_end(qtbot, window)
    assert len(window.session.runs) == 2


def test_a_loss_that_is_not_finite_is_told_with_a_cure(
    qtbot, window: WholeWindow
) -> None:
    change(window, optimizer=Choice("SGD", replace_params(lr=1e30)))
    press(window, "run")
    wait_for(qtbot, window, "failed")
    assert "Training stopped" in window.banner.title() and window.banner.reason()
    assert window.session.current.failed.kind == "not finite"
    change(window, optimizer=Choice("Adam", replace_params(lr=1e-3)))
    run_to_the_end(qtbot, window)


def replace_params(**values: object):
    from app.util.frozen import FrozenMap

    return FrozenMap(values)


def test_an_exception_inside_the_loop_names_the_layer(
    qtbot, window: WholeWindow, monkeypatch
) -> None:
    """Out of memory in the middle of an epoch, at a line of the generated source."""
    start = window.session.start
    greedy = "(self.fc2(x) if setattr(self, 'n', getattr(self, 'n', 0) + 1) or self.n < 20 else x.new_empty(1 << 50))"

    def start_greedy(job, **more):
        assert job.source.text.count("self.fc2(x)") == 1
        text = job.source.text.replace("self.fc2(x)", greedy)
        return start(replace(job, source=replace(job.source, text=text)), **more)

    monkeypatch.setattr(window.session, "start", start_greedy)
    press(window, "run")
    wait_for(qtbot, window, "failed")
    failed = window.session.current.failed
    assert failed.kind == "memory" and failed.node == node(window, "fc2")
    assert "batch" in window.banner.reason()
    window.banner.acted.emit()
    assert window.selection.ids == {failed.node}
    monkeypatch.undo()
    run_to_the_end(qtbot, window)


def test_a_broken_drawing_cannot_run_and_says_why(qtbot, window: WholeWindow) -> None:
    project = window.document.project
    broken = project.graph.with_param(node(window, "fc2"), "in_features", 7)
    window.document.apply("Break it", replace(project, graph=broken))
    ready(qtbot, window)
    assert window.toolbar.deck.transport.state() == "blocked"
    assert "Fix 1 error" in window.toolbar.deck.counter.message()
    press(window, "run")
    QTest.keyClick(window, Qt.Key.Key_F5)
    assert window.session.state == "idle"
    (problem,) = window.live.errors
    window.cures.apply(problem.cures[0])
    ready(qtbot, window)
    assert not window.live.errors
    assert set(window.document.project.positions) == set(
        window.document.project.graph.nodes
    )


def test_data_that_do_not_fit_are_a_problem_with_a_cure(
    qtbot, window: WholeWindow
) -> None:
    project = window.document.project
    graph = project.graph.with_param(node(window, "input"), "shape", (1, 28, 28))
    window.document.apply("Set shape", replace(project, graph=graph))
    ready(qtbot, window)
    (problem,) = window.live.errors
    assert "1×8×8" in problem.reason and "1×28×28" in problem.reason
    assert problem.cures[0].label == "Set shape to 1×8×8"
    window.cures.apply(problem.cures[0])
    ready(qtbot, window)
    assert not window.live.errors


def test_edits_during_a_run_do_not_touch_it(qtbot, window: WholeWindow) -> None:
    change(window, epochs=3)
    press(window, "step")  # it stands, and does not come to its end meanwhile
    wait_for(qtbot, window, "paused")
    window.canvas.add_op("nn.ReLU")
    assert window.banner.isVisible() and "was edited" in window.banner.title()
    press(window, "run")
    wait_for(qtbot, window, "done")
    assert len(window.session.history.epochs) == 3
    assert not window.banner.isVisible()


@pytest.mark.usefixtures("no_pictures")
def test_losses_in_the_window_are_those_of_the_command(
    qtbot, window: WholeWindow, capsys
) -> None:
    """With curves, strips and an inspection beside it, bit for bit."""
    import json

    from app.main import main

    change(window, epochs=2)
    window.overlay.set_value("Gradients")
    press(window, "run")
    qtbot.waitUntil(
        lambda: bool(window.session.history) and len(window.session.history.steps) > 5,
    )
    window.autograd_control.capture()
    wait_for(qtbot, window, "done")
    qtbot.waitUntil(lambda: window.room.tape is not None)
    losses = window.session.history.steps["loss"].tolist()
    out = Path(window.settings.file).parent / "run"
    assert (
        main(["train", str(DIGITS), "--out", str(out), "--epochs", "2", "--json"]) == 0
    )
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert losses == [event["loss"] for event in events if event["event"] == "step"]


@pytest.mark.usefixtures("no_pictures")
def test_a_net_with_several_inputs_learns_the_same_in_the_window(
    qtbot, window: WholeWindow, capsys, tmp_path
) -> None:
    import json

    from app.main import main

    project = file.read(resource_path("examples", "Siamese net on digits.tape"))
    project = replace(project, data=replace(project.data, options=FrozenMap(count=200)))
    file.write(project, tmp_path / "pairs.tape")
    window.files.open(tmp_path / "pairs.tape")
    ready(qtbot, window)
    change(window, epochs=2)
    press(window, "run")
    wait_for(qtbot, window, "done")
    losses = window.session.history.steps["loss"].tolist()
    command = [
        "train",
        str(tmp_path / "pairs.tape"),
        "--out",
        str(tmp_path / "run"),
        "--epochs",
        "2",
        "--json",
    ]
    assert main(command) == 0
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert losses == [event["loss"] for event in events if event["event"] == "step"]


# -- leaving ----------------------------------------------------------------------------------------------------------


def answer_with(monkeypatch: pytest.MonkeyPatch, answer: DialogAnswer) -> list[str]:
    """Answer the questions that a dialog asks; returns their titles."""
    asked: list[str] = []

    def execute(self: QuestionDialog) -> int:
        asked.append(self.heading.text())
        self.answer = answer
        return 0

    monkeypatch.setattr(QuestionDialog, "exec", execute)
    return asked


def test_closing_while_training_asks_and_leaves_nothing_running(
    qtbot, window: WholeWindow, monkeypatch
) -> None:
    change(window, epochs=LONG)
    window.document.undo_stack.setClean()
    press(window, "run")
    wait_for(qtbot, window, "running")
    asked = answer_with(monkeypatch, DialogAnswer.CANCEL)
    assert not window.close()
    assert asked and window.session.active and window.isVisible()
    answer_with(monkeypatch, DialogAnswer.DISCARD)
    assert window.close()
    assert not window.session.training_thread.isRunning()


def test_of_a_run_that_no_folder_takes_it_is_not_said_that_it_can_be_resumed(
    qtbot, window: WholeWindow, monkeypatch
) -> None:
    def refuse(*_args: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(store, "begin", refuse)
    change(window, epochs=LONG)
    window.document.undo_stack.setClean()
    press(window, "run")
    wait_for(qtbot, window, "running")
    said: list[str] = []

    def execute(self: QuestionDialog) -> int:
        said.extend(each.text() for each in self.findChildren(QLabel))
        self.answer = DialogAnswer.DISCARD
        return 0

    monkeypatch.setattr(QuestionDialog, "exec", execute)
    assert window.close()
    assert any("it is lost" in each for each in said) and not any(
        "resumed" in each for each in said
    )


def test_at_the_start_the_window_and_its_frame_are_on_the_screen(
    window: WholeWindow,
) -> None:
    window.resize(1280, 800)
    window.bound_to(QSize(1280, 800))
    assert window.width() == 1280 and 700 < window.height() < 780
    window.resize(1000, 700)
    window.bound_to(QSize(1920, 1080))
    assert (window.width(), window.height()) == (1000, 700)


def leave_by(window: WholeWindow, way: str, other: Path) -> None:
    """Go on to another project."""
    if way == "new":
        window.files.new()
    elif way == "recent":
        window.files.open_asking(other)
    else:
        window.files.open_example("U-Net.tape")


@pytest.mark.parametrize("way", ["new", "recent", "example"])
def test_another_project_while_training_asks_and_the_run_is_kept(
    qtbot, window: WholeWindow, tmp_path: Path, monkeypatch, way: str
) -> None:
    mine, other = tmp_path / "mine.tape", tmp_path / "other.tape"
    file.write(Project(name="other"), other)
    change(window, epochs=LONG)
    assert window.files.save_to(mine)
    window.activateWindow()
    press(window, "run")
    wait_for(qtbot, window, "running")
    qtbot.waitUntil(lambda: len(window.session.history.steps) > 3)
    project = window.document.project
    asked = answer_with(monkeypatch, DialogAnswer.CANCEL)
    leave_by(window, way, other)
    assert asked == ["A training run is in progress"]
    assert window.document.project is project and window.session.state == "running", (
        "who says no loses nothing"
    )
    answer_with(monkeypatch, DialogAnswer.DISCARD)
    leave_by(window, way, other)
    assert (
        window.document.project.name != project.name
        and window.session.state == "stopped"
    )
    assert (
        not window.curves.has_run
        and not window.status.text("run")
        and not window.status.text("state")
    )
    (kept,) = store.listed(store.runs_beside(mine))
    assert kept.state == "stopped" and checkpoints(kept)


def test_a_file_that_cannot_be_opened_stops_no_run(
    qtbot, window: WholeWindow, tmp_path: Path, monkeypatch
) -> None:
    change(window, epochs=LONG)
    window.document.undo_stack.setClean()
    press(window, "run")
    wait_for(qtbot, window, "running")
    asked = answer_with(monkeypatch, DialogAnswer.DISCARD)
    (tmp_path / "bad.tape").write_bytes(b"[1, 2]")
    window.files.open_asking(tmp_path / "bad.tape")
    assert (
        not asked
        and window.session.state == "running"
        and "bad.tape" in window.banner.title()
    )


def test_closing_with_unsaved_work_asks(
    qtbot, qapp, tmp_path: Path, monkeypatch
) -> None:
    with windows.shown(qapp, "unsaved") as window:
        window.files.open(DIGITS)
        window.canvas.add_op("nn.ReLU")
        answer_with(monkeypatch, DialogAnswer.CANCEL)
        assert not window.close() and window.isVisible()
        window.document.path = tmp_path / "kept.tape"
        answer_with(monkeypatch, DialogAnswer.SAVE)
        assert window.close()
        assert len(file.read(tmp_path / "kept.tape").graph.nodes) == 13


def test_saving_over_an_older_format_says_where_the_original_is(
    qtbot, window: WholeWindow, tmp_path: Path
) -> None:
    path = tmp_path / "net.tape"
    old = file.dumps(window.document.project).replace(
        b'"tapedeck": 2', b'"tapedeck": 1'
    )
    path.write_bytes(old)
    assert window.files.open(path)
    window.canvas.add_op("nn.ReLU")
    told = messages(window)
    assert window.files.save()
    assert any("net.v1.tape" in each for each in told)
    assert (tmp_path / "net.v1.tape").read_bytes() == old and not window.document.dirty


def test_selecting_a_layer_selects_it_everywhere(qtbot, window: WholeWindow) -> None:
    run_to_the_end(qtbot, window)
    window.pages.show("autograd")
    window.autograd_control.capture()
    qtbot.waitUntil(lambda: window.room.tape is not None)
    conv = node(window, "conv2")
    window.selection.set([conv])
    assert window.room.scene.linked_parts()
    assert window.inspector.node_page.header.name.text() == "conv2"
    assert window.curves.gradients.selected == {"conv2"}


def test_an_operation_of_the_tape_selects_its_layer(qtbot, window: WholeWindow) -> None:
    window.pages.show("autograd")
    window.autograd_control.capture()
    qtbot.waitUntil(lambda: window.room.tape is not None)
    conv = next(
        n
        for n in window.room.tape.nodes
        if n.name.startswith("Convolution") and n.layer == "conv2"
    )
    window.room.scene.choose(str(conv.id))
    assert window.selection.ids == {node(window, "conv2")}
    assert window.inspectors.currentWidget() is window.tape_inspector


def test_no_project_at_all(qtbot, window: WholeWindow, monkeypatch) -> None:
    """Every command on an empty drawing: words, no traceback."""
    window.document.new(Project())
    ready(qtbot, window)
    keys = ("run", "pause", "step", "stop", "capture", "export")
    for key in (*keys, "canvas.delete", "canvas.frame_all", "canvas.lay_out"):
        window.actions_by_key[key].trigger()
    assert window.session.state == "idle"
    assert window.banner.isVisible()


@pytest.mark.parametrize("key", ["commands", "shortcuts", "about"])
def test_the_sheets_open_and_close(qtbot, window: WholeWindow, key: str) -> None:
    window.actions_by_key[key].trigger()
    (dialog,) = (each for each in window.findChildren(QDialog) if each.isVisible())
    qtbot.waitUntil(dialog.isActiveWindow)  # before that a key belongs to the canvas
    QTest.keyClick(dialog, Qt.Key.Key_Escape)
    assert not dialog.isVisible()


def test_the_manual_opens_where_it_is_built_and_else_says_how(
    window: WholeWindow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[QUrl] = []
    monkeypatch.setattr(QDesktopServices, "openUrl", lambda url: not opened.append(url))
    monkeypatch.setattr(resources, "_PACKAGE", tmp_path / "app")
    window.actions_by_key["manual"].trigger()
    assert "`make docs`" in window.banner.reason() and not opened
    page = tmp_path / "build" / "manual" / "index.html"
    page.parent.mkdir(parents=True)
    page.write_text("")
    window.actions_by_key["manual"].trigger()
    assert [url.toLocalFile() for url in opened] == [str(page)]


def test_enter_on_a_node_puts_the_caret_into_its_first_field(
    qtbot, window: WholeWindow
) -> None:
    window.right.pane.show_page("training")
    window.selection.set([node(window, "conv1")])
    window.canvas.view.setFocus()
    QTest.keyClick(window.canvas.view, Qt.Key.Key_Return)
    focus = QApplication.focusWidget()
    assert window.right.pane.page == "inspector"
    assert focus is not None and window.inspector.node_page.isAncestorOf(focus)


def test_a_cure_that_is_a_setting_of_the_training_is_one_undo_step(
    qtbot, window: WholeWindow
) -> None:
    from app.builder.diagnostics.problems import Cure, SetTraining

    before = window.document.project
    window.cures.apply(
        Cure("Set batch_size=16", (SetTraining(node(window, "fc1"), "batch_size", 16),))
    )
    assert window.document.project.training.batch_size == 16
    assert window.document.project.graph is before.graph
    window.document.undo_stack.undo()
    assert window.document.project is before


def test_a_message_covers_nothing_that_could_be_clicked(
    qtbot, window: WholeWindow
) -> None:
    window.files.open_example("digits.tape")
    ready(qtbot, window)
    canvas, middle = window.canvas, window.middle
    window.resizeDocks(
        [window.bottom], [380], Qt.Orientation.Vertical
    )  # leaves the canvas little room
    qtbot.waitUntil(lambda: canvas.height() < 340)
    for page in ("network", "autograd", "code"):
        window.notifier.say(f"Wrote {page}.py", "/home/me")
        window.pages.show(page)
        controls = [
            one for one in middle.findChildren(QAbstractButton) if one.isVisible()
        ]
        controls += [
            one for one in (canvas.minimap, canvas.breadcrumb) if one.isVisible()
        ]
        areas = [QRect(one.mapTo(middle, QPoint(0, 0)), one.size()) for one in controls]
        if page == "network":
            bodies = [
                canvas.on_canvas(node.body).toRect()
                for node in canvas.scene.nodes.values()
            ]
            areas += [
                body.translated(canvas.mapTo(middle, QPoint(0, 0))) for body in bodies
            ]
        toasts = [toast.geometry() for toast in window.toasts.toasts()]
        assert toasts and all(middle.rect().contains(toast) for toast in toasts)
        assert not [
            area for area in areas for toast in toasts if area.intersects(toast)
        ], page
        assert not any(a.intersects(b) for a, b in combinations(toasts, 2)), (
            "nor one another"
        )


@needs("lessons")
def test_what_is_said_of_a_run_beside_a_lesson_covers_no_node(
    qtbot, window: WholeWindow
) -> None:
    window.files.open_example("digits.tape")
    ready(qtbot, window)
    window.resize(1280, 752)
    for page in ("curves", "learn"):
        window.pages.show(page)
    qtbot.waitUntil(lambda: window.bottom.height() > 330)
    window.actions_by_key["canvas.frame_all"].trigger()
    detail = "460 steps, validation accuracy 99.16 %"
    window.notifier.say("Training is done", detail, "Predict", lambda: None)
    (toast,) = window.toasts.toasts()
    assert not [
        area for area in areas_of_work(window) if area.intersects(toast.geometry())
    ]
    assert detail in (toast.text() if toast.height() > 50 else toast.toolTip())


def test_a_message_makes_way_for_the_legend_of_a_run(
    qtbot, window: WholeWindow
) -> None:
    window.files.open_example("digits.tape")
    ready(qtbot, window)
    canvas, banner = window.canvas, window.banner
    window.notifier.refuse("A long message", "Of something that happened before. " * 3)
    qtbot.waitUntil(banner.isVisible)

    def covers() -> bool:
        corner = canvas.mapTo(window.middle, QPoint(0, 0))
        return canvas.scales.geometry().translated(corner).intersects(banner.geometry())

    legend = canvas.mapTo(window.middle, canvas.legend.geometry().bottomRight())
    banner.move(legend - banner.rect().topRight())  # where it is while nothing is there
    canvas.set_running(True)
    assert canvas.scales.isVisible() and not covers()
    window.toasts.place_again()
    assert not covers()


def areas_of_work(window: WholeWindow) -> list[QRect]:
    """The nodes and controls of the page Network, in pixels of the window's middle."""
    canvas, middle = window.canvas, window.middle
    controls = [one for one in middle.findChildren(QAbstractButton) if one.isVisible()]
    messages = (window.banner, *window.toasts.toasts())
    controls = [
        one
        for one in controls
        if not any(message.isAncestorOf(one) for message in messages)
    ]
    controls += [
        window.centre.tabs,
        *(one for one in (canvas.minimap, canvas.breadcrumb) if one.isVisible()),
    ]
    corner = canvas.mapTo(middle, QPoint(0, 0))
    nodes = [
        canvas.on_canvas(node.body).toRect().translated(corner)
        for node in canvas.scene.nodes.values()
    ]
    return [
        *(QRect(one.mapTo(middle, QPoint(0, 0)), one.size()) for one in controls),
        *nodes,
    ]


def test_a_banner_moves_nothing_covers_no_work_and_is_read_and_closed_by_keys(
    qtbot, window: WholeWindow
) -> None:
    canvas, banner = window.canvas, window.banner
    run = window.toolbar.deck

    def places() -> list[object]:
        row = window.centre.tabs
        corners = [each.mapTo(window, QPoint(0, 0)) for each in (canvas, row, run)]
        tabs = [row.tabRect(index) for index in range(row.count())]
        return [
            *corners,
            canvas.size(),
            canvas.view.visible_area(),
            tabs,
            window.bottom.geometry(),
        ]

    forms = set()
    for size in ((1024, 700), (1280, 800), (1600, 1000)):
        window.resize(*size)
        canvas.frame_all()
        canvas.view.setFocus()
        QApplication.processEvents()
        before = places()
        done: list[str] = []
        window.notifier.show(
            "error",
            "Training stopped: the loss became NaN",
            "Gradients of fc1 exceeded 1e4. Lower the learning rate.",
            "Show fc1",
            lambda done=done: done.append("fc1"),
            {"Resume run": lambda: None, "Debug step": lambda: None},
        )
        QApplication.processEvents()
        assert places() == before
        assert window.middle.rect().contains(banner.geometry())
        assert not [
            area for area in areas_of_work(window) if area.intersects(banner.geometry())
        ]
        forms.add(banner.form)
        window.activateWindow()
        QTest.keyClick(window, Qt.Key.Key_M, CTRL)
        button = banner.button("Show fc1")
        assert (
            QApplication.focusWidget() is button
            and button.isVisible()
            and banner.form is Form.WHOLE
        )
        assert button.width() >= button.sizeHint().width() and places() == before
        QTest.keyClick(button, Qt.Key.Key_Space)
        assert done == ["fc1"]
        QTest.keyClick(window, Qt.Key.Key_M, CTRL)
        assert canvas.view.hasFocus() and banner.form in forms, (
            "back to the work; the message stays"
        )
        QTest.keyClick(window, Qt.Key.Key_M, CTRL)
        QTest.keyClick(QApplication.focusWidget(), Qt.Key.Key_Escape)
        QApplication.processEvents()
        assert banner.isHidden() and canvas.view.hasFocus() and places() == before
        banner.show()
        if banner.form is not Form.WHOLE:
            expand = banner.expand
            expand.setFocus()  # as a click gives it
            QTest.mouseClick(expand, Qt.MouseButton.LeftButton)
            assert banner.form is Form.WHOLE and banner.button("Show fc1").hasFocus()
        banner.close_message()
    assert Form.WHOLE in forms and len(forms) > 1, (
        "in one line where there is no room for all"
    )


def test_a_banner_of_the_autograd_page_leaves_the_graph_where_it_is(
    qtbot, window: WholeWindow
) -> None:
    window.pages.show("autograd")
    QApplication.processEvents()
    before = window.room._pages.geometry()
    window.room.show_error(
        "Forward pass failed", "mat1 and mat2 shapes cannot be multiplied", random=True
    )
    QApplication.processEvents()
    banner = window.room.banner
    assert banner.isVisible() and window.room.rect().contains(banner.geometry())
    assert window.room._pages.geometry() == before
    banner.close_message()


def test_the_status_line_shows_what_has_room_and_cuts_nothing_off(
    qtbot, window: WholeWindow
) -> None:
    status = window.status
    window.files.open_example("digits.tape")
    ready(qtbot, window)
    status.set_state("Backward finished")
    status.set_graph_memory("Inspection holds 6.88 MiB until the graph is freed")
    status.set_autosave("Autosaved 02:00")
    for width in (1280, 960):
        window.resize(width, 800)
        shown = [label for label in status.findChildren(QLabel) if label.isVisible()]
        assert all(label.width() >= label.sizeHint().width() for label in shown)
        assert all(label.geometry().right() < status.width() for label in shown)
        assert {"No problems", "Backward finished", "Autosaved 02:00"} <= {
            label.text() for label in shown
        }
    assert len(shown) < len(
        [label for label in status.findChildren(QLabel) if label.text()]
    )
    for clear in (status.set_state, status.set_graph_memory, status.set_autosave):
        clear("")


def test_a_letter_chooses_one_command_of_a_menu(window: WholeWindow) -> None:
    """A letter that two commands have only moves from one to the other."""

    def letters(menu: QMenu) -> Iterator[tuple[str, str, str]]:
        for action in menu.actions():
            _, marked, rest = action.text().replace("&&", "").partition("&")
            if marked:
                yield menu.title(), rest[0].lower(), action.text()
            if (inner := action.menu()) is not None and action.objectName() != "recent":
                yield from letters(inner)

    menus = [action.menu() for action in window.menuBar().actions()]
    found = [each for menu in menus if menu is not None for each in letters(menu)]
    twice = [
        each for each in found if sum(each[:2] == other[:2] for other in found) > 1
    ]
    assert len(found) > 60 and not twice
