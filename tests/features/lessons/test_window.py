"""Lessons in the window: begun, noticed, hinted, finished."""

from __future__ import annotations

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from pytestqt.qtbot import QtBot

from app.features.lessons.feature import LessonsFeature
from app.features.lessons.page import LearnPage, LessonView
from tests.support.whole_window import WholeWindow
from tests.views.window.test_window import ready


@pytest.fixture
def learn(window: WholeWindow) -> LearnPage:
    window.actions_by_key["lessons"].trigger()
    (feature,) = (f for f in window.features if isinstance(f, LessonsFeature))
    return feature.learn


def begin(learn: LearnPage, number: int) -> LessonView:
    QTest.mouseClick(learn.cards[number].button, Qt.MouseButton.LeftButton)
    assert learn.currentWidget() is learn.lesson
    return learn.lesson


def answer(lesson: LessonView, row: int, text: str) -> None:
    field = lesson.rows[row].field
    assert field is not None
    field.clear()
    QTest.keyClicks(field, text)
    QTest.keyClick(field, Qt.Key.Key_Return)


def test_a_lesson_is_done_from_the_list_to_its_end(
    qtbot: QtBot, window: WholeWindow, learn: LearnPage
) -> None:
    lesson = begin(learn, 0)
    assert window.document.project.name == "MLP on digits"
    ready(qtbot, window)
    assert lesson.next.text() == "Skip" and not lesson.rows[0].met
    window.actions_by_key["capture"].trigger()
    qtbot.waitUntil(lambda: lesson.rows[0].met)
    assert lesson.next.text() == "Next"
    QTest.mouseClick(lesson.next, Qt.MouseButton.LeftButton)

    answer(lesson, 0, "4")
    qtbot.waitUntil(lesson.rows[0].verdict.isVisible)
    assert not lesson.rows[0].met
    QTest.mouseClick(lesson.hint_button, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lesson.hint.isVisible)
    assert "each parameter tensor" in lesson.hint.text()
    answer(lesson, 0, "6")
    assert lesson.rows[0].met and not lesson.hint.isVisible()
    answer(lesson, 1, "3")
    QTest.mouseClick(lesson.next, Qt.MouseButton.LeftButton)

    window.actions_by_key["play-backward"].trigger()
    qtbot.waitUntil(lambda: lesson.rows[0].met)
    QTest.mouseClick(lesson.next, Qt.MouseButton.LeftButton)
    answer(lesson, 0, "4")
    answer(lesson, 2, "shorter")
    window.snippets.open_ready("control_flow")
    window.snippets.run()
    qtbot.waitUntil(lambda: lesson.next.text() == "Finish")
    QTest.mouseClick(lesson.next, Qt.MouseButton.LeftButton)
    assert learn.currentWidget() is not learn.lesson
    assert "done" in learn.cards[0].button.accessibleName()
    assert "done" not in learn.cards[1].button.accessibleName()


def test_a_lesson_that_is_left_is_not_done(
    window: WholeWindow, learn: LearnPage
) -> None:
    lesson = begin(learn, 0)
    QTest.mouseClick(lesson.close_button, Qt.MouseButton.LeftButton)
    assert "min" in learn.cards[0].button.accessibleName()


def test_unsaved_work_stays_where_the_question_is_cancelled(
    window: WholeWindow, learn: LearnPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(window.files, "may_leave", lambda quits=False: False)
    before = window.document.project
    QTest.mouseClick(learn.cards[0].button, Qt.MouseButton.LeftButton)
    assert window.document.project is before
    assert learn.currentWidget() is not learn.lesson


def test_the_page_is_wide_while_it_is_in_front(
    qtbot: QtBot, window: WholeWindow
) -> None:
    narrow = window.left.width()
    window.actions_by_key["lessons"].trigger()
    qtbot.waitUntil(lambda: window.left.width() > narrow)
    window.pages.show("layers")
    qtbot.waitUntil(lambda: window.left.width() == narrow)


def test_the_lessons_are_offered_at_the_first_start_alone(window: WholeWindow) -> None:
    window.actions_by_key.trigger("offer-lessons")
    assert window.pages.is_front("learn")
    window.pages.show("layers")
    window.actions_by_key.trigger("offer-lessons")
    assert not window.pages.is_front("learn")
