"""The page "Learn": the list of lessons, and the one that is open, step by step."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from PySide6.QtCore import Qt, QUrl, Signal
from PySide6.QtGui import QResizeEvent, QTextCursor
from PySide6.QtWidgets import (
    QFrame,
    QLineEdit,
    QScrollArea,
    QStackedWidget,
    QTextBrowser,
    QVBoxLayout,
    QWidget,
)

from app.features.lessons.lesson import Goal, Lesson, translated
from app.features.lessons.maker import LessonMaker
from app.util.language import marked, tr
from app.views.ui import theme
from app.views.ui.layouts import hbox, vbox
from app.views.ui.widgets import Button
from app.views.ui.widgets.button import icon_button
from app.views.ui.widgets.painting import Glyph, label

WIDTH = 320  # px
PARAGRAPH = 8  # px between two
WORDS = marked(
    "Lessons of about ten minutes. Each says what to do, notices that it was done, and gives hints."
)


class LessonCard(QWidget):
    """A lesson in the list: done or not, and its title; what points at it sees how long it takes. `chosen` asks to
    begin it."""

    chosen = Signal()

    def __init__(self, lesson: Lesson, done: bool) -> None:
        super().__init__()
        minutes, title = f"{lesson.minutes} min", tr(lesson.title)
        self.button = Button(title, "link")
        self.button.setAccessibleName(f"{title}, {tr('done') if done else minutes}")
        self.button.setToolTip(f"{minutes}. {_plain(translated(lesson.summary))}")
        self.button.clicked.connect(lambda: self.chosen.emit())
        mark = Glyph(*(("check", "run") if done else ("record", "text4")), 14)
        hbox(mark, self.button, 1, on=self, margins=(0, 2, 4, 2), spacing=6)


def _plain(markdown: str) -> str:
    return markdown.replace("`", "").replace("*", "").replace("\n", " ")


class GoalRow(QWidget):
    """A goal with its tick; a question has a field. `answered(question, text)` carries what was typed."""

    answered = Signal(str, str)

    def __init__(self, goal: Goal, answer: str = "") -> None:
        super().__init__()
        self.goal, self.met = goal, False
        self.mark = Glyph("record", "text4", 14)
        text = label(goal.text, "label", wrap=True)
        column = vbox(text, spacing=4)
        self.field: QLineEdit | None = None
        self.verdict = label("", "caption", "text3", wrap=True)
        self.verdict.hide()
        if goal.question:
            self.field = QLineEdit(tr(answer))
            self.field.setPlaceholderText(tr("Your answer"))
            self.field.setAccessibleName(goal.text)
            self.field.editingFinished.connect(self._answer)
            column.addWidget(self.field)
        column.addWidget(self.verdict)
        hbox(
            (self.mark, 0, Qt.AlignmentFlag.AlignTop),
            (column, 1),
            on=self,
            margins=0,
            spacing=8,
        )
        self._text = text
        self.set_met(False, None)

    def _answer(self) -> None:
        assert self.field is not None
        typed = self.goal.in_english(self.field.text().strip())
        self.answered.emit(self.goal.question, typed)

    def set_met(self, met: bool, seen: str | None) -> None:
        """Tick the goal, or not; `seen` is said of what is there in place of what is wanted."""
        self.met = met
        self.mark.set("check" if met else "record", "run" if met else "text4")
        state = tr("reached") if met else tr("open")
        self._text.setAccessibleName(f"{self.goal.text}, {state}")
        is_typed = self.field is None or bool(self.field.text().strip())
        if self.field is not None and seen is None:
            seen = tr("Not yet: try again.")
        self.verdict.setVisible(seen is not None and is_typed and not met)
        self.verdict.setText(seen or "")


class LessonText(QTextBrowser):
    """The text of a step, as high as it is."""

    def __init__(self) -> None:
        super().__init__()
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setOpenLinks(False)
        self.setAccessibleName(tr("Text of the step"))
        self.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setStyleSheet("QTextBrowser { border: none; background: transparent; }")

    def show_markdown(self, text: str) -> None:
        """Show a text, with space between its paragraphs, of which Markdown says nothing."""
        document = self.document()
        document.setDefaultFont(theme.font("body"))
        document.setDocumentMargin(12)
        self.setMarkdown(text)
        block = document.begin()
        while block.isValid():
            form = block.blockFormat()
            form.setBottomMargin(PARAGRAPH)
            QTextCursor(block).setBlockFormat(form)
            block = block.next()
        self._fit()

    def _fit(self) -> None:
        self.setFixedHeight(round(self.document().size().height()))

    def loadResource(self, kind: int, name: QUrl | str) -> None:
        """Load nothing: a lesson may be a stranger's, and what it names is not read."""
        return None

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit()


class LessonView(QWidget):
    """One lesson: the text of a step, its goals, a hint, and the way to the next.

    `named(student)` carries the name that seeds are made of.
    """

    answered = Signal(str, str)
    left = Signal()
    turned = Signal(int)
    named = Signal(str)

    def __init__(self) -> None:
        super().__init__()
        self.lesson: Lesson | None = None
        self.step = 0
        self.rows: list[GoalRow] = []
        self.title = label("", "section", wrap=True)
        self.count = label("", "caption", "text3")
        self.close_button = icon_button("close", tr("All lessons"))
        self.close_button.clicked.connect(lambda: self.left.emit())
        self.text = LessonText()
        self.student = QLineEdit()
        self.student.setPlaceholderText(tr("Your name or student number"))
        self.student.setAccessibleName(tr("Your name or student number"))
        self.student.setToolTip(tr("Gives you data and weights of your own"))
        self.student.editingFinished.connect(self._name)
        self._goals = QVBoxLayout()
        self._goals.setSpacing(8)
        self.hint_button = Button(tr("Hint"), "link")
        self.hint_button.clicked.connect(self._show_hint)
        self.hint = label("", "label", "text2", wrap=True)
        self.back = Button(tr("Back"), "flat")
        self.back.clicked.connect(lambda: self.show_step(self.step - 1))
        self.next = Button(tr("Next"), "primary")
        self.next.clicked.connect(self._go_on)
        left, top = Qt.AlignmentFlag.AlignLeft, Qt.AlignmentFlag.AlignTop
        goals = vbox(
            self._goals,
            (self.hint_button, 0, left),
            self.hint,
            margins=(12, 0, 12, 8),
            spacing=6,
        )
        inside = QWidget()
        name = hbox(self.student, margins=(12, 4, 12, 0))
        vbox(name, self.text, goals, 1, on=inside, margins=0, spacing=0)
        self.area = QScrollArea()
        self.area.setWidgetResizable(True)
        self.area.setFrameShape(QFrame.Shape.NoFrame)
        self.area.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.area.setWidget(inside)
        titles = vbox(self.title, self.count, spacing=2)
        head = hbox((titles, 1), (self.close_button, 0, top), margins=(12, 10, 8, 4))
        foot = hbox(self.back, 1, self.next, margins=(12, 6, 12, 10))
        vbox(
            head,
            (self.area, 1),
            foot,
            on=self,
            margins=0,
            spacing=0,
        )
        theme.manager().changed.connect(self._write)

    def open(
        self, lesson: Lesson, answers: Mapping[str, str], step: int, student: str
    ) -> None:
        """Show a lesson from a step on."""
        self.lesson, self._answers = lesson, dict(answers)
        self.student.setText(student)
        self.student.setVisible(bool(lesson.seed))
        self.title.setText(tr(lesson.title))
        self.show_step(step)

    def _name(self) -> None:
        if student := " ".join(self.student.text().split()):
            self.named.emit(student)

    def show_step(self, step: int) -> None:
        """Show a step; what is before the first and after the last one is not there."""
        if self.lesson is None:
            return
        self.step = max(0, min(step, len(self.lesson.steps) - 1))
        self._write()
        for row in self.rows:
            self._goals.removeWidget(row)
            row.hide()
            row.deleteLater()
        self.rows = [
            GoalRow(goal, self._answers.get(goal.question, ""))
            for goal in self.lesson.steps[self.step].goals
        ]
        for row in self.rows:
            row.answered.connect(self._answered)
            self._goals.addWidget(row)
        self.hint.hide()
        self.turned.emit(self.step)

    def _write(self) -> None:
        if self.lesson is None:
            return
        shown, number = self.lesson.steps[self.step], len(self.lesson.steps)
        intro = f"{translated(self.lesson.summary)}\n\n" if not self.step else ""
        text = f"{intro}**{tr(shown.title)}**\n\n{translated(shown.text)}"
        self.text.show_markdown(text)
        count = tr("Step {step} of {number}", step=self.step + 1, number=number)
        self.count.setText(count)
        self.back.setEnabled(self.step > 0)

    def _answered(self, question: str, text: str) -> None:
        self._answers[question] = text
        self.answered.emit(question, text)

    def show_verdicts(self, verdicts: Sequence[tuple[bool, str | None]]) -> None:
        """Tick the goals of the step; each verdict says what is there now, None where that is not to be said."""
        for row, (met, seen) in zip(self.rows, verdicts, strict=True):
            row.set_met(met, seen)
        unmet = next((row.goal for row in self.rows if not row.met), None)
        if unmet is None or tr(unmet.hint) != self.hint.text():
            self.hint.hide()
        self.hint_button.setVisible(
            unmet is not None and bool(unmet.hint) and self.hint.isHidden()
        )
        all_met, last = unmet is None, self._is_last
        done = tr("Finish") if last else tr("Next")
        self.next.setText(done if all_met else tr("Skip"))
        self.next.set_kind("primary" if all_met else "flat")

    @property
    def _is_last(self) -> bool:
        return self.lesson is not None and self.step == len(self.lesson.steps) - 1

    def _show_hint(self) -> None:
        """Show the hint of the first goal that is not reached."""
        unmet = next((row.goal for row in self.rows if not row.met), None)
        self.hint.setText(tr(unmet.hint) if unmet is not None else "")
        self.hint.setVisible(bool(self.hint.text()))
        self.hint_button.hide()

    def _go_on(self) -> None:
        if self._is_last:
            self.left.emit()
        else:
            self.show_step(self.step + 1)


class LearnPage(QStackedWidget):
    """`chosen(Lesson)` asks to begin a lesson, `open_wanted` for one from a file, `make_wanted` to write one."""

    chosen = Signal(object)
    open_wanted = Signal()
    make_wanted = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.lesson = LessonView()
        self.maker = LessonMaker()
        self.open = Button(tr("Open a lesson…"), "link")
        self.open.clicked.connect(lambda: self.open_wanted.emit())
        self.make = Button(tr("Make a lesson of this project…"), "link")
        self.make.clicked.connect(lambda: self.make_wanted.emit())
        self.cards: list[LessonCard] = []
        inside = QWidget()
        self._column = vbox(
            label(tr(WORDS), "label", "text2", wrap=True),
            on=inside,
            margins=(12, 12, 12, 12),
            spacing=4,
        )
        left = Qt.AlignmentFlag.AlignLeft
        own = vbox((self.open, 0, left), (self.make, 0, left), margins=(20, 12, 0, 0))
        self._column.addLayout(own)
        self._column.addStretch(1)
        area = QScrollArea()
        area.setWidgetResizable(True)
        area.setFrameShape(QFrame.Shape.NoFrame)
        area.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        area.setWidget(inside)
        self.addWidget(area)
        self.addWidget(self.lesson)
        self.addWidget(self.maker)

    def show_list(self, lessons: Sequence[Lesson], done: Collection[str]) -> None:
        """List the lessons; those that are done are marked."""
        for card in self.cards:
            self._column.removeWidget(card)
            card.hide()
            card.deleteLater()
        self.cards = []
        for number, lesson in enumerate(lessons):
            card = LessonCard(lesson, lesson.name in done)
            card.chosen.connect(lambda lesson=lesson: self.chosen.emit(lesson))
            self._column.insertWidget(number + 1, card)
            self.cards.append(card)
        self.setCurrentIndex(0)

    def show_lesson(
        self, lesson: Lesson, answers: Mapping[str, str], step: int, student: str
    ) -> None:
        """Show a lesson in place of the list."""
        self.setCurrentIndex(1)
        self.lesson.open(lesson, answers, step, student)
