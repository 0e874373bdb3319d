"""Garbage of a window is collected on its thread alone."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator

import pytest
from PySide6.QtWidgets import QWidget
from pytestqt.qtbot import QtBot

from app.util import gc_pause
from app.views.ui import gc_housekeeping
from app.views.ui.gc_housekeeping import Housekeeping


@pytest.fixture
def housekeeping(
    qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Housekeeping]:
    gc.collect()
    gc_pause.freeze_new_modules()
    monkeypatch.setattr(gc_pause, "_pauses", 0)  # of the tests
    gc.enable()
    monkeypatch.setattr(gc_housekeeping, "LOOK", 1)
    window = QWidget()
    qtbot.addWidget(window)
    made = Housekeeping(window)
    yield made
    made.end()
    gc.disable()


def test_widgets_in_cycles_are_destroyed_on_the_thread_of_the_window(
    qtbot: QtBot, housekeeping: Housekeeping
) -> None:
    destroyed: list[int] = []

    class Widget(QWidget):
        def __init__(self) -> None:
            super().__init__()
            self.cycle = self

        def __del__(self) -> None:
            destroyed.append(threading.get_ident())

    answers = []

    def read() -> None:  # an answer of an engine is many objects
        answers.append([[] for _ in range(10_000)])

    housekeeping.begin()
    for _ in range(3):
        Widget()
        reader = threading.Thread(target=read)
        reader.start()
        reader.join()
    assert not destroyed
    qtbot.waitUntil(lambda: len(destroyed) == 3)
    assert set(destroyed) == {threading.get_ident()}


def test_python_collects_by_itself_again_once_the_window_is_closed(
    housekeeping: Housekeeping,
) -> None:
    housekeeping.begin()
    with gc_pause.put_off():
        assert not gc.isenabled()
    assert not gc.isenabled(), "a pause of somebody else leaves it to the window"
    housekeeping.end()
    assert gc.isenabled()
