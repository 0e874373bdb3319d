"""Makes a lesson of the open project, on the page "Learn": texts, goals from the closed list of facts, and hints."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec.structs import replace
from PySide6.QtCore import QObject, Qt, Signal
from PySide6.QtWidgets import (
    QFileDialog,
    QLineEdit,
    QPlainTextEdit,
    QScrollArea,
    QVBoxLayout,
    QWidget,
)

from app.builder.diagram import to_drawing
from app.features.lessons import lesson as lessons
from app.features.lessons.facts import FACTS, Situation
from app.features.lessons.lesson import (
    FILE,
    STUDENT,
    Goal,
    Lesson,
    LessonError,
    LessonStep,
    goal_of,
    row_of,
)
from app.features.lessons.situation import suggested
from app.project import file
from app.project.project import LessonWork
from app.util import atomic
from app.util.language import tr
from app.views.pictures.picture import write
from app.views.pictures.printing.paper import Choice
from app.views.ui.background import WorkerFailure
from app.views.ui.layouts import hbox, vbox
from app.views.ui.widgets import Button, ChoiceField, Toggle
from app.views.ui.widgets.button import icon_button
from app.views.ui.widgets.painting import label
from app.views.workspace import Workspace

START, HAND_OUT = "start.tape", "hand-out.png"
LINES = 4  # of a text that are seen at once
WORDS = (
    "The project as it is now is what the lesson starts with. Texts are Markdown. A goal is a fact of the list with "
    "the value that is there now: change it as you like."
)


def _text_field(name: str) -> QPlainTextEdit:
    field = QPlainTextEdit()
    field.setAccessibleName(name)
    field.setPlaceholderText(name)
    field.setTabChangesFocus(True)
    field.setFixedHeight(field.fontMetrics().lineSpacing() * LINES + 12)
    return field


def _line_field(name: str, text: str = "") -> QLineEdit:
    field = QLineEdit(text)
    field.setAccessibleName(name)
    field.setPlaceholderText(name)
    return field


class GoalEdit(QWidget):
    """A goal as its line, what the student reads of it, and a hint. `removed` asks to take it away."""

    removed = Signal()

    def __init__(self, row: str, hint: str = "") -> None:
        super().__init__()
        self.row = _line_field("Goal", row)
        self.hint = _line_field("Hint", hint)
        self.shown = label("", "caption", "text3", wrap=True)
        remove = icon_button("close", "Remove the goal")
        remove.clicked.connect(lambda: self.removed.emit())
        top = hbox((self.row, 1), remove, spacing=4)
        vbox(top, self.shown, self.hint, on=self, margins=(0, 0, 0, 6), spacing=4)
        self.row.textChanged.connect(lambda _text: self._show())
        self._show()

    def goal(self) -> Goal:
        """Return the goal. Raises LessonError."""
        hint = " ".join(self.hint.text().split())
        return replace(goal_of(self.row.text().strip()), hint=hint)

    def _show(self) -> None:
        self.row.setToolTip(self.row.text())
        try:
            self.shown.setText(self.goal().text)
        except LessonError as error:
            self.shown.setText(str(error).removeprefix("Line 1: "))


class LessonMaker(QWidget):
    """The form of a lesson. `finished(Lesson)` carries what was written, None where the teacher leaves it."""

    finished = Signal(object)
    refused = Signal(str)

    def __init__(self) -> None:
        super().__init__()
        self._lesson = Lesson("", "", "", (LessonStep("", ""),))
        self._steps: list[LessonStep] = []
        self._step = 0
        self.goals: list[GoalEdit] = []
        self.title = _line_field("Title")
        self.summary = _text_field("What the lesson is about")
        self.seeds = Toggle("Other numbers for each student")
        self.step_title = _line_field("Title of the step")
        self.text = _text_field("What to do in the step")
        self.count = label("", "caption", "text3")
        self.before = icon_button("chevron-up", "Step before")
        self.after = icon_button("chevron-down", "Next step")
        self.before.clicked.connect(lambda: self.turn(self._step - 1))
        self.after.clicked.connect(lambda: self.turn(self._step + 1))
        self.more = Button("Add a step", "link")
        self.more.clicked.connect(self.add_step)
        self.less = Button("Remove", "link")
        self.less.clicked.connect(self.remove_step)
        self.facts = ChoiceField([("", "Choose a goal")], "", pairs=True)
        self.facts.setAccessibleName("Facts that goals can be about")
        self.asks = Toggle("Ask for the value")
        self.facts.edited.connect(self._choose)
        self._goals = QVBoxLayout()
        self.save = Button("Save…", "primary")
        self.save.clicked.connect(self._finish)
        leave = icon_button("close", "Leave without saving")
        leave.clicked.connect(lambda: self.finished.emit(None))
        left = Qt.AlignmentFlag.AlignLeft
        steps = hbox(self.count, 1, self.before, self.after, self.less, spacing=4)
        inside = QWidget()
        vbox(
            label(WORDS, "caption", "text3", wrap=True),
            self.title,
            self.summary,
            (self.seeds, 0, left),
            steps,
            self.step_title,
            self.text,
            self.facts,
            (self.asks, 0, left),
            self._goals,
            (self.more, 0, left),
            1,
            on=inside,
            margins=12,
            spacing=8,
        )
        area = QScrollArea()
        area.setWidgetResizable(True)
        area.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        area.setWidget(inside)
        head = hbox(label("A lesson", "section"), 1, leave, margins=(12, 10, 8, 4))
        foot = hbox(1, self.save, margins=(12, 6, 12, 10))
        vbox(head, (area, 1), foot, on=self, margins=0, spacing=0)

    def open(self, lesson: Lesson, rows: Sequence[str]) -> None:
        """Show a lesson to change; `rows` are goals that can be chosen."""
        self._lesson, self._steps = lesson, list(lesson.steps)
        self.title.setText(lesson.title)
        self.summary.setPlainText(lesson.summary)
        self.seeds.set_value(bool(lesson.seed))
        self.facts.clear_choices()
        self.facts.add_choice("", "Choose a goal")
        for row in rows:
            self.facts.add_choice(row, goal_of(row).text)
        self._show_step(0)

    def lesson(self) -> Lesson:
        """Return the lesson as it is written. Raises LessonError."""
        self._keep_step()
        if not self.title.text().strip():
            raise LessonError("The lesson has no title.")
        if untitled := [n for n, step in enumerate(self._steps, 1) if not step.title]:
            raise LessonError(f"Step {untitled[0]} has no title.")
        return replace(
            self._lesson,
            title=self.title.text().strip(),
            summary=self.summary.toPlainText().strip(),
            steps=tuple(self._steps),
            start=START,
            seed=STUDENT if self.seeds.value() else "",
        )

    def turn(self, step: int) -> None:
        """Show another step; a goal that is no goal keeps this one."""
        try:
            self._keep_step()
        except LessonError as error:
            self.refused.emit(str(error))
        else:
            self._show_step(max(0, min(step, len(self._steps) - 1)))

    def add_step(self) -> None:
        """Add a step behind the last one, and show it."""
        self._steps.append(LessonStep("", ""))
        self.turn(len(self._steps) - 1)

    def remove_step(self) -> None:
        """Take the step away that is shown."""
        del self._steps[self._step]
        self._show_step(max(0, self._step - 1))

    def add_goal(self, row: str, hint: str = "") -> GoalEdit:
        """Add a goal to the step."""
        edit = GoalEdit(row, hint)
        edit.removed.connect(lambda: self._remove(edit))
        self.goals.append(edit)
        self._goals.addWidget(edit)
        return edit

    def _choose(self, row: str) -> None:
        if not row:
            return
        goal = goal_of(row)
        if self.asks.value():
            fact = FACTS[goal.fact]
            question = fact.goal.format(argument=fact.shown(goal.argument), wanted="…")
            goal = replace(goal, question=question, comparison="=", wanted=lessons.SAME)
        self.add_goal(row_of(goal)).row.setFocus()
        self.facts.set_value("")

    def _remove(self, edit: GoalEdit) -> None:
        self.goals.remove(edit)
        self._goals.removeWidget(edit)
        edit.hide()
        edit.deleteLater()

    def _keep_step(self) -> None:
        """Take the step that is shown as it is. Raises LessonError."""
        goals = tuple(edit.goal() for edit in self.goals)
        text = self.text.toPlainText().strip()
        title = self.step_title.text().strip()
        self._steps[self._step] = LessonStep(title, text, goals)

    def _show_step(self, number: int) -> None:
        self._step, step = number, self._steps[number]
        for edit in tuple(self.goals):
            self._remove(edit)
        self.step_title.setText(step.title)
        self.text.setPlainText(step.text)
        for goal in step.goals:
            self.add_goal(row_of(goal), goal.hint)
        count = len(self._steps)
        self.count.setText(f"Step {number + 1} of {count}")
        self.before.setEnabled(number > 0)
        self.after.setEnabled(number + 1 < count)
        self.less.setEnabled(count > 1)

    def _finish(self) -> None:
        try:
            lesson = self.lesson()
            lessons.written(lesson)
        except LessonError as error:
            self.refused.emit(str(error).removeprefix("Line 1: "))
        else:
            self.finished.emit(lesson)


class MakerControl(QObject):
    """Opens the form, and writes the folder of the lesson. `made(Lesson)` carries what was written and read again."""

    made = Signal(object)
    left = Signal()

    def __init__(
        self,
        workspace: Workspace,
        maker: LessonMaker,
        situation: Callable[[], Situation],
    ) -> None:
        super().__init__(maker)
        self._workspace, self._maker, self._situation = workspace, maker, situation
        maker.finished.connect(self._finished)
        maker.refused.connect(
            lambda reason: workspace.notifier.refuse("The lesson was not saved", reason)
        )

    def begin(self, lesson: Lesson | None) -> None:
        """Show the form: with a lesson of one's own that is open, else empty."""
        draft = Lesson("", "", "", (LessonStep("", ""),))
        own = lesson is not None and not lesson.is_bundled and lesson.folder != Path()
        self._maker.open(
            lesson if own and lesson is not None else draft,
            suggested(self._situation()),
        )

    def _finished(self, lesson: Lesson | None) -> None:
        if lesson is None:
            self.left.emit()
            return
        folder = lesson.folder
        if folder == Path():
            start = str(self._workspace.settings.export_folder)
            name = QFileDialog.getExistingDirectory(
                self._workspace.window, "Where the folder of the lesson is to be", start
            )
            if not name:
                return
            folder = Path(name) / _folder_name(lesson.title)
            if folder.exists():
                self._maker.refused.emit(
                    f"{folder} is there already. Choose another title or place."
                )
                return
        try:
            self.write(lesson, folder)
        except (OSError, LessonError) as error:
            self._maker.refused.emit(str(error))
            return
        self.made.emit(lessons.read(folder))

    def write(self, lesson: Lesson, folder: Path) -> None:
        """Write `lesson.md`, the project that it starts with, and a picture of that to hand out, which opens as the
        lesson. Raises OSError, LessonError."""
        workspace = self._workspace
        text = lessons.written(lesson)
        project = replace(workspace.document.project, lesson=None)
        folder.mkdir(parents=True, exist_ok=True)
        file.write(project, folder / START)
        atomic.write_bytes(folder / FILE, text.encode())
        handed_out = replace(project, lesson=LessonWork(folder.name, text=text))
        analysis = workspace.live.analysis
        sheet = analysis.sheet if analysis is not None else None
        drawing = to_drawing(project, workspace.catalog, sheet, title=lesson.title)
        path = folder / HAND_OUT
        if not drawing.boxes:
            file.write(handed_out, path.with_suffix(".tape"))
            return
        workspace.background.ask(
            f"hand-out {path}",
            write,
            drawing,
            path,
            Choice(heading=_heading(lesson)),
            file.bytes_for(handed_out, path),
            on_answer=lambda _written: workspace.notifier.say(
                f"Saved {folder.name}", f"{HAND_OUT} opens as the lesson: hand it out."
            ),
            on_error=self._not_drawn,
        )

    def _not_drawn(self, failure: WorkerFailure) -> None:
        self._workspace.notifier.refuse("The hand-out was not written", failure.message)


def _heading(lesson: Lesson) -> tuple[str, ...]:
    """Return what stands above the picture to hand out: the title, and where a student writes the name that their own
    numbers are made of."""
    name = f"{tr('Your name or student number')}: {'_' * 24}"
    return (lesson.title, name) if lesson.seed else (lesson.title,)


def _folder_name(title: str) -> str:
    """Return a title as the name of a folder.

    >>> _folder_name("Loss & rate: 2")
    'loss-rate-2'
    """
    letters = "".join(each if each.isalnum() else " " for each in title.casefold())
    return "-".join(letters.split())[:60] or "lesson"
