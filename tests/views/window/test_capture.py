"""What a capture in the window takes: random inputs where the data do not fit the net, and a batch of a chosen size."""

from __future__ import annotations

import os
import signal

import pytest
from msgspec.structs import replace
from PySide6.QtCore import Qt, QTimer
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QMenu

from app.data.config import DataConfig
from app.engine.client import shared
from app.engine.requests.capture import CaptureRequest
from app.engine.tasks.capture import batch_of
from app.project import file
from app.project.project import Project
from app.util.resources import path as resource_path
from app.views.autograd.page import RANDOM
from app.views.ui.widgets import Button
from tests.support.engines import asked
from tests.support.whole_window import WholeWindow
from tests.views.window.test_window import ready

LEFT = Qt.MouseButton.LeftButton


@pytest.fixture
def window(qtbot, window: WholeWindow) -> WholeWindow:
    window.document.new(
        replace(file.read(resource_path("examples", "U-Net.tape")), data=DataConfig())
    )  # digits
    ready(qtbot, window)
    window.pages.show("autograd")
    return window


def captured(qtbot, window: WholeWindow, before: object = None) -> int:
    """Wait for another tape; how many samples it has."""
    qtbot.waitUntil(
        lambda: window.room.tape is not None and window.room.tape is not before,
    )
    return window.room.tape.input_shapes[0][0]


def test_random_inputs_are_the_first_cure_and_everything_runs_on_them(
    window: WholeWindow, qtbot
) -> None:
    graph, room = window.document.project.graph, window.room
    window.options_control.menu.options = window.options_control.menu.options.__class__(
        batch=2
    )
    window.autograd_control.options = window.options_control.menu.options
    window.actions_by_key["capture"].trigger()
    qtbot.waitUntil(room.banner.isVisible)
    assert (
        room.banner.title() == "Network and data do not match"
        and room.banner._action.text() == RANDOM
    )
    QTest.mouseClick(room.banner._action, LEFT)
    assert captured(qtbot, window) == 2 and not room.banner.isVisible()
    assert room.tape.loss is not None and room.tape.input_shapes == ((2, 1, 64, 64),)
    assert window.document.project.graph is graph and not window.document.dirty, (
        "the net stays as it is"
    )
    assert window.options_control.button.text() == "Options (1)"
    control = window.findings_control
    control.show()
    qtbot.waitUntil(lambda: control.findings is not None and not control.working)
    assert not [one for one in control.findings.found if one.severity == "error"]
    window.tape_control.player.set_speed(None)
    window.actions_by_key["play-backward"].trigger()
    qtbot.waitUntil(
        lambda: (
            window.tape_control.player.next_node is None
            and window.tape_control.player.position > 0
        ),
    )
    window.document.new(Project(name="another"))
    assert window.options_control.menu.options.data == "batch", (
        "another net has data of its own"
    )


def test_the_batch_is_that_of_the_training_until_another_is_typed(
    window: WholeWindow, qtbot
) -> None:
    window.files.open(resource_path("examples", "MLP on digits.tape"))
    ready(qtbot, window)
    window.pages.show("autograd")
    window.actions_by_key["capture"].trigger()
    field, wanted = (
        window.options_control.batch.field,
        window.document.project.training.batch_size,
    )
    assert captured(qtbot, window) == wanted == field.value()
    qtbot.waitUntil(field.isVisible)
    before = window.room.tape
    field.setFocus()
    field.selectAll()
    QTest.keyClicks(field, "5")
    QTest.keyClick(field, Qt.Key.Key_Return)
    assert captured(qtbot, window, before) == 5 and field.value() == 5
    assert (
        "chosen" in field.toolTip() and window.options_control.menu.options.batch == 5
    )
    before = window.room.tape
    window.actions_by_key["capture"].trigger()
    assert captured(qtbot, window, before) == 5, "it stays with the options"
    batch = batch_of(window.autograd_control.diagnosed)
    assert batch.inputs[0].shape[0] == 5, "findings and gradient checks have it too"
    before = window.room.tape
    field.selectAll()
    QTest.keyClicks(field, str(wanted))
    QTest.keyClick(field, Qt.Key.Key_Return)
    assert (
        captured(qtbot, window, before) == wanted
        and window.options_control.menu.options.batch == 0
    )


def test_the_first_capture_by_keyboard_leaves_the_focus_on_the_graph(
    window: WholeWindow, qtbot
) -> None:
    window.files.open(resource_path("examples", "MLP on digits.tape"))
    ready(qtbot, window)
    window.pages.show("autograd")
    button = next(
        each
        for each in window.room.findChildren(Button)
        if each.text() == "Capture one batch"
    )
    button.setFocus()
    QTest.keyClick(button, Qt.Key.Key_Return)
    captured(qtbot, window)
    assert window.focusWidget() is window.room.view


def test_eval_mode_is_chosen_in_the_options_where_the_header_has_no_room_for_it(
    window: WholeWindow, qtbot
) -> None:
    window.resize(1280, 800)
    window.files.open(resource_path("examples", "digits.tape"))
    ready(qtbot, window)
    window.pages.show("autograd")
    window.actions_by_key["capture"].trigger()
    captured(qtbot, window)
    head, options, before = window.room.head, window.options_control, window.room.tape
    assert not head.mode.isVisible() and "eval() mode" not in head.below.text()
    QTimer.singleShot(0, window, lambda: _choose_in_menu(options.menu, "mode.eval"))
    QTest.mouseClick(options.button, LEFT)
    captured(qtbot, window, before)
    assert not window.room.tape.train and "eval() mode" in head.below.text()
    options.menu.fill()
    assert options.menu.by_key["mode.eval"].isChecked()


def test_the_key_captures_in_the_mode_that_is_chosen_beside_the_button(
    window: WholeWindow, qtbot
) -> None:
    window.files.open(resource_path("examples", "digits.tape"))
    ready(qtbot, window)
    window.pages.show("autograd")
    head = window.room.head
    window.actions_by_key["capture-eval"].trigger()
    captured(qtbot, window)
    assert not window.room.tape.train and not head.train, (
        "the choice is that of the graph"
    )
    before = window.room.tape
    QTest.keyClick(window, Qt.Key.Key_Return, Qt.KeyboardModifier.ControlModifier)
    captured(qtbot, window, before)
    assert not window.room.tape.train
    head.mode.set_value("train")
    qtbot.waitUntil(lambda: window.room.tape.train)


def _choose_in_menu(menu: QMenu, key: str) -> None:
    """Click an entry of a menu that is open."""
    QTest.mouseClick(menu, LEFT, pos=menu.actionGeometry(menu.by_key[key]).center())


def test_what_could_not_be_captured_is_said_until_the_net_runs_and_leads_to_its_node(
    window, qtbot
) -> None:
    window.files.open(resource_path("examples", "MLP on digits.tape"))
    ready(qtbot, window)
    document, room = window.document, window.room
    layer = next(
        node for node in document.project.graph.nodes.values() if node.op == "nn.Linear"
    )
    broken = replace(
        document.project,
        graph=document.project.graph.with_param(layer.id, "in_features", 7),
    )
    document.apply("break it", broken)
    qtbot.waitUntil(lambda: window.live.up_to_date and bool(window.live.errors))
    window.actions_by_key["capture"].trigger()
    qtbot.waitUntil(room.banner.isVisible)
    assert room.banner.title() == "The network cannot run yet"
    assert room.banner.actions_offered() == (f"Show {layer.name}", "Try again")
    QTest.mouseClick(room.banner._action, LEFT)
    assert window.pages.is_front("network") and window.selection.ids == frozenset(
        {layer.id}
    )
    document.undo_stack.undo()
    qtbot.waitUntil(lambda: window.live.up_to_date and not window.live.errors)
    window.pages.show("autograd")
    qtbot.waitUntil(lambda: not room.banner.isVisible())


def test_a_capture_is_cancelled_where_it_computes(window: WholeWindow, qtbot) -> None:
    window.files.open(resource_path("examples", "MLP on digits.tape"))
    ready(qtbot, window)
    window.pages.show("autograd")
    os.kill(shared().pid, signal.SIGSTOP)
    window.actions_by_key["capture"].trigger()
    qtbot.waitUntil(lambda: asked(shared(), CaptureRequest))
    QTest.mouseClick(window.room._busy.button, LEFT)
    os.kill(shared().pid, signal.SIGCONT)
    assert (
        not window.autograd_control.waits
        and not window.room.busy
        and window.room.tape is None
    )
    window.actions_by_key["capture"].trigger()
    captured(qtbot, window)


def kill_amid_a_capture(qtbot, window: WholeWindow, page: str) -> None:
    """With a page in front as the engine ends."""
    os.kill(shared().pid, signal.SIGSTOP)  # it answers nothing before it ends
    window.actions_by_key["capture"].trigger()
    qtbot.waitUntil(lambda: asked(shared(), CaptureRequest))
    window.pages.show(page)
    with qtbot.waitSignal(window.engine.ended):
        os.kill(shared().pid, signal.SIGKILL)
    qtbot.waitUntil(lambda: not window.autograd_control.waits)


def test_an_engine_killed_amid_a_capture_is_told_once_and_no_longer_than_it_is_gone(
    window: WholeWindow, qtbot
) -> None:
    window.files.open(resource_path("examples", "MLP on digits.tape"))
    ready(qtbot, window)
    # Asked of the next engine, its cost would start one, which takes the message away.
    costs = getattr(window, "cost_control", None)
    qtbot.waitUntil(lambda: costs is None or costs.cost is not None)
    room = window.room
    kill_amid_a_capture(qtbot, window, "autograd")
    assert (
        room.banner.isVisible()
        and room.banner.title() == "The forward pass did not finish"
    )
    assert not window.banner.isVisible()
    window.actions_by_key["capture"].trigger()
    captured(qtbot, window)
    assert not room.banner.isVisible() and not window.banner.isVisible()
    kill_amid_a_capture(qtbot, window, "network")
    assert window.banner.isVisible() and window.banner.title() == "The engine stopped"
    window.pages.show("autograd")
    assert room.banner.isVisible() and not window.banner.isVisible()
    window.pages.show("network")
    with qtbot.waitSignal(window.engine.ended):
        window.engine.warm()
        qtbot.waitUntil(lambda: shared().pid is not None)
        os.kill(shared().pid, signal.SIGKILL)
    assert window.banner.isVisible()
    window.engine.warm()
    qtbot.waitUntil(lambda: not window.banner.isVisible())


def test_a_batch_under_way_is_not_shown_in_the_project_that_is_opened_meanwhile(
    window: WholeWindow, qtbot
) -> None:
    window.files.open(resource_path("examples", "MLP on digits.tape"))
    ready(qtbot, window)
    os.kill(shared().pid, signal.SIGSTOP)
    window.actions_by_key["capture"].trigger()
    qtbot.waitUntil(lambda: window.engine.pending("capture"))
    window.files.new()
    os.kill(shared().pid, signal.SIGCONT)
    ready(qtbot, window)
    assert window.room.tape is None and not window.autograd_control.waits
