"""Garbage of a window is collected on its thread alone, and when nobody notices it."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from PySide6.QtCore import QObject, Signal
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QWidget
from pytestqt.qtbot import QtBot

from app.util import gc_pause
from app.views.ui import gc_housekeeping
from app.views.ui.gc_housekeeping import Housekeeping

NEW = (
    2 * gc_pause.MANY
)  # objects: clearly more than are due, whatever is freed meanwhile


class Edits(QObject):
    edited = Signal()


@dataclass
class Kept:
    """A window without pages whose garbage is looked after. `full` has the thread of each full collection."""

    housekeeping: Housekeeping
    edits: Edits
    full: list[int] = field(default_factory=list)

    def note(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start" and info["generation"] == 2:
            self.full.append(threading.get_ident())


@pytest.fixture
def kept(qtbot: QtBot, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kept]:
    gc.collect()
    gc_pause.freeze_new_modules()
    monkeypatch.setattr(gc_pause, "_pauses", 0)  # of the tests
    gc.enable()
    monkeypatch.setattr(gc_housekeeping, "LOOK", 1)
    window, edits = QWidget(), Edits()
    qtbot.addWidget(window)
    made = Kept(Housekeeping(window, edits.edited, lambda: False), edits)
    made.housekeeping.begin()
    gc.callbacks.append(made.note)
    yield made
    gc.callbacks.remove(made.note)
    made.housekeeping.end()
    gc.disable()


def test_widgets_in_cycles_are_destroyed_on_the_thread_of_the_window(
    qtbot: QtBot, kept: Kept
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

    for _ in range(3):
        Widget()
        reader = threading.Thread(target=read)
        reader.start()
        reader.join()
    assert not destroyed
    kept.housekeeping.go_on()
    qtbot.waitUntil(lambda: len(destroyed) == 3)
    assert set(destroyed) == {threading.get_ident()}


def test_a_long_collection_waits_until_nobody_works(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(gc_housekeeping, "monotonic", lambda: now[0])
    monkeypatch.setattr(QGuiApplication, "focusWindow", lambda: None)
    ends = iter((0.0, 0.5, 0.5, 0.5, 0.5, 0.5))
    monkeypatch.setattr(gc_pause, "perf_counter", lambda: next(ends))
    look = kept.housekeeping._collect_if_due
    hold = [[[] for _ in range(NEW)]]
    kept.edits.edited.emit()
    now[0] = 1.0
    look()
    assert len(kept.full) == 1, "nobody knows yet that it takes half a second"
    kept.edits.edited.emit()
    now[0] = 0.5 * gc_pause.REST - 1
    hold.append([[] for _ in range(NEW)])
    look()
    assert len(kept.full) == 1, "somebody has just done something"
    now[0] += 3
    look()
    assert len(kept.full) == 2
    now[0] = gc_pause.LONG_REST
    kept.edits.edited.emit()
    now[0] += 1
    hold.append([[] for _ in range(NEW)])
    look()
    assert len(kept.full) == 3, "the last one took no time"


def test_python_collects_by_itself_again_once_the_window_is_closed(kept: Kept) -> None:
    with gc_pause.put_off():
        assert not gc.isenabled()
    assert not gc.isenabled(), "a pause of somebody else leaves it to the window"
    kept.housekeeping.end()
    assert gc.isenabled()
