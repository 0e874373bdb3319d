"""The backward tape in the window: played, stopped, stepped, edited with mouse and keys, and nothing kept after it."""

from __future__ import annotations

import os
import signal

import pytest
from msgspec.structs import replace
from PySide6.QtCore import QPoint, QPointF, Qt
from PySide6.QtTest import QTest

from app.autograd.pictures.diagram import summary
from app.engine.requests.capture import WeightsFile
from app.engine.requests.playback import Edit, Trouble
from app.engine.tasks.capture import batch_of
from app.util.formatting import bytes_text
from app.views.autograd.graph.playback_paint import FADED
from app.views.autograd.tape.player import PLAYING, READY, STANDING
from tests.support.needs import needs
from tests.support.whole_window import WholeWindow
from tests.views.window.test_window import DIGITS, change, press, ready

LEFT = Qt.MouseButton.LeftButton


@pytest.fixture
def window(qtbot, window: WholeWindow) -> WholeWindow:
    """The window on the example, one batch captured and the tape in front."""
    window.files.open(DIGITS)
    ready(qtbot, window)
    capture(qtbot, window)
    window.tape_control.player.set_speed(None)
    return window


def capture(qtbot, window: WholeWindow) -> None:
    with qtbot.waitSignal(window.autograd_control.captured):
        window.actions_by_key["capture"].trigger()
    window.tape_control.show()


def stands(qtbot, window: WholeWindow, position: int | None = None) -> None:
    """Wait until it stands, at a position if one is given."""
    player = window.tape_control.player
    qtbot.waitUntil(
        lambda: player.state == STANDING and position in (None, player.position),
    )


def deck(window: WholeWindow, key: str) -> None:
    QTest.mouseClick(window.tape_control.page.deck.button(key), LEFT)


def test_played_to_the_end_its_gradients_are_those_of_backward(window, qtbot) -> None:
    player, room = window.tape_control.player, window.room
    assert player.state == READY and not player.keeps, (
        "nothing is kept before somebody plays"
    )
    boxes = dict(room.scene.boxes.made)
    deck(window, "run")
    stands(qtbot, window, len(player))
    assert (
        player.last.reason == "end"
        and window.tape_control.page.deck.state() == "at_end"
    )
    assert all(room.scene.boxes.made[key] is item for key, item in boxes.items()), (
        "nothing is made anew"
    )
    assert all(item.played.finished for item in room.scene.boxes.made.values())
    norms = {name: 0.0 for node in player.tape.nodes for name in node.parameters}
    for record in player.records:
        node = player.tape.nodes[record.node]
        if node.parameters:
            norms[node.parameters[0]] = record.norm
    with batch_of(player.batch).hold() as graph:
        graph.ends[0].backward()
        plain = {
            name: float(parameter.grad.norm())
            for name, parameter in graph.model.named_parameters()
        }
    assert norms == pytest.approx(plain, rel=1e-6)
    assert player.held[-1] == 0 and "<b>0 B</b>" in window.tape_control.page.held.text()


@needs("outline")
def test_the_layers_are_back_where_the_steps_took_their_place(window, qtbot) -> None:
    pages, tabs = window.pages, window.left.pane.tabs
    for before in ("layers", "steps"):
        pages.show("autograd")
        pages.show(before)
        if before == "layers":
            deck(window, "run")  # brings the steps forward
            stands(qtbot, window, len(window.tape_control.player))
        assert pages.front("left") == "steps"
        pages.show("network")
        assert pages.front("left") == "layers" and tabs.tabRect(0).left() == 0
    pages.show("outline")
    pages.show("autograd")
    assert pages.front("left") == "steps"
    pages.show("network")
    assert pages.front("left") == "outline"


def test_one_steps_forth_and_back_with_the_deck_and_with_keys(window, qtbot) -> None:
    player, page = window.tape_control.player, window.tape_control.page
    deck(window, "step")
    stands(qtbot, window, 1)
    first = player.tape.order[0]
    assert page.count.text() == f"2/{len(player)}"
    assert player.tape.nodes[player.next_node].name in page.words.toolTip()
    window.activateWindow()
    page.strip.setFocus()
    QTest.keyClick(page.strip, Qt.Key.Key_Right)
    stands(qtbot, window, 2)
    QTest.keyClick(page.strip, Qt.Key.Key_End)
    stands(qtbot, window, len(player))
    QTest.keyClick(page.strip, Qt.Key.Key_Left)
    stands(qtbot, window, len(player) - 1)
    window.actions_by_key["step-back"].trigger()
    stands(qtbot, window, len(player) - 2)
    QTest.keyClick(page.strip, Qt.Key.Key_Home)
    stands(qtbot, window, 0)
    boxes = window.room.scene.boxes.made
    assert boxes[str(first)].played.next and not any(
        item.played.ran for item in boxes.values()
    )
    for _ in range(3):  # before the engine has answered the first
        window.actions_by_key["step-backward"].trigger()
    stands(qtbot, window, 3)
    QTest.keyClick(page.strip, Qt.Key.Key_Space)
    stands(qtbot, window, len(player))


def test_the_graph_shows_what_ran_what_is_next_and_what_was_let_go_of(
    window, qtbot
) -> None:
    player, scene = window.tape_control.player, window.room.scene
    tape = player.tape
    at = next(
        step
        for step, node in enumerate(tape.order)
        if tape.nodes[node].name == "ConvolutionBackward0"
    )
    deck(window, "to_end")
    stands(qtbot, window, len(player))
    assert {box.opacity() for box in scene.boxes.made.values()} == {1.0}, (
        "where all has run, nothing steps back"
    )
    player.seek(at)
    stands(qtbot, window, at)
    boxes = scene.boxes.made
    assert {boxes[str(node)].opacity() for node in tape.order[:at]} == {FADED}
    assert boxes[str(tape.order[at])].played.next
    for step, node in enumerate(tape.order):
        assert boxes[str(node)].played.finished == (step < at)
    freed = {node for node in tape.order[:at] if boxes[str(node)].played.freed}
    expected = {
        holder
        for s in tape.storages
        if s.kind == "activation" and tape.steps[s.freed_by] < at
        for holder in s.holders
    }
    assert freed == {node for node in expected if tape.steps[node] < at}
    flows = scene.played.flows
    assert any(flow.reached for flow in flows.values()) and not all(
        flow.reached for flow in flows.values()
    )
    assert all(flow.norm is not None for flow in flows.values()), (
        "norms of the first time are remembered"
    )
    window.room.toggle("loss")
    assert (
        boxes is not scene.boxes.made
        and scene.boxes["fold:loss"].played.text == "2 of 2 run"
    )
    assert (
        window.room.head.norms.isVisibleTo(window.room.head)
        or window.room.head.width() < 1000
    )


def test_a_norm_above_the_bound_stops_it(window, qtbot) -> None:
    player, page = window.tape_control.player, window.tape_control.page
    page.bound.set_value(1e-6)
    page.above.click()
    deck(window, "run")
    stands(qtbot, window)
    assert player.last.reason == "norm" and player.position == 1
    assert (
        page.words.text().startswith("<b>Norm</b> ")
        and ": stopped" in page.words.text()
    ), "what it is is not cut"
    last = player.tape.order[-1]
    player.run_to(last)
    stands(qtbot, window, 2)
    assert player.last.reason == "norm", "what is run to is no way past a break"
    page.above.click()
    player.run_to(last)
    stands(qtbot, window, len(player) - 1)
    deck(window, "run")
    stands(qtbot, window, len(player))


def test_a_click_on_the_strip_goes_there_and_the_head_can_be_dragged(
    window, qtbot
) -> None:
    player, strip = window.tape_control.player, window.tape_control.page.strip
    QTest.mouseClick(strip, LEFT, pos=strip.place_of(9).toPoint())
    stands(qtbot, window, 9)
    head = QPoint(
        round(strip.place_of(9).x() - strip.place_of(0).x() + strip._face.x(0)),
        strip.height() // 2,
    )
    QTest.mousePress(strip, LEFT, pos=head)
    for step in (8, 6, 4):
        QTest.mouseMove(strip, QPointF(strip._face.x(step), head.y()).toPoint())
    QTest.mouseRelease(strip, LEFT, pos=QPointF(strip._face.x(4), head.y()).toPoint())
    stands(qtbot, window, 4)
    told = strip._face.tooltip_lines(0)
    assert (
        told[0].startswith("1 NllLossBackward0")
        and f"{bytes_text(player.tape.held_bytes)} held" in told
    )


def test_the_list_of_steps_goes_there_breaks_there_and_is_filtered(
    window, qtbot
) -> None:
    control, player = window.tape_control, window.tape_control.player
    view, model = control.steps.view, control.steps.model
    window.left.pane.show_page("steps")
    assert model.rowCount() == len(player) + len(model.pieces)
    row = model.row_of(5)
    view.scrollTo(model.index(row))
    centre = view.visualRect(model.index(row)).center()
    QTest.mouseClick(view.viewport(), LEFT, pos=centre)
    stands(qtbot, window, 5)
    control.steps.field.setText("conv2 weight")
    assert [model.step_of(model.index(r)) for r in range(1, model.rowCount())] == [
        player.tape.steps[node.id]
        for node in player.tape.nodes
        if node.parameters == ("conv2.weight",)
    ]
    step = model.step_of(model.index(1))
    view.setCurrentIndex(model.index(1))
    QTest.keyClick(view, Qt.Key.Key_B)
    assert player.breaks == {player.tape.order[step]} and model.breaks == {step}
    control.steps.field.clear()
    deck(window, "run")
    stands(qtbot, window, step)
    assert player.last.reason == "node"


def test_commands_of_the_menu_go_to_what_is_selected_and_break_there(
    window, qtbot
) -> None:
    player, room, actions = (
        window.tape_control.player,
        window.room,
        window.actions_by_key,
    )
    for key in (
        "play-backward",
        "step-backward",
        "step-back",
        "run-to-selected",
        "break-at-selected",
    ):
        assert not actions[key].shortcut().isEmpty(), "the keyboard alone must do"
    group = next(group for group in room._groups if group.title == "conv2")
    room.scene.choose(group.key)
    actions["run-to-selected"].trigger()
    first = min(player.tape.steps[node] for node in group.nodes)
    stands(qtbot, window, first)
    actions["break-at-selected"].trigger()
    assert player.breaks == {player.tape.order[first]}
    player.seek(0)
    stands(qtbot, window, 0)
    actions["play-backward"].trigger()
    stands(qtbot, window, first)


def test_a_gradient_that_is_edited_goes_on_as_it_is_now(window, qtbot) -> None:
    player, inspector = window.tape_control.player, window.tape_inspector
    at = len(player) // 3
    player.seek(at)
    stands(qtbot, window, at)
    node = player.next_node
    assert inspector.shown_item() is window.room.tape.nodes[node], (
        "without a selection it is of what runs next"
    )
    assert player.arriving[0].norm > 0
    player.edit(Edit(node, 0, "zero"))
    qtbot.waitUntil(lambda: bool(player.edits))
    assert player.arriving[0].norm == 0 and player.position == at
    played, positions = window.room.scene.played, window.tape_control.graph._index
    arrow = positions.arrow(player.tape.incoming[node][0].source, node)
    assert all(played.boxes[key].edited for key in positions.keys(node))
    assert (
        window.room.scene.label_at(arrow)[0] == "0 edited"
        and "0 arrives" in played.flows[arrow].words
    )
    deck(window, "to_end")
    stands(qtbot, window, len(player))
    last = next(
        record
        for record in reversed(player.records)
        if player.tape.nodes[record.node].parameters
    )
    assert last.norm == 0 and player.record_of(node).edited == (0,)
    player.seek(at)
    stands(qtbot, window, at)
    player.undo_edit()
    qtbot.waitUntil(lambda: not player.edits)
    assert (
        not any(box.edited for box in played.boxes.values())
        and not played.flows[arrow].edited
    )
    player.edit(Edit(node, 0, "value", 2.0, (0,) * len(player.arriving[0].shape)))
    qtbot.waitUntil(lambda: bool(player.edits))
    assert player.arriving[0].absmax == 2.0


def test_a_gradient_can_be_looked_at(window, qtbot) -> None:
    player, looked = window.tape_control.player, []
    player.seek(len(player) - 4)
    stands(qtbot, window)
    player.looked.connect(looked.append)
    look = window.tape_control._look
    look._section.set_open(True)
    qtbot.waitUntil(lambda: bool(looked))
    assert looked[0].asked.node == player.next_node
    assert (
        looked[0].look.stats.norm == pytest.approx(player.arriving[0].norm)
        and looked[0].look.pictures
    )
    window.tape_inspector.grab()


def test_nothing_is_kept_once_it_was_let_go_of(window, qtbot) -> None:
    player, page = window.tape_control.player, window.tape_control.page
    deck(window, "run")
    stands(qtbot, window, len(player))
    assert "until the graph is freed" in window.status.text("kept")
    with qtbot.waitSignal(player.graph_released) as told:
        QTest.mouseClick(page.let_go, LEFT)
    assert told.args == [0] and window.status.text("kept") == "Inspection holds 0 B"
    assert player.position == 0
    assert window.room.scene.played.boxes == {} and player.state == READY
    qtbot.waitUntil(lambda: not player._leaving)


@pytest.mark.parametrize("how", ["capture", "project", "close"])
def test_another_batch_another_project_and_the_windows_end_let_go_of_it(
    window, qtbot, how: str
) -> None:
    player, alive = window.tape_control.player, []
    player.graph_released.connect(alive.append)
    deck(window, "step")
    stands(qtbot, window, 1)
    if how == "capture":
        change(window, batch_size=8)
        ready(qtbot, window)
        capture(qtbot, window)
        assert summary(player.tape) in window.room.head.summary.toolTip(), (
            "the line above is of this batch"
        )
    elif how == "project":
        window.document.undo_stack.setClean()
        window.files.new()
        assert player.tape is None
    else:
        window.document.undo_stack.setClean()
        window.close()
    qtbot.waitUntil(lambda: not player._leaving)
    assert not player.keeps and alive in ([0], [] if how == "close" else [0])
    if how == "project":
        assert window.status.text("kept") == "", "another project has no inspection"


def test_it_is_played_while_a_run_goes_on_and_the_run_does_not_notice(
    window, qtbot
) -> None:
    change(window, epochs=1)
    ready(qtbot, window)
    losses = []
    for playing in (False, True):
        press(window, "run")
        qtbot.waitUntil(lambda: window.session.state in ("running", "done"))
        if playing:
            capture(qtbot, window)
            player = window.tape_control.player
            player.set_speed(None)
            for _ in range(3):
                player.seek(len(player))
                stands(qtbot, window, len(player))
                player.seek(0)
                stands(qtbot, window, 0)
        qtbot.waitUntil(lambda: window.session.state == "done")
        losses.append(list(window.session.current.history.steps["loss"]))
    assert losses[0] == losses[1]


def test_what_fails_is_said_and_the_tape_stays(window, qtbot) -> None:
    player = window.tape_control.player
    player.batch = replace(player.batch, weights=WeightsFile("gone.pt", "of Run 1"))
    deck(window, "step")
    qtbot.waitUntil(lambda: player.state == READY)
    assert (
        window.room.banner.title() == "Forward pass failed" and player.tape is not None
    )


def test_a_fault_of_the_player_is_told_with_its_traceback(window, qtbot) -> None:
    from app.views.ui.dialogs.message import ErrorDialog

    window.tape_control.player.troubled.emit(
        Trouble("This failed", "a fault", traceback="KeyError: 'lost'")
    )
    qtbot.waitUntil(lambda: bool(window.findChildren(ErrorDialog)))
    (dialog,) = window.findChildren(ErrorDialog)
    assert "KeyError" in dialog.details.toPlainText() and window.room.banner.isVisible()
    dialog.close()


def test_pause_ends_what_plays(window, qtbot) -> None:
    player = window.tape_control.player
    player.set_speed(1.0)
    deck(window, "run")
    qtbot.waitUntil(lambda: player.state == PLAYING and player.position >= 1)
    deck(window, "run")
    stands(qtbot, window)
    assert player.last.reason == "cancelled" and player.position < len(player)


def test_an_engine_that_ends_takes_the_graph_along_and_nothing_else(
    window, qtbot
) -> None:
    from app.engine.client import shared

    player, room, project = (
        window.tape_control.player,
        window.room,
        window.document.project,
    )
    deck(window, "step")
    stands(qtbot, window, 1)
    os.kill(shared().pid, signal.SIGKILL)
    qtbot.waitUntil(lambda: player.state == READY)
    assert (
        room.banner.title() == "The captured graph was freed"
        and "SIGKILL" in room.banner.reason()
    )
    assert room.tape is not None and window.document.project is project
    assert (
        window.status.text("kept") == "Inspection holds 0 B"
        and not window.banner.isVisible()
    )
    deck(window, "step")
    stands(qtbot, window, 1)
    assert room.banner.isHidden(), "the batch ran once more"
    capture(qtbot, window)
    deck(window, "step")
    stands(qtbot, window, 1)
