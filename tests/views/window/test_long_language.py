"""In a language of long words, also from right to left, the coach, lessons and findings are shown whole."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import (
    QAbstractButton,
    QApplication,
    QDialog,
    QLabel,
    QLineEdit,
    QWidget,
)
from pytestqt.qtbot import QtBot

from app.autograd.diagnostics.results import Finding
from app.features.coach.feature import CoachFeature
from app.features.coach.line import CoachLine
from app.features.coach.values import Evidence, Remark, SamplePair
from app.features.lessons import lesson as lessons
from app.features.lessons.feature import LessonsFeature
from app.util.language import tr
from scripts import languages
from tests.support.pseudo_language import PseudoForms, speak_pseudo
from tests.support.whole_window import WholeWindow
from tests.support.windows import shown
from tests.views.window.test_cut_texts import Elisions, _place, cut, elisions

FIELD = re.compile(r"\{[^{}]*\}")
PASSES = 6  # of the event loop in which nested layouts come to rest
TEXTS = QLabel | QAbstractButton | QLineEdit
SENTENCES = languages.sentences()
__all__ = ["elisions"]  # the fixture


@pytest.fixture(params=[False, True], ids=["left to right", "right to left"])
def spoken(
    request: pytest.FixtureRequest, qapp: QApplication, monkeypatch: pytest.MonkeyPatch
) -> Iterator[PseudoForms]:
    direction = Qt.LayoutDirection.RightToLeft
    if request.param:
        qapp.setLayoutDirection(direction)
    yield speak_pseudo(monkeypatch, request.param)
    qapp.setLayoutDirection(Qt.LayoutDirection.LeftToRight)


def longest(folder: str, number: int = 6) -> list[str]:
    """The longest sentences of a folder, as they are shown."""
    every = sorted(
        (each.one for each in SENTENCES if folder in each.file), key=len, reverse=True
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


def test_nothing_is_cut_in_a_language_of_long_words(
    qtbot: QtBot,
    qapp: QApplication,
    spoken: PseudoForms,
    elisions: Elisions,
) -> None:
    with shown(qapp, "long words") as window:
        window.furnish()
        found = set()
        (learn,) = (f for f in window.features if isinstance(f, LessonsFeature))
        window.actions_by_key["lessons"].trigger()
        found |= faults(qtbot, window, learn.learn, elisions)
        for lesson in lessons.bundled()[::4]:
            for step in range(len(lesson.steps)):
                learn.learn.show_lesson(lesson, {}, step, "")
                learn.learn.lesson.hint_button.click()
                found |= faults(qtbot, window, learn.learn, elisions)

        (coach,) = (f for f in window.features if isinstance(f, CoachFeature))
        evidence = Evidence(tr("Loss"), tr("step"), (1, 2), ((tr("loss"), (1, 2)),))
        pairs = (SamplePair(1, 2, (3, 4)),)
        line = CoachLine(window)  # as wide as the curves, which show it with a run
        line.setGeometry(0, 0, window.centre.width(), line.height())
        line.show()
        numbers = ((tr("Best validation accuracy"), tr("unknown")),)
        for sentence in longest("features/coach/judgement"):
            remark = Remark("leak", sentence, numbers, evidence, pairs=pairs)
            line.show_remark(remark, tr("Stop and find a rate…"))
            found |= faults(qtbot, window, line, elisions)
            assert sentence in line.sentence.toolTip()
        for dialog in (coach.explain(remark), coach.show_place(remark)):
            found |= faults(qtbot, window, dialog, elisions)
        for dialog in window.findChildren(QDialog):
            dialog.close()

        window.pages.show("findings")
        page = window.findings_control.page
        page.stack.setCurrentWidget(page.list)
        cures = longest("diagnostics/nonfinite_reasons")
        rows = [
            Finding("none", "warning", tr("The network"), sentence, cure, line=12)
            for sentence, cure in zip(longest("diagnostics"), cures, strict=True)
        ]
        page.list.show_findings(rows, tr("Nothing found."), fine=False)
        found |= faults(qtbot, window, page.list, elisions)
        assert len(page.list.findChildren(QLabel)) > len(rows)
    assert len(spoken) > 100, "it was asked for its sentences"
    assert not found, "\n".join(sorted(found))
