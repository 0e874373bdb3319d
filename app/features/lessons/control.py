"""Notices what was done in the window, and ticks the goals of the lesson that is open."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from msgspec.structs import replace
from PySide6.QtCore import QObject, QTimer
from PySide6.QtWidgets import QFileDialog

from app.autograd.diagnostics.results import Findings
from app.autograd.tape import Tape
from app.features.lessons import lesson as lessons
from app.features.lessons.facts import (
    RunFigures,
    Situation,
    SnippetFigures,
    TapeFigures,
    Value,
    value_of,
)
from app.features.lessons.lesson import (
    SAME,
    Goal,
    Lesson,
    LessonError,
    concealed,
    format_value,
    is_passed,
    recorded,
)
from app.features.lessons.maker import MakerControl
from app.features.lessons.page import LearnPage
from app.features.lessons.situation import (
    run_figures,
    tape_figures,
    with_analysis,
)
from app.project.project import LessonWork, Project
from app.util.frozen import FrozenMap
from app.util.language import tr, trn
from app.views.run.session import Run
from app.views.workspace import Workspace

DONE = "lessons/done"  # in the settings: the names of lessons that were done
SOON = 150  # ms after which several things that happened are noticed at once


class LessonControl(QObject):
    """Opens lessons, and judges their goals."""

    def __init__(self, workspace: Workspace, page: LearnPage) -> None:
        super().__init__(page)
        self._workspace, self._page = workspace, page
        self._situation = Situation()
        self._answers: dict[str, str] = {}
        self._reached: dict[str, str] = {}  # value of each goal that passed, by key
        self._student = ""
        self._soon = QTimer(self, singleShot=True, interval=SOON)
        self._soon.timeout.connect(self._judge)
        page.chosen.connect(self.begin)
        page.lesson.answered.connect(self._answered)
        page.lesson.left.connect(self.leave)
        page.lesson.named.connect(self._named)
        page.open_wanted.connect(self._choose_file)
        page.make_wanted.connect(self.make)
        self.maker = MakerControl(workspace, page.maker, lambda: self._situation)
        self.maker.made.connect(lambda made: self._open(made, LessonWork(made.name)))
        self.maker.left.connect(self.list_lessons)
        page.lesson.turned.connect(lambda _step: self._judge())
        activity = workspace.activity
        activity.captured.connect(self._captured)
        activity.played.connect(self._played)
        activity.diagnosed.connect(self._diagnosed)
        activity.ran.connect(self._ran)
        activity.measured.connect(self._measured)
        workspace.pages.shown.connect(self._page_shown)
        workspace.session.progressed.connect(self._progressed)
        workspace.session.runEnded.connect(self._run_ended)
        workspace.document.changed.connect(lambda *_: self._notice())
        workspace.hearers.add(self._notice, later=True)
        self.list_lessons()

    @property
    def lesson(self) -> Lesson | None:
        """The lesson that is open."""
        page = self._page
        return page.lesson.lesson if page.currentWidget() is page.lesson else None

    @property
    def situation(self) -> Situation:
        """What is known of the student's work."""
        return self._situation

    def list_lessons(self) -> None:
        """Show the list."""
        self._page.show_list(lessons.bundled(), self._done())

    def begin(self, lesson: Lesson) -> None:
        """Open what the lesson starts with, and its first step; unsaved work is asked about before."""
        if not self._opened(lesson):
            return
        self._open(lesson, LessonWork(lesson.name))
        if not lesson.start.startswith("snippet "):
            self._workspace.pages.show("network")
        self._workspace.pages.show("learn")

    def resume(self, work: LessonWork) -> None:
        """Go on with the lesson of the open project, at its first step with an open goal."""
        try:
            lesson = lessons.of_work(work)
        except LessonError as error:
            self._workspace.notifier.refuse(
                tr("The lesson of this file cannot be read"), str(error)
            )
            return
        if lesson is not None:
            self._open(lesson, work)
            self._workspace.pages.show("learn")

    def make(self) -> None:
        """Show the form of a lesson of the open project; one of one's own that is open is changed."""
        lesson = self.lesson
        self._look()
        self.maker.begin(lesson)
        self._page.setCurrentWidget(self._page.maker)

    def _choose_file(self) -> None:
        workspace = self._workspace
        start = str(workspace.settings.export_folder)
        name, _ = QFileDialog.getOpenFileName(
            workspace.window, "Open a lesson", start, f"Lesson ({lessons.FILE})"
        )
        if not name:
            return
        try:
            lesson = lessons.read(Path(name))
        except (LessonError, OSError) as error:
            workspace.notifier.refuse(tr("The lesson cannot be opened"), str(error))
        else:
            self.begin(lesson)

    def _open(self, lesson: Lesson, work: LessonWork) -> None:
        self._situation, self._answers = Situation(), dict(work.answers)
        self._reached, self._student = dict(work.reached), work.student
        steps = enumerate(lesson.steps)
        unfinished = (
            number
            for number, step in steps
            if any(goal.key not in work.reached for goal in step.goals)
        )
        self._page.show_lesson(lesson, self._answers, next(unfinished, 0), work.student)
        self._judge()

    def leave(self) -> None:
        """Go back to the list; a lesson whose goals are all reached is done."""
        self._judge()
        lesson = self.lesson
        if lesson is not None:
            goals_open = sum(not self._is_met(goal) for goal in lesson.goals)
            if not goals_open:
                done = sorted({*self._done(), lesson.name})
                self._workspace.settings.put(DONE, json.dumps(done))
                done_text = tr("Lesson done: {title}", title=tr(lesson.title))
                self._workspace.notifier.say(done_text)
            elif self._reached:
                self._workspace.notifier.say(
                    trn(
                        "{title}: {count} goal open",
                        "{title}: {count} goals open",
                        goals_open,
                        title=tr(lesson.title),
                    ),
                    tr("Save the project to go on later."),
                )
        self._workspace.activity.conceal(frozenset(), frozenset())
        self.list_lessons()

    def _opened(self, lesson: Lesson) -> bool:
        """Open the start of a lesson; False if the user stays with the project that is open."""
        workspace, (kind, _, name) = self._workspace, lesson.start.partition(" ")
        before = workspace.document.project
        if kind == "example":
            workspace.files.open_example(f"{name}.tape")
        elif lesson.start.endswith(".tape"):
            workspace.files.open_copy(lesson.folder / lesson.start)
        elif workspace.files.may_leave():
            workspace.document.new(Project())
        if kind == "snippet":
            workspace.commands.trigger("open-snippet", name)
        return workspace.document.project is not before

    def _done(self) -> list[str]:
        try:
            done = json.loads(str(self._workspace.settings.stored(DONE) or "[]"))
        except ValueError:
            return []
        return [name for name in done if isinstance(name, str)]

    # --- What happens

    def _notice(self) -> None:
        if self.lesson is not None:
            self._soon.start()

    def _know(self, **values: object) -> None:
        self._situation = replace(self._situation, **values)
        self._notice()

    def _answered(self, question: str, text: str) -> None:
        self._answers[question] = text
        self._judge()

    def _named(self, student: str) -> None:
        """Give the project the seeds of a student."""
        if student != self._student:
            self._student = student
            project = lessons.seeded(self._workspace.document.project, student)
            self._workspace.document.apply("Seeds of your own", project)
            self._judge()

    def _page_shown(self, key: str) -> None:
        self._know(pages=self._situation.pages | {key})

    def _captured(self, tape: Tape) -> None:
        self._know(tape=tape_figures(tape))

    def _played(self, share: float, norms: Mapping[str, float]) -> None:
        figures = self._situation.tape or TapeFigures()
        played = max(share, figures.played)
        grads = {**figures.grads, **norms}
        self._know(tape=replace(figures, played=played, grads=grads))

    def _diagnosed(self, findings: Findings) -> None:
        counts = Counter(finding.kind for finding in findings.found)
        self._know(findings=dict(counts))

    def _ran(
        self, key: str, error: str, tensors: Mapping[str, Mapping[str, Value]]
    ) -> None:
        self._know(snippet=SnippetFigures(key, error, tensors))

    def _measured(self, name: str, values: Mapping[str, Value]) -> None:
        self._know(measured={**self._situation.measured, name: values})

    def _progressed(self) -> None:
        if (run := self._workspace.session.current) is not None:
            self._know(run=self._figures(run))

    def _run_ended(self, run: Run) -> None:
        self._know(run=self._figures(run), runs=self._situation.runs + 1)

    def _figures(self, run: Run) -> RunFigures:
        thread = self._workspace.session.training_thread
        processes = thread.place.processes if thread is not None else 1
        figures = run_figures(run.history)
        return replace(
            figures, ended="" if run.active else run.state, processes=processes
        )

    # --- Goals

    def _judge(self) -> None:
        lesson = self.lesson
        if lesson is None:
            return
        self._soon.stop()
        self._look()
        step = lesson.steps[self._page.lesson.step]
        self._reached = recorded(step, self._reached, self._situation, self._answers)
        self._page.lesson.show_verdicts([self._verdict(goal) for goal in step.goals])
        self._workspace.activity.conceal(*concealed(step, self._answers))
        self._record(lesson)

    def _look(self) -> None:
        """Update the situation with the open project and the analysis of its net."""
        live, project = self._workspace.live, self._workspace.document.project
        self._situation = replace(self._situation, project=project)
        analysis = live.analysis
        if analysis is not None and live.up_to_date and not analysis.partial:
            errors = len(live.net_errors)
            self._situation = with_analysis(self._situation, analysis, errors)

    def _record(self, lesson: Lesson) -> None:
        """Keep in the project what was answered and reached, so that it can be handed in; this is no edit to undo."""
        document = self._workspace.document
        work = LessonWork(
            lesson.name,
            FrozenMap(self._answers),
            FrozenMap(self._reached),
            "" if lesson.is_bundled else lesson.source,
            self._student,
        )
        if work != document.project.lesson:
            document.revise(lambda project: replace(project, lesson=work))
            if document.path is not None:
                document.mark_unsaved()

    def _is_met(self, goal: Goal) -> bool:
        return is_passed(goal, self._situation, self._answers, self._reached)

    def _verdict(self, goal: Goal) -> tuple[bool, str | None]:
        """Return whether a goal is met, and what is to be said of one that is not."""
        met = self._is_met(goal)
        value: Value | None = (
            value_of(goal.fact, goal.argument, self._situation) if goal.fact else None
        )
        if goal.question:
            waits = goal.wanted == SAME and value is None
            noted = tr("Noted: it is compared once it is measured.")
            return met, noted if waits else None
        says = value is not None and not (
            goal.comparison == "=" and goal.wanted in (0.0, 1.0)
        )
        return (
            met,
            tr("Now: {value}", value=format_value(value))
            if says and value is not None
            else None,
        )
