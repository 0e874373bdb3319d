"""Lessons are shown whole in a language of long words."""

from __future__ import annotations

from pytestqt.qtbot import QtBot

from app.features.lessons import lesson as lessons
from app.features.lessons.feature import LessonsFeature
from scripts import languages
from tests.support.long_language import elisions as elisions
from tests.support.long_language import faults
from tests.support.long_language import long_words as long_words
from tests.support.long_language import spoken as spoken
from tests.support.whole_window import WholeWindow
from tests.views.window.test_cut_texts import Elisions


def test_no_text_of_a_lesson_is_cut(
    qtbot: QtBot, long_words: WholeWindow, elisions: Elisions
) -> None:
    (feature,) = (f for f in long_words.features if isinstance(f, LessonsFeature))
    long_words.actions_by_key["lessons"].trigger()
    found = faults(qtbot, long_words, feature.learn, elisions)
    for lesson in lessons.bundled()[::4]:
        for step in range(len(lesson.steps)):
            feature.learn.show_lesson(lesson, {}, step, "")
            feature.learn.lesson.hint_button.click()
            found |= faults(qtbot, long_words, feature.learn, elisions)
    assert not found, "\n".join(sorted(found))


def test_every_text_of_the_lessons_is_in_the_catalogues() -> None:
    assert (
        sum(each.file.startswith("resources/lessons") for each in languages.sentences())
        > 400
    )
