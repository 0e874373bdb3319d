"""A window shows what the program was started with: a script, and no project that nobody has opened."""

from __future__ import annotations

from functools import partial

import pytest
from PySide6.QtWidgets import QMenu
from pytestqt.qtbot import QtBot

from tapedeck.frames import Ending
from tests.support.run_windows import cell
from tests.support.whole_window import WholeWindow
from tests.tapedeck.test_watching import Script, script  # noqa: F401

pytestmark = pytest.mark.usefixtures("nothing_trusted")


def begin(qtbot: QtBot, window: WholeWindow, file: str) -> None:
    """Have the window show what the program is started with."""
    window.open_on(file, None)
    qtbot.waitUntil(lambda: window.live.up_to_date)


def test_the_window_of_a_script_has_its_name_and_no_network(
    qtbot: QtBot,
    window: WholeWindow,
    script: Script,
) -> None:
    """Its watching is ended and taken up again in one row, and the script is interrupted from there."""
    begin(qtbot, window, str(script.watch.frames))
    session, control, deck = window.session, window.run_control, window.toolbar.deck
    script.start()
    qtbot.waitUntil(
        lambda: session.commands and session.history and len(session.history.steps) > 3
    )
    assert (
        window.windowTitle().startswith("frames.jsonl")
        and not window.document.project.graph.nodes
    )
    assert not window.live.analysis.errors
    assert not [
        key for key in ("errors", "checked", "parameters") if window.status.text(key)
    ]
    assert window.training_form.running.title() == "A script is running"
    if hasattr(window, "layer_page"):
        assert "gradient norms" in window.layer_page.inside.words.accessibleName()
    control.stop()
    qtbot.waitUntil(lambda: session.state == "left")
    assert (
        script.is_alive()
        and deck.counter.message() == "Not watched"
        and window.banner.title().endswith("watched")
    )
    assert len(window.runs.model.rows) == 1
    assert cell(window, 0, "State") == "No longer watched"
    control.run()  # the key has nothing else to do here
    qtbot.waitUntil(lambda: session.state == "running" and session.commands)
    assert (
        len(session.runs) == 1
        and [row.run for row in window.runs.model.rows] == session.runs
    )
    assert {cell(window, 0, name) for name in ("Batch size", "Seed", "Epochs")} == {"–"}
    menu = next(
        each for each in window.findChildren(QMenu) if each.title() == "&Watched script"
    )
    assert {"script-interrupt", "watch-again"} <= {
        action.objectName() for action in menu.actions()
    }
    script.ending.set()
    qtbot.waitUntil(lambda: session.state == "done")
    assert deck.counter.message() == "The script has ended"


def test_a_batch_of_a_script_is_its_next_step_and_no_message_about_it_outlives_a_later_pause(
    qtbot: QtBot,
    window: WholeWindow,
    script: Script,
) -> None:
    begin(qtbot, window, str(script.watch.frames))
    session, capture, standing = (
        window.session,
        window.autograd_control,
        window.room.standing,
    )
    script.start()
    qtbot.waitUntil(lambda: session.commands and len(session.history.steps) > 3)
    offered = offers(window)
    assert "Capture step" in offered and "Capture one batch" not in offered
    assert window.findings_control.page.empty.title() == "Steps cannot be diagnosed"
    window.actions_by_key["capture"].trigger()
    qtbot.waitUntil(
        lambda: capture.script.state == "held" and standing.isVisibleTo(window.room)
    )
    capture.go_on()
    qtbot.waitUntil(lambda: "has continued after step" in standing.title())
    steps = len(session.history.steps)
    qtbot.waitUntil(lambda: len(session.history.steps) > steps + 3)
    assert standing.isVisibleTo(window.room)
    window.run_control.pause()
    qtbot.waitUntil(
        lambda: session.state == "paused" and not standing.isVisibleTo(window.room)
    )
    script.ending.set()
    window.run_control.run()
    qtbot.waitUntil(lambda: session.state == "done")


def test_of_a_script_that_failed_nothing_can_be_captured_and_its_details_are_in_its_terminal(
    qtbot: QtBot,
    window: WholeWindow,
    script: Script,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begin(qtbot, window, str(script.watch.frames))
    script.start()
    qtbot.waitUntil(
        lambda: window.session.commands and len(window.session.history.steps) > 3
    )
    stop = partial(script.watch.stop, Ending(error="ValueError: no more samples"))
    monkeypatch.setattr(script.watch, "stop", stop)
    script.ending.set()
    qtbot.waitUntil(lambda: window.session.state == "failed")
    assert window.toolbar.deck.counter.message() == "The script failed"
    assert (
        "no more samples" in window.banner.title()
        and not window.banner.actions_offered()
    )
    assert not offers(window)


def offers(window: WholeWindow) -> set[str]:
    """The captures that the pages Autograd, Backward tape and Findings offer while they are empty."""
    pages = (
        window.room.offer,
        window.tape_control.page.offer,
        window.findings_control.page.empty,
    )
    return {page.button.text() for page in pages if not page.button.isHidden()}
