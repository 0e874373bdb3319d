"""Lessons in the window: the page "Learn", and what Ctrl+K finds of them."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from app.features.lessons import lesson as lessons
from app.features.lessons.control import LessonControl
from app.features.lessons.page import WIDTH, LearnPage
from app.project.project import Project
from app.util.language import tr
from app.views.feature import Action, Feature, Page
from app.views.ui.dialogs.search import SearchEntry


class LessonsFeature(Feature):
    rank = 65
    learn: LearnPage
    control: LessonControl

    def pages(self) -> Iterable[Page]:
        yield Page(
            "learn", "Learn", "help", "left", self._make, words="Learn", width=WIDTH
        )

    def actions(self) -> Iterable[Action]:
        yield Action(
            "lessons",
            "&Lessons",
            self._show,
            icon="help",
            tip="Ten minutes each: autograd, layers, training",
            menu="help.learn",
        )
        yield Action(
            "make-lesson",
            "Make a lesson of this &project…",
            self._make_lesson,
            tip="Write texts, goals and hints for a lesson that starts with the open project",
            menu="help.learn",
        )

    def begin(self) -> None:
        self.workspace.pages.set_offered("learn", False)  # until it is asked for
        self.workspace.document.replaced.connect(self._resume)

    def beginnings(self) -> Iterable[SearchEntry]:
        for lesson in lessons.bundled():
            yield SearchEntry(
                f"lesson.{lesson.name}",
                tr("Lesson: {title}", title=tr(lesson.title)),
                partial(self._begin, lesson),
                "Lesson",
                (lesson.title, tr(lesson.title)),
                f"learn tutorial {lesson.summary}",
                "help",
            )

    def _make(self) -> LearnPage:
        self.learn = LearnPage()
        return self.learn

    def finish(self) -> None:
        self.control = LessonControl(self.workspace, self.learn)

    def _resume(self, project: Project) -> None:
        """Go on with the lesson that an opened project is handed out, or was begun, for."""
        if project.lesson is not None:
            self.workspace.pages.make("learn")
            self.control.resume(project.lesson)

    def _make_lesson(self) -> None:
        self._show()
        self.control.make()

    def _show(self) -> None:
        self.workspace.pages.show("learn")

    def _begin(self, lesson: lessons.Lesson) -> None:
        self._show()
        self.control.begin(lesson)
