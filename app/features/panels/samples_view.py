"""The same samples of several runs side by side: a row a sample, a column a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct
from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtGui import QPainter, QPixmap, QResizeEvent
from PySide6.QtWidgets import QAbstractItemView, QWidget

from app.features.panels.metric_chart import RUN_COLORS
from app.features.panels.sample_rows import (
    ORDERS,
    Order,
    SampleRow,
    orders_for,
    prediction_of,
    target_text,
)
from app.features.panels.values import RunEvaluation, RunSample
from app.training.evaluation.result import PARTS, Picture
from app.util import formatting
from app.util.columns import Column
from app.views.run.picture_grid import image_of
from app.views.ui import theme
from app.views.ui.layouts import vbox
from app.views.ui.tables import Index, RowsModel, Table
from app.views.ui.widgets.button import Button
from app.views.ui.widgets.fields import ChoiceField
from app.views.ui.widgets.painting import label

THUMB, GAP = 60, 4  # px of a picture, and between two, at the designed text size
COLUMN, EVALUATE = (
    166,
    104,
)  # px of a column, and of the row that holds a button, at least
NAME, LEAST_NAME = (
    150,
    96,
)  # px of the names of samples, and where there is no room for more
SWATCH, ARROW = 10, 58  # px of a run's colour, and of a field beside its text
IN_PROGRESS = "run in progress"
EVALUATE_FIRST = "Evaluate a run to list its samples."
NONE_LISTED: dict[Order, str] = {
    "differ": "There is no sample on which the runs disagree.",
    "wrong": "No sample is misclassified.",
}


class RunColumn(Struct):
    """A run in the table. `words` is the reason for a missing evaluation, or the progress of one that is `busy`; a run
    that `goes_on` will have other weights. `samples` are those read so far, by number."""

    label: str
    evaluation: RunEvaluation | None = None
    words: str = ""
    busy: bool = False
    goes_on: bool = False
    samples: dict[int, RunSample] = {}


def pixmap_of(pictures: Sequence[Picture], side: int) -> QPixmap:
    """Return pictures (H, W, 3) beside one another, each within a square; small ones keep their pixels sharp."""
    pixmap = QPixmap(len(pictures) * (side + GAP) - GAP, side)
    pixmap.fill(Qt.GlobalColor.transparent)
    painter = QPainter(pixmap)
    for column, pixels in enumerate(pictures):
        image = image_of(pixels)
        small = max(image.width(), image.height()) <= side
        how = (
            Qt.TransformationMode.FastTransformation
            if small
            else Qt.TransformationMode.SmoothTransformation
        )
        fitted = image.scaled(side, side, Qt.AspectRatioMode.KeepAspectRatio, how)
        painter.drawImage(
            column * (side + GAP) + (side - fitted.width()) // 2,
            (side - fitted.height()) // 2,
            fitted,
        )
    painter.end()
    return pixmap


class SamplesModel(RowsModel):
    """The first column is the sample with its target, the others what each run makes of it."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__((), parent=parent)
        self.part = PARTS[0]
        self.runs: Sequence[RunColumn] = ()
        self.words = ""  # in place of the first sample, where there is none
        self.elided: Callable[[str], str] = (
            str  # shortens the name of a run to the width of its column
        )
        self._pixmaps: dict[tuple[int, int], QPixmap | None] = {}

    def set_content(
        self,
        split_name: str,
        columns: Sequence[RunColumn],
        rows: list[SampleRow],
        total: int,
        placeholder: str,
    ) -> None:
        """Show these samples of these runs, of so many; without any `placeholder` in their place."""
        self.part, self.runs, self.words = split_name, columns, placeholder
        self._pixmaps.clear()
        count = f"{len(rows):,} of {formatting.grouped_digits(total)} samples"
        first = Column(
            count if rows else "Sample",
            lambda row: "\n".join(self._sample_lines(row)),
            spoken=lambda row: ", ".join(self._sample_lines(row)),
        )
        self.set_rows(rows, [first, *map(self._run_column, range(len(columns)))])

    def _run_column(self, run_index: int) -> Column:
        """Return the column of what a run makes of the samples."""
        run = self.runs[run_index]

        def text(row: SampleRow) -> str:
            return "\n".join(self._run_lines(row, run_index))

        return Column(
            run.label,
            text,
            _meaning(run),
            color=lambda row: "error" if self._wrong(row, run_index) else "text",
            spoken=lambda row: ", ".join([run.label, *self._run_lines(row, run_index)]),
        )

    def pictures_changed(self) -> None:
        """Show pictures that were read since."""
        self._pixmaps.clear()
        self.rows_changed(0, len(self.rows) - 1)

    def rowCount(self, parent: Index | None = None) -> int:
        """Return the rows; one holds the buttons where there are no samples yet."""
        return (
            0
            if parent is not None and parent.isValid()
            else max(len(self.rows), int(bool(self.runs)))
        )

    def headerData(
        self,
        section: int,
        orientation: Qt.Orientation,
        role: int = Qt.ItemDataRole.DisplayRole,
    ) -> Any:
        if (
            role == Qt.ItemDataRole.DecorationRole
            and orientation == Qt.Orientation.Horizontal
            and section > 0
        ):
            swatch = QPixmap(SWATCH, SWATCH)
            swatch.fill(
                theme.current().series[RUN_COLORS[(section - 1) % len(RUN_COLORS)]]
            )
            return swatch
        if (
            role == Qt.ItemDataRole.DisplayRole
            and orientation == Qt.Orientation.Horizontal
            and section > 0
        ):
            return _head(self.runs[section - 1], self.elided)
        return super().headerData(section, orientation, role)

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        if not index.row() < len(self.rows):
            return self._words_data(index, role)
        if role == Qt.ItemDataRole.DecorationRole:
            return self._pixmap(index.row(), index.column())
        return super().data(index, role)

    def _words_data(self, index: Index, role: int) -> Any:
        """Return the text of a table without samples."""
        if index.row() or index.column() or self.rows:
            return None
        if role in (Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.ToolTipRole):
            return self.words
        return theme.current().text2 if role == Qt.ItemDataRole.ForegroundRole else None

    def _sample_lines(self, row: SampleRow) -> list[str]:
        column, number = self.runs[row.first], row.numbers[row.first]
        assert column.evaluation is not None and number is not None
        name, sample = (
            column.evaluation.found.name_of(number),
            column.samples.get(number),
        )
        name = name.replace(" of the data)", ")")
        return [
            *filter(
                None,
                (
                    name,
                    target_text(column.evaluation.found, number),
                    sample.text if sample else "",
                ),
            )
        ]

    def _run_lines(self, row: SampleRow, run_index: int) -> list[str]:
        column, number = self.runs[run_index], row.numbers[run_index]
        if column.evaluation is None:
            return []
        if number is None:
            first_evaluation = self.runs[row.first].evaluation
            other = (
                first_evaluation is not None
                and first_evaluation.space != column.evaluation.space
            )
            return [
                "not in the data of this run"
                if other
                else f"not in its {self.part} samples"
            ]
        sample = column.samples.get(number)
        note = [sample.note] if sample is not None and sample.note else []
        return [*note, *prediction_of(column.evaluation, number).lines]

    def _wrong(self, row: SampleRow, run_index: int) -> bool:
        evaluation, number = self.runs[run_index].evaluation, row.numbers[run_index]
        return (
            evaluation is not None
            and number is not None
            and prediction_of(evaluation, number).right is False
        )

    def _pixmap(self, row: int, column: int) -> QPixmap | None:
        if (row, column) not in self._pixmaps:
            side = round(THUMB * theme.manager().scale)
            pictures = self.pictures(self.rows[row], column - 1)
            self._pixmaps[row, column] = pixmap_of(pictures, side) if pictures else None
        return self._pixmaps[row, column]

    def pictures(self, row: SampleRow, run_index: int) -> list[Picture]:
        run = run_index if run_index >= 0 else row.first
        column, number = self.runs[run], row.numbers[run]
        sample = column.samples.get(number) if number is not None else None
        if sample is None:
            return []
        candidates = (
            (sample.output,) if run_index >= 0 else (sample.picture, sample.target)
        )
        return [picture for picture in candidates if picture is not None]


def _head(column: RunColumn, elided: Callable[[str], str]) -> str:
    name = elided(column.label)
    if column.evaluation is None:
        return name
    evaluation = column.evaluation.found
    figures = [f"loss {formatting.figure(evaluation.loss)}"]
    if evaluation.accuracy is not None:
        figures.insert(0, f"{formatting.percent(evaluation.accuracy)} %")
    return "\n".join(
        [name, ", ".join(figures), *([IN_PROGRESS] if column.goes_on else [])]
    )


def _meaning(column: RunColumn) -> str:
    evaluation = column.evaluation.found if column.evaluation is not None else None
    return (
        f"{column.label}: {evaluation.weights}, {evaluation.count:,} {evaluation.part} samples"
        if evaluation is not None
        else column.label
    )


class EvaluateCell(QWidget):
    """Why a run has no evaluation, with the button that evaluates it; meanwhile the progress, with one that cancels."""

    def __init__(self, column: RunColumn) -> None:
        super().__init__()
        self.words = label("", "caption", "text2", wrap=True)
        self.evaluate, self.cancel = (
            Button("Evaluate", "primary", "run"),
            Button("Cancel"),
        )
        self.evaluate.setAccessibleName(f"Evaluate {column.label}")
        self.cancel.setAccessibleName(f"Cancel the evaluation of {column.label}")
        left = Qt.AlignmentFlag.AlignLeft
        vbox(
            self.words,
            (self.evaluate, 0, left),
            (self.cancel, 0, left),
            1,
            on=self,
            margins=8,
            spacing=6,
        )
        self.tell(column)

    def tell(self, column: RunColumn) -> None:
        """Follow the state of the run; the keys stay with the button that is shown."""
        had_focus = self.evaluate.hasFocus() or self.cancel.hasFocus()
        self.words.setText(column.words)
        self.button, other = (
            (self.cancel, self.evaluate)
            if column.busy
            else (self.evaluate, self.cancel)
        )
        self.button.show()
        if had_focus:
            self.button.setFocus()
        other.hide()


class SamplesView(QWidget):
    """`wanted` asks for another part or order, or for more samples; `evaluateRequested(place)` and
    `cancelRequested(place)` are about a run. `tools` are for the row of tools of the page."""

    wanted = Signal()
    evaluateRequested = Signal(int)
    cancelRequested = Signal(int)

    def __init__(self) -> None:
        super().__init__()
        self.columns: Sequence[RunColumn] = ()
        self.cells: dict[int, EvaluateCell] = {}
        self.has_more = False
        self._chosen: Order | None = None  # by the user
        self.part = ChoiceField(
            [(split_name, split_name.capitalize()) for split_name in PARTS], pairs=True
        )
        self.part.setAccessibleName("Samples of")
        self.order = ChoiceField(ORDERS.items(), pairs=True)
        self.order.setAccessibleName("Samples to list")
        self.note = label("", "caption", "text2", wrap=True)
        self.note.setContentsMargins(12, 2, 12, 4)
        self.more = Button("Show more", "link")
        self.tools = (self.part, self.order, self.more)
        self.model = SamplesModel(self)
        self.table = Table(self.model, "Samples of the runs")
        self.table.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectItems)
        self.table.setSelectionMode(QAbstractItemView.SelectionMode.SingleSelection)
        self.table.setWordWrap(True)
        self.table.horizontalHeader().setTextElideMode(
            Qt.TextElideMode.ElideNone
        )  # of lines; see `elided`
        self.model.elided = self._elided
        self.table.horizontalHeader().setDefaultAlignment(
            Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter
        )
        vbox(self.note, (self.table, 1), on=self, margins=0, spacing=0)
        self.part.edited.connect(lambda _part: self.wanted.emit())
        self.order.edited.connect(self._choose_order)
        theme.manager().changed.connect(self.show_pictures)  # of another size
        self.show_rows([], 0)

    def _choose_order(self, order: Order) -> None:
        self._chosen = order
        self.wanted.emit()

    @property
    def chosen_order(self) -> Order:
        order: Order = self.order.value()
        return order

    def set_columns(self, columns: Sequence[RunColumn]) -> None:
        """Show these runs, without samples until `show_rows`; the orders are those that fit them."""
        self.columns = columns
        orders = orders_for([column.evaluation for column in columns])
        if tuple(orders) != self.order.choices():
            self.order.clear_choices()
            for order in orders:
                self.order.add_choice(order, ORDERS[order])
        self.order.set_value(self._chosen if self._chosen in orders else orders[0])
        self.show_rows([], 0)

    def show_rows(self, rows: list[SampleRow], total: int) -> None:
        """List samples, of so many."""
        same = (
            bool(rows) and rows[: len(self.model.rows)] == self.model.rows
        )  # and some more
        current, offset = (
            self.table.currentIndex(),
            self.table.verticalScrollBar().value(),
        )
        row, across = current.row(), current.column()
        had_focus = self.table.isAncestorOf(self.focusWidget() or self)
        focused_index = next(
            (
                at
                for at, cell in self.cells.items()
                if had_focus and cell.isAncestorOf(self.focusWidget())
            ),
            None,
        )
        evaluated = any(column.evaluation is not None for column in self.columns)
        placeholder = (
            NONE_LISTED.get(self.chosen_order, "") if evaluated else EVALUATE_FIRST
        )
        self.model.set_content(
            self.part.value(), self.columns, rows, total, placeholder
        )  # which deletes the cells
        self.cells = {}
        self.table.clearSpans()
        for at, column in enumerate(self.columns):
            if column.evaluation is None:
                self._put_cell(at, column)
        self.tell_note("")
        self.has_more = len(rows) < total
        self.more.setVisible(
            self.has_more and self.order.isVisibleTo(self.order.parentWidget() or self)
        )
        self._fit()
        if same and row >= 0:
            self.table.setCurrentIndex(self.model.index(row, across))
        if same:
            self.table.verticalScrollBar().setValue(offset)
        if focused_index is not None:
            (
                self.cells[focused_index].button
                if focused_index in self.cells
                else self.table
            ).setFocus()

    def _put_cell(self, at: int, column: RunColumn) -> None:
        cell = EvaluateCell(column)
        cell.evaluate.clicked.connect(lambda: self.evaluateRequested.emit(at))
        cell.cancel.clicked.connect(lambda: self.cancelRequested.emit(at))
        if self.model.rowCount() > 1:
            self.table.setSpan(0, at + 1, min(self.model.rowCount(), 2), 1)
        self.table.setIndexWidget(self.model.index(0, at + 1), cell)
        self.cells[at] = cell

    def _elided(self, name: str) -> str:
        header, room = (
            self.table.horizontalHeader(),
            COLUMN * theme.manager().scale - 2 * SWATCH - 8,
        )
        return header.fontMetrics().elidedText(
            name, Qt.TextElideMode.ElideRight, round(room)
        )

    def tell(self, index: int) -> None:
        """Follow the state of a run that has no evaluation."""
        if index in self.cells:
            self.cells[index].tell(self.columns[index])

    def tell_note(self, note: str) -> None:
        """Say something about all samples; "" for nothing."""
        self.note.setText(note)
        self.note.setVisible(bool(note))

    def show_pictures(self) -> None:
        """Show what was read of the samples since."""
        self.model.pictures_changed()
        self._fit()

    def _fit(self) -> None:
        scale = theme.manager().scale
        for chosen, texts in ((self.part, PARTS), (self.order, ORDERS.values())):
            widest = max(
                chosen.fontMetrics().horizontalAdvance(text.capitalize())
                for text in texts
            )
            chosen.setMinimumWidth(widest + ARROW)
        pictures = {at: self._across(at) for at in range(len(self.columns) + 1)}
        side = round((THUMB + GAP) * scale)
        self.table.setIconSize(QSize(2 * side, side))
        lines = self.table.fontMetrics().lineSpacing()
        high = (
            max(side + 8, 4 * lines + 8) if self.model.rows else round(EVALUATE * scale)
        )
        self.table.verticalHeader().setDefaultSectionSize(high)
        widths = [
            round((COLUMN if at else NAME) * scale) + count * side
            for at, count in pictures.items()
        ]
        if sum(widths) > self.table.viewport().width():
            widths[0] -= round((NAME - LEAST_NAME) * scale)
        for at, wide in enumerate(widths):
            self.table.setColumnWidth(at, wide)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit()

    def _across(self, column: int) -> int:
        """Return how many pictures the cells of a column have."""
        return max(
            (len(self.model.pictures(row, column - 1)) for row in self.model.rows),
            default=0,
        )
