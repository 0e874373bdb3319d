"""Page "gradcheck": float64 beside float32, finite differences beside backward."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import Qt
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QBoxLayout, QScrollArea, QWidget

from app.util.formatting import (
    figure,
    grouped_digits,
    scientific,
    shape_text,
    significant,
)
from app.views.ui.layouts import hbox, vbox
from app.views.ui.tables import FiguresTable
from app.views.ui.widgets.painting import Glyph, label

if TYPE_CHECKING:
    from app.features.gradcheck.values import CheckedInput, Element, GradcheckReport

INPUTS = (
    "Tensor",
    "Shape",
    "Checked",
    "Worst at",
    "Backward (float64)",
    "Finite differences",
    "Difference",
    "Backward float32",
)
TABLE = (
    "eps",
    "float64: finite differences",
    "difference",
    "float32: finite differences",
    "difference",
)


def place_of(element: Element | None) -> str:
    """Format the position of an element: "[0, 3]", or a random direction."""
    if element is None:
        return "–"
    return (
        f"[{', '.join(map(str, element.index))}]"
        if element.index
        else "a random direction"
    )


def input_row(checked_input: CheckedInput) -> tuple[str, ...]:
    """Return the cells of one differentiated input."""
    worst = checked_input.worst or checked_input.direction
    checked = f"{grouped_digits(checked_input.checked)} of {grouped_digits(checked_input.elements)}"
    values = (
        ("–", "–", "–")
        if worst is None
        else (
            significant(worst.analytic, 9),
            significant(worst.numeric, 9),
            scientific(worst.relative, 1),
        )
    )
    single = (
        "–" if checked_input.single is None else scientific(checked_input.single, 1)
    )
    return (
        checked_input.name,
        shape_text(checked_input.shape, "()"),
        checked,
        place_of(worst),
        *values,
        single,
    )


def eps_rows(report: GradcheckReport) -> list[tuple[str, ...]]:
    """Return a row per step size, with both precisions."""
    both = {(row.dtype, row.eps): row for row in report.table}
    rows = []
    for eps in sorted({row.eps for row in report.table}, reverse=True):
        cells = [scientific(eps, 0)]
        for dtype in ("float64", "float32"):
            row = both.get((dtype, eps))
            cells += (
                ["–", "–"]
                if row is None
                else [significant(row.numeric, 9), scientific(row.relative, 1)]
            )
        rows.append(tuple(cells))
    return rows


class GradcheckPage(QScrollArea):
    """The result as text, the inputs, and the table over eps."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setWidgetResizable(True)
        self.setFrameShape(QScrollArea.Shape.NoFrame)
        self.report: GradcheckReport | None = None
        self._icon = Glyph("flask", "text3", 15)
        self.verdict = label("", "message", wrap=True)
        self.more = label("", "label", "text2", wrap=True)
        self.inputs = FiguresTable(INPUTS, "Tensors that were checked", {4, 5, 6, 7})
        self.table = FiguresTable(TABLE, "Finite differences over eps", {0, 1, 2, 3, 4})
        self._captions = (
            label(
                "By tensor, float64; the last column is the error of backward in float32",
                "caption",
                "text3",
            ),
            label(
                "Directional derivative along one random direction, for each step eps",
                "caption",
                "text3",
            ),
        )
        inside = QWidget()
        top = hbox(
            (self._icon, 0, Qt.AlignmentFlag.AlignTop), (self.verdict, 1), spacing=10
        )
        column = vbox(top, self.more, on=inside, margins=(16, 10, 16, 14), spacing=6)
        # Beside one another where there is room for both.
        self._tables = QBoxLayout(QBoxLayout.Direction.TopToBottom)
        self._tables.setSpacing(18)
        for caption, table in zip(
            self._captions, (self.inputs, self.table), strict=True
        ):
            table_layout = vbox(caption, table, 1, spacing=2)
            self._tables.addLayout(table_layout)
        column.addSpacing(4)
        column.addLayout(self._tables)
        column.addStretch(1)
        self.setWidget(inside)
        self.show_report(None)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit()

    def _fit(self) -> None:
        wide = (
            self.viewport().width()
            >= sum(table.whole_width for table in (self.inputs, self.table)) + 60
        )
        direction = (
            QBoxLayout.Direction.LeftToRight
            if wide
            else QBoxLayout.Direction.TopToBottom
        )
        if self._tables.direction() != direction:
            self._tables.setDirection(direction)

    def show_report(self, report: GradcheckReport | None, text: str = "") -> None:
        """Show a report, or `text` where there is none."""
        self.report = report
        for widget in (*self._captions, self.inputs, self.table):
            widget.setVisible(report is not None)
        if report is None:
            self._icon.set("flask", "text3")
            self.verdict.setText(
                text or "Select a backward node or a layer and run gradcheck there."
            )
            self.more.setText("")
            self.more.hide()
            return
        first, *rest = report.sentences
        if report.note:
            first, rest = rest[0], [report.note, *rest[1:]]
        self._icon.set(
            "check" if report.passed else "error", "run" if report.passed else "error"
        )
        self.verdict.setText(first)
        rest.append(f"{figure(float(report.evaluations))} forward passes.")
        self.more.setText(" ".join(rest))
        self.more.show()
        self.inputs.set_rows(
            [(*input_row(of), "" if of.fine else "error") for of in report.inputs]
        )
        best = report.best("float64")
        nearest = scientific(best.eps, 0) if best else ""
        self.table.set_rows(
            [(*row, "run" if row[0] == nearest else "") for row in eps_rows(report)]
        )
        for table in (self.inputs, self.table):
            table.fit_height()
        self._fit()
