"""Each lesson of the program is done to its end in the window, and done wrong: then its goal is open, with a hint."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from pytestqt.qtbot import QtBot

from app.features.lessons.cli import lesson_named, start_of
from app.features.lessons.lesson import bundled
from app.features.lessons.task import grade
from app.features.lessons.values import Grade, Graded
from app.project import file
from app.project.project import Project
from tests.features.lessons.hand import Hand
from tests.features.lessons.scripts import SCRIPTS
from tests.support.needs import needs
from tests.support.whole_window import WholeWindow

LEAST_WRONG = 3  # ways to do a lesson wrong, beside skipping its steps


@pytest.fixture
def window(qtbot: QtBot, window: WholeWindow) -> Iterator[WholeWindow]:
    yield window
    window.session.close_and_wait()
    window.snippets.close()
    qtbot.waitUntil(lambda: not window.snippets.running)


def test_every_lesson_has_a_script() -> None:
    assert [lesson.name for lesson in bundled()] == list(SCRIPTS)
    for lesson in bundled():
        steps = SCRIPTS[lesson.name]
        assert len(steps) == len(lesson.steps), lesson.name
        assert sum(len(step.wrong) for step in steps) >= LEAST_WRONG, lesson.name


def verdicts(name: str, project: Project) -> Graded:
    """What `tapedeck grade` says of a project that is handed in."""
    lesson, text = lesson_named(name)
    read_again = file.loads(file.dumps(project))
    request = Grade(text, name, read_again, start_of(lesson))
    return grade(request, None)  # type: ignore[arg-type]


def hint(hand: Hand) -> str:
    """What is said after a click on Hint, which stands there already for the goal that is open."""
    if not hand.view.hint_button.isHidden():
        QTest.mouseClick(hand.view.hint_button, Qt.MouseButton.LeftButton)
    return hand.view.hint.text() if not hand.view.hint.isHidden() else ""


@pytest.mark.parametrize("name", SCRIPTS)
@needs("snippets")
def test_a_hand_does_it_wrong_and_then_to_the_end(
    qtbot: QtBot, window: WholeWindow, name: str
) -> None:
    hand = Hand(window, qtbot.waitUntil, name)
    for number, step in enumerate(SCRIPTS[name]):
        assert hand.view.step == number
        for wrong in step.wrong:
            project = window.document.project
            for act in wrong.actions:
                act(hand)
            hand.judged()
            assert not hand.row(wrong.opens).met, (number, wrong.opens)
            assert hand.view.next.text() == "Skip" and hint(hand), (number, wrong.opens)
            window.document.apply("As before", project)
        for act in step.right:
            act(hand)
        hand.judged()
        assert hand.open == [], (number, hand.control.situation)
        hand.go_on()
    assert hand.control.lesson is None
    assert name in hand.control._done()
    graded = verdicts(name, window.document.project)
    assert not graded.error
    assert [goal.goal for goal in graded.goals if not goal.passed] == []


@pytest.mark.parametrize("name", SCRIPTS)
@needs("snippets")
def test_a_lesson_whose_steps_are_skipped_is_not_done(
    qtbot: QtBot, window: WholeWindow, name: str
) -> None:
    hand = Hand(window, qtbot.waitUntil, name)
    for _ in SCRIPTS[name]:
        hand.judged()
        if hand.view.rows:
            assert hand.open and hint(hand)
            assert hand.view.next.text() == "Skip"
        hand.go_on()
    assert hand.control.lesson is None
    assert name not in hand.control._done()
