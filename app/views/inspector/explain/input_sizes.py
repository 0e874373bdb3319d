"""The section "Other sizes" of an Input: for each size the output shape, or the first layer that fails."""

from __future__ import annotations

from msgspec import Struct
from PySide6.QtCore import QEvent, QObject, QSize, Qt, QTimer, Signal
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QHBoxLayout, QLineEdit, QWidget

from app.builder.catalog.catalog import Catalog
from app.builder.graph import Graph
from app.builder.shapes.input_sizes import Shape, ShapeError, Tried, read_shape, usual
from app.engine.requests.layer import TrySizes
from app.util.formatting import shape_text
from app.util.language import marked, tr, trn
from app.views.engine_service import EngineService
from app.views.ui.background import WorkerFailure
from app.views.ui.layouts import hbox, vbox
from app.views.ui.widgets import Button, Section, ShapeChip
from app.views.ui.widgets.button import icon_button
from app.views.ui.widgets.fields import HEIGHT
from app.views.ui.widgets.painting import (
    Glyph,
    announce,
    label,
    set_property,
    show_or_hide,
)

KEY = "candidates"
REST = 150  # debounce in ms: sizes are tried again after the graph stopped changing
SHOWN = 3  # sizes proposed while the list is empty
HINT = marked("Add a size, such as 3×224×224")


class SizeQuestion(Struct, frozen=True):
    """An input of a graph and its current size."""

    graph: Graph
    catalog: Catalog
    node: str
    shape: Shape


class CandidatesSection(Section):
    """A table of sizes, evaluated in the engine. The list of each input lasts as long as the window.

    `taken(shape)` requests to set the input to a size, `select_requested(node)` to select the layer that fails.
    """

    taken = Signal(object)
    select_requested = Signal(str)

    def __init__(self, engine: EngineService) -> None:
        super().__init__(tr("Other sizes"), opened=False)
        self._engine = engine
        self._listed: dict[str, tuple[Shape, ...]] = {}
        self._question: SizeQuestion | None = None
        self._asked: tuple[SizeQuestion, tuple[Shape, ...]] | None = None
        self._known: dict[Shape, Tried] = {}
        self.rows: list[SizeRow] = []
        self.field = QLineEdit()
        self.field.setFixedHeight(HEIGHT)
        self.field.setPlaceholderText(tr(HINT))
        self.field.setAccessibleName(tr("Input size to try"))
        self.field.installEventFilter(self)
        self.field.textEdited.connect(lambda text: self._mark(""))
        self.word = label("", "caption", "error", wrap=True)
        self.word.hide()
        self._rest = QTimer(self, singleShot=True, interval=REST)
        self._rest.timeout.connect(self._request)
        self.toggled.connect(lambda opened: self._wait())
        self._rows_at = vbox(spacing=8)
        column = vbox(self._rows_at, self.field, self.word, spacing=6)
        self.body_layout.addLayout(column)

    def forget(self) -> None:
        """Clear the lists: another project was opened."""
        self._listed.clear()

    def show_input(self, question: SizeQuestion | None) -> None:
        """Try the sizes listed for an input; None hides the section."""
        self.setVisible(question is not None)
        before, self._question = self._question, question
        if question is None:
            return
        if before is None or before.node != question.node:
            self._known = {}
            self._mark("")
        self._show()
        self._wait()

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """The sizes that are tried, in their order."""
        question = self._question
        if question is None:
            return ()
        listed = self._listed.get(question.node)
        return (
            usual(question.shape)[:SHOWN]
            if listed is None
            else tuple(s for s in listed if s != question.shape)
        )

    # --- Requests

    def _wait(self) -> None:
        if (
            self._question is not None
            and self.is_open()
            and self._asked != (self._question, self.shapes)
        ):
            self._rest.start()

    def _request(self) -> None:
        question, shapes = self._question, self.shapes
        if question is None or not self.is_open():
            return
        self._asked = (question, shapes)
        self._engine.ask(
            KEY,
            TrySizes(question.graph, question.catalog, question.node, shapes),
            on_answer=self._show_results,
            on_error=self._failed,
        )

    def _show_results(self, answers: tuple[Tried, ...]) -> None:
        if self._asked is not None and self._question == self._asked[0]:
            self._known = {answer.shape: answer for answer in answers}
            self._show()

    def _failed(self, failure: WorkerFailure) -> None:
        text = tr("The sizes could not be tried: {error}", error=failure.message)
        self._mark(text)

    # --- Showing

    def _show(self) -> None:
        shapes = self.shapes
        if [(row.shape, row.answer) for row in self.rows] == [
            (shape, self._known.get(shape)) for shape in shapes
        ]:
            return
        for row in self.rows:
            row.hide()
            row.deleteLater()
        self.rows = []
        for shape in shapes:
            row = SizeRow(shape, self._known.get(shape))
            row.taken.connect(self.taken)
            row.removed.connect(self._remove)
            row.select_requested.connect(self.select_requested)
            self.rows.append(row)
            self._rows_at.addWidget(row)
        answered = [self._known[shape] for shape in shapes if shape in self._known]
        self.set_caption(
            tr(
                "{number} of {total} run",
                number=sum(answer.runs for answer in answered),
                total=len(answered),
            )
            if answered
            else ""
        )

    def _mark(self, problem: str) -> None:
        show_or_hide(self.word, problem)
        set_property(self.field, "invalid", bool(problem))

    # --- The list

    def add_size(self, text: str) -> None:
        """Add a size to the list; an error of parsing is shown below the field."""
        question = self._question
        if question is None:
            return
        try:
            shape = read_shape(text)
        except ShapeError as error:
            self._mark(str(error))
            announce(self, str(error))
            return
        self._mark("")
        self.field.clear()
        self._listed[question.node] = tuple(dict.fromkeys((*self.shapes, shape)))
        self._show()
        self._wait()

    def _remove(self, shape: Shape) -> None:
        if self._question is not None:
            self._listed[self._question.node] = tuple(
                other for other in self.shapes if other != shape
            )
            self._show()
            self._wait()
            self.field.setFocus()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if (
            watched is self.field
            and isinstance(event, QKeyEvent)
            and event.type() == QEvent.Type.KeyPress
        ):
            if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
                self.add_size(self.field.text())
                return True
        return super().eventFilter(watched, event)


class SizeRow(QWidget):
    """One size: output shape and cost, or the layer that fails and why."""

    taken = Signal(object)
    removed = Signal(object)
    select_requested = Signal(str)

    def __init__(self, shape: Shape, answer: Tried | None) -> None:
        super().__init__()
        self.shape, self.answer = shape, answer
        column = vbox(on=self, margins=0, spacing=2)
        text = shape_text(shape)
        top = hbox(
            Glyph(*self._sign(), size=12),
            ShapeChip(
                text,
                "assumed" if answer is None else "normal" if answer.runs else "error",
            ),
            spacing=6,
        )
        if answer is not None and answer.runs:
            top.addWidget(Glyph("chevron-right", "text3", 10))
            top.addWidget(ShapeChip(answer.came_out, "accent"))
        top.addStretch(1)
        if answer is not None and answer.runs:
            take = Button(tr("Use"), "link")
            take.setToolTip(tr("Give the input {shape}", shape=text))
            take.clicked.connect(lambda: self.taken.emit(shape))
            top.addWidget(take)
        away = icon_button("close", tr("Stop trying {shape}", shape=text))
        away.setFixedSize(18, 18)
        away.setIconSize(QSize(11, 11))
        away.clicked.connect(lambda: self.removed.emit(shape))
        top.addWidget(away, 0, Qt.AlignmentFlag.AlignVCenter)
        column.addLayout(top)
        if answer is not None:
            column.addLayout(self._below(answer))
        self.setAccessibleName(f"{text}: {self.result_text()}")

    def result_text(self) -> str:
        """Return the result for the size as one line."""
        answer = self.answer
        if answer is None:
            return tr("being tried")
        if not answer.runs:
            return answer.words
        number = answer.parameters or 0
        parameters = trn("{count} parameter", "{count} parameters", number)
        if answer.multiply_adds is None:
            return parameters
        adds = tr("{number} multiply-adds", number=_short(answer.multiply_adds))
        return f"{parameters} · {adds}"

    def _sign(self) -> tuple[str, str]:
        if self.answer is None:
            return "more", "text3"
        return ("check", "run") if self.answer.runs else ("error", "error")

    def _below(self, answer: Tried) -> QHBoxLayout:
        row = hbox(margins=(18, 0, 0, 0), spacing=4)
        node = answer.node
        if node is not None and answer.name:
            at = Button(answer.name, "link")
            at.setToolTip(tr("Select {name}, where it fails first", name=answer.name))
            at.clicked.connect(lambda: self.select_requested.emit(node))
            row.addWidget(at, 0, Qt.AlignmentFlag.AlignTop)
        row.addWidget(label(self.result_text(), "caption", "text3", wrap=True), 1)
        return row


def _short(count: int) -> str:
    """Format a large number with three digits.

    >>> _short(950), _short(1_185_408), _short(40_500_000)
    ('950', '1.19 M', '40.5 M')
    """
    value, units = float(count), ["", " k", " M", " G", " T", " P"]
    while value >= 999.5 and len(units) > 1:
        value /= 1000
        units.pop(0)
    digits = 0 if not units[0] or value >= 99.95 else 1 if value >= 9.995 else 2
    return f"{value:.{digits}f}{units[0]}"
