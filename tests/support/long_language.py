"""Windows in a language of long words, also from right to left, and what is cut or misplaced in them."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import (
    QAbstractButton,
    QApplication,
    QLabel,
    QLineEdit,
    QWidget,
)
from pytestqt.qtbot import QtBot

from app.util.language import tr
from scripts import languages
from tests.support.pseudo_language import PseudoForms, speak_pseudo
from tests.support.whole_window import WholeWindow
from tests.support.windows import shown
from tests.views.window.test_cut_texts import Elisions, _place, cut, elisions

FIELD = re.compile(r"\{[^{}]*\}")
PASSES = 6  # of the event loop in which nested layouts come to rest
TEXTS = QLabel | QAbstractButton | QLineEdit
__all__ = ["elisions", "long_words", "spoken"]  # the fixtures


@pytest.fixture(params=[False, True], ids=["left to right", "right to left"])
def spoken(
    request: pytest.FixtureRequest, qapp: QApplication, monkeypatch: pytest.MonkeyPatch
) -> Iterator[PseudoForms]:
    direction = Qt.LayoutDirection.RightToLeft
    if request.param:
        qapp.setLayoutDirection(direction)
    yield speak_pseudo(monkeypatch, request.param)
    qapp.setLayoutDirection(Qt.LayoutDirection.LeftToRight)


@pytest.fixture
def long_words(qapp: QApplication, spoken: PseudoForms) -> Iterator[WholeWindow]:
    """A window of its own that speaks the language."""
    with shown(qapp, "long words") as window:
        window.furnish()
        yield window
    assert len(spoken) > 10, "it was asked for its sentences"


def longest(folder: str, number: int = 6) -> list[str]:
    """The longest sentences of a folder, as they are shown."""
    every = sorted(
        (each.one for each in languages.sentences() if folder in each.file),
        key=len,
        reverse=True,
    )
    assert len(every) > number
    return [FIELD.sub("conv1.weight", tr(sentence)) for sentence in every[:number]]


def in_sight(surface: QWidget) -> list[QLabel | QAbstractButton | QLineEdit]:
    """The widgets of a surface that show a text now."""
    return [
        widget
        for widget in surface.findChildren(QWidget)
        if isinstance(widget, TEXTS)
        and widget.isVisible()
        and not widget.visibleRegion().isEmpty()
        and widget.text()
    ]


def misplaced(surface: QWidget) -> Iterator[str]:
    """Yield the texts in sight that lie outside of their parents, or over another text."""
    texts = in_sight(surface)
    for widget in texts:
        holder = widget.parentWidget()
        if not holder.rect().adjusted(-1, -1, 1, 1).contains(widget.geometry()):
            yield f"{widget.text()!r} outside of {_place(holder)}"
    for number, first in enumerate(texts):
        for second in texts[number + 1 :]:
            if first.parentWidget() is second.parentWidget() and (
                first.geometry().intersects(second.geometry())
            ):
                yield f"{first.text()!r} over {second.text()!r}"


def faults(
    qtbot: QtBot, window: WholeWindow, surface: QWidget, elided: Elisions
) -> set[str]:
    """What stays cut or misplaced on a surface, which is laid out before."""
    qtbot.waitUntil(lambda: len(in_sight(surface)) > 1)
    QApplication.processEvents()
    found: set[str] = set()
    for _ in range(PASSES):
        QApplication.processEvents()
        inside = {_place(widget) for widget in surface.findChildren(QWidget)}
        found = {
            each
            for each in cut(window, elided.texts)
            if each.rpartition("' in ")[2] in inside
        }
        if not (found := found | set(misplaced(surface))):
            break
    return found
