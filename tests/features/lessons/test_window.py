"""Lessons in the window: begun, noticed, hinted, finished."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QFileDialog
from pytestqt.qtbot import QtBot

from app.cli import run
from app.data.config import DataConfig
from app.features.lessons import maker as lesson_maker
from app.features.lessons.control import LessonControl
from app.features.lessons.feature import LessonsFeature
from app.features.lessons.lesson import Lesson, bundled, seeded
from app.features.lessons.page import LearnPage, LessonView
from app.training.history import History
from app.views.autograd.graph.playback_paint import EdgeFlow
from app.views.autograd.page import AutogradPage
from app.views.autograd.tape.player import Player
from app.views.pictures.picture import Written, write
from tests.support.needs import needs
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


def named(name: str) -> Lesson:
    return next(lesson for lesson in bundled() if lesson.name == name)


def control_of(window: WholeWindow) -> LessonControl:
    (feature,) = (f for f in window.features if isinstance(f, LessonsFeature))
    return feature.control


def test_a_norm_is_hidden_until_it_is_predicted(
    qtbot: QtBot, window: WholeWindow, learn: LearnPage
) -> None:
    control = control_of(window)
    control.begin(named("03-backward-by-hand"))
    ready(qtbot, window)
    learn.lesson.show_step(3)
    window.actions_by_key["capture"].trigger()
    qtbot.waitUntil(lambda: control.situation.tape is not None)
    window.actions_by_key["play-backward"].trigger()
    qtbot.waitUntil(lambda: control.situation.tape.played == 1)
    (player,) = window.findChildren(
        Player, "", Qt.FindChildOption.FindChildrenRecursively
    )[:1]
    (node,) = (n for n in player.tape.nodes if "fc1.weight" in n.parameters)

    def flows() -> list[EdgeFlow]:
        (room,) = [
            r for r in window.findChildren(AutogradPage) if r.tape is player.tape
        ]
        return list(room.scene.played.flows.values())

    assert player.is_concealed(node.id)
    # What comes to the transposing node in front of it has the same norm.
    assert [flow.label for flow in flows()].count("?") == 2
    assert all(flow.norm is None for flow in flows() if flow.concealed)
    answer(learn.lesson, 0, "0.0001")
    assert not player.is_concealed(node.id)
    assert not any(flow.concealed for flow in flows())


def test_a_lesson_goes_on_where_its_project_was_saved(
    qtbot: QtBot, window: WholeWindow, learn: LearnPage, tmp_path: Path
) -> None:
    lesson = begin(learn, 4)
    window.document.apply(
        "Digits", replace(window.document.project, data=DataConfig("sklearn.digits"))
    )
    lesson.show_step(2)
    answer(lesson, 0, "330")
    path = tmp_path / "half.tape"
    window.document.save(path)
    lesson.show_step(0)
    QTest.mouseClick(lesson.close_button, Qt.MouseButton.LeftButton)
    window.document.new()
    window.pages.show("layers")
    assert window.files.open(path)
    assert window.pages.is_front("learn") and learn.currentWidget() is learn.lesson
    assert lesson.step == 0
    lesson.show_step(2)
    assert lesson.rows[0].met


def test_a_teacher_makes_a_lesson_that_opens_and_is_handed_out_as_a_picture(
    qtbot: QtBot,
    window: WholeWindow,
    learn: LearnPage,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    window.files.open_example("MLP on digits.tape")
    ready(qtbot, window)
    window.actions_by_key["make-lesson"].trigger()
    maker = learn.maker
    assert learn.currentWidget() is maker
    QTest.keyClicks(maker.title, "My net: wide")
    maker.step_title.setText("Widen it")
    maker.text.setPlainText("Make *fc1* wider.")
    maker.facts.edited.emit("layers nn.Linear >= 3")
    maker.goals[0].hint.setText("There are three.")
    maker.asks.set_value(True)
    maker.facts.edited.emit("parameters <= 17226")
    maker.seeds.set_value(True)
    maker.goals[1].row.setText("no goal")
    said: list[str] = []
    maker.refused.connect(said.append)
    QTest.mouseClick(maker.save, Qt.MouseButton.LeftButton)
    assert said and "is no goal" in said[0] and learn.currentWidget() is maker
    maker.goals[1].row.setText('ask "How many parameters?" parameters = same')
    headings: list[tuple[str, ...]] = []

    def written(*arguments: Any) -> Written:
        headings.append(arguments[2].heading)
        return write(*arguments)

    monkeypatch.setattr(lesson_maker, "write", written)
    monkeypatch.setattr(QFileDialog, "getExistingDirectory", lambda *_: str(tmp_path))
    QTest.mouseClick(maker.save, Qt.MouseButton.LeftButton)
    assert learn.currentWidget() is learn.lesson
    assert learn.lesson.title.text() == "My net: wide"
    folder = tmp_path / "my-net-wide"
    assert run(["lesson", "check", str(folder)]) == 0
    picture = folder / "hand-out.png"
    qtbot.waitUntil(picture.exists)
    ((title, name),) = headings
    assert title == "My net: wide" and name.startswith("Your name or student number: _")

    # A student opens the picture, and has numbers of their own.
    window.document.new()
    assert window.files.open(picture)
    assert learn.currentWidget() is learn.lesson
    assert learn.lesson.student.isVisibleTo(learn)
    learn.lesson.student.setText("Ada")
    learn.lesson.student.editingFinished.emit()
    project = window.document.project
    assert project.training.seed == seeded(project, "Ada").training.seed != 0
    ready(qtbot, window)
    answer(learn.lesson, 1, "17226")
    qtbot.waitUntil(lambda: all(row.met for row in learn.lesson.rows))
    handed_in = tmp_path / "in" / "ada.tape"
    handed_in.parent.mkdir()
    window.document.save(handed_in)
    assert run(["grade", str(folder), str(handed_in.parent)]) == 0


@needs("problems")
def test_beside_a_lesson_the_dock_below_is_high_enough_for_charts_and_as_it_was_after_it(
    qtbot: QtBot, window: WholeWindow
) -> None:
    window.resize(1280, 800)
    window.pages.show("layers")
    before = window.bottom.height()
    window.pages.show("learn")
    QApplication.processEvents()
    assert window.bottom.height() == before, "the net keeps its room beside Problems"
    window.pages.show("curves")
    qtbot.waitUntil(lambda: window.bottom.height() > before)
    window.curves.set_history(History())
    qtbot.waitUntil(
        lambda: all(chart.plot.height() >= 120 for chart in window.curves.charts)
    )
    window.pages.show("problems")
    qtbot.waitUntil(lambda: window.bottom.height() == before)
    window.pages.show("curves")
    qtbot.waitUntil(lambda: window.bottom.height() > before)
    window.pages.show("layers")
    qtbot.waitUntil(lambda: window.bottom.height() == before)
