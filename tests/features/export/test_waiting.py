"""What is asked of a network before it is checked: it waits for that, can be cancelled, and says why if that fails."""

from __future__ import annotations

import os
import signal

from PySide6.QtCore import Qt
from PySide6.QtTest import QTest

from app.engine import pool
from app.engine.client import shared
from app.features.export.export_dialog import ExportDialog
from app.util.resources import path as resource_path
from tests.support import windows
from tests.support.whole_window import WholeWindow

DIGITS = resource_path("examples", "MLP on digits.tape")
LEFT = Qt.MouseButton.LeftButton


def dialogs(window: WholeWindow) -> list[ExportDialog]:
    return [one for one in window.findChildren(ExportDialog) if one.isVisible()]


def test_what_is_asked_while_torch_is_loading_is_done_when_it_is_there(
    qtbot, qapp
) -> None:
    with windows.shown(qapp, "asked early") as window:
        window.files.open(DIGITS)
        window.actions_by_key["capture"].trigger()  # before there is a page for it
        assert window.room.busy and window.room._busy.title() == "PyTorch is loading…"
        QTest.mouseClick(window.room._busy.button, LEFT)
        assert not window.room.busy and not window.live.pending("capture")
        window.actions_by_key["capture"].trigger()
        window.actions_by_key["export"].trigger()
        assert not dialogs(window) and window.banner.isHidden()
        window.start()
        qtbot.waitUntil(lambda: bool(dialogs(window)))
        dialogs(window)[0].reject()
        qtbot.waitUntil(lambda: window.room.tape is not None)


def test_what_waits_for_torch_says_why_it_cannot_be_had(
    qtbot, qapp, monkeypatch
) -> None:
    def fail(*_given: object, **_named: object) -> None:
        raise OSError("too many processes")

    with windows.shown(qapp, "without torch") as window:
        window.files.open(DIGITS)
        window.pages.show("autograd")
        window.actions_by_key["capture"].trigger()
        monkeypatch.setattr(pool, "start", fail)
        window.run_control.run()
        if shared().pid is not None:
            with qtbot.waitSignal(window.engine.ended):
                os.kill(shared().pid, signal.SIGKILL)
        window.start()
        qtbot.waitUntil(window.room.banner.isVisible)
        assert (
            window.room.banner.title() == "No batch was run"
            and "too many processes" in window.room.banner.reason()
        )
        assert not window.room.busy and not window.session.active
        assert window.toolbar.deck.counter.message() == "PyTorch cannot be loaded"
        window.run_control.run()
        assert (
            window.banner.title() == "The run cannot start"
            and "too many processes" in window.banner.reason()
        )
