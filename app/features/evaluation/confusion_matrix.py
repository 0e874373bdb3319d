"""The confusion matrix as a heat map with counts, and for regression predicted against true values."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from PySide6.QtCore import QEvent, QPointF, QRectF, QSize, Qt, Signal
from PySide6.QtGui import (
    QColor,
    QFontMetricsF,
    QKeyEvent,
    QMouseEvent,
    QPainter,
    QPaintEvent,
)
from PySide6.QtWidgets import QSizePolicy, QToolTip, QWidget

from app.training.evaluation.result import Evaluation
from app.util import formatting
from app.views.ui import theme
from app.views.ui.widgets.painting import start

MOST_NUMBERS = 30  # classes that the numbers of the cells are written of
EDGE, HEAD = 8, 18
LEAST_NAMES = 84  # px that names may take at least
DOT = 2.5


class ConfusionMatrix(QWidget):
    """Rows are true classes, columns predicted ones. Colours are relative to the row's total.

    `chosen(true, called)` is emitted on a click on a cell, or Enter on the focused one.
    """

    chosen = Signal(int, int)

    def __init__(self) -> None:
        super().__init__()
        self._found: Evaluation | None = None
        self._cell: tuple[int, int] | None = None
        self._hovered: tuple[int, int] | None = None
        self.setMouseTracking(True)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Expanding)
        self.setMinimumSize(170, 120)
        self.setAccessibleName("Confusion matrix")
        theme.manager().changed.connect(self.update)

    def sizeHint(self) -> QSize:
        return QSize(290, 280)

    def set_found(self, evaluation: Evaluation | None) -> None:
        """Show another evaluation's matrix."""
        self._found, self._cell, self._hovered = evaluation, None, None
        self.update()

    def set_cell(self, cell: tuple[int, int] | None) -> None:
        """Outline a cell: (true, called)."""
        self._cell = cell
        self.update()

    @property
    def count(self) -> int:
        evaluation = self._found
        return (
            len(evaluation.confusion)
            if evaluation is not None and evaluation.confusion is not None
            else 0
        )

    # geometry

    def _names(self) -> list[str]:
        assert self._found is not None
        return [self._found.name(number) for number in range(self.count)]

    def _grid(self) -> QRectF:
        """Return the area of the cells: square, right of the row names and below the column names."""
        metrics = QFontMetricsF(theme.font("axis"))
        widest = max(
            (metrics.horizontalAdvance(name) for name in self._names()), default=0.0
        )
        foot = metrics.height() + HEAD + EDGE
        # Names have what a square as high as the page leaves beside it.
        spare = self.width() - (self.height() - foot - EDGE) - 2 * EDGE - HEAD - 6
        left = EDGE + HEAD + min(widest, max(spare, LEAST_NAMES)) + 6
        side = max(min(self.width() - left - EDGE, self.height() - foot - EDGE), 40)
        return QRectF(left, EDGE, side, side)

    def cell_at(self, position: QPointF) -> tuple[int, int] | None:
        """(true, called) below a point."""
        if not self.count:
            return None
        grid, size = self._grid(), self._grid().width() / self.count
        if not grid.contains(position):
            return None
        row, column = (
            int((position.y() - grid.top()) / size),
            int((position.x() - grid.left()) / size),
        )
        return min(row, self.count - 1), min(column, self.count - 1)

    def centre_of(self, true: int, called: int) -> QPointF:
        """Return the centre of a cell."""
        grid, size = self._grid(), self._grid().width() / self.count
        return QPointF(
            grid.left() + (called + 0.5) * size, grid.top() + (true + 0.5) * size
        )

    # mouse and keys

    def mousePressEvent(self, event: QMouseEvent) -> None:
        cell = self.cell_at(event.position())
        if cell is not None:
            self._choose(cell)

    def _choose(self, cell: tuple[int, int]) -> None:
        self._cell = cell
        self.update()
        self.chosen.emit(*cell)

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        cell = self.cell_at(event.position())
        if cell != self._hovered:
            self._hovered = cell
            QToolTip.showText(
                event.globalPosition().toPoint(),
                self._cell_text(cell) if cell else "",
                self,
            )
            self.update()

    def leaveEvent(self, event: QEvent) -> None:
        self._hovered = None
        self.update()

    def _cell_text(self, cell: tuple[int, int]) -> str:
        evaluation = self._found
        assert evaluation is not None and evaluation.confusion is not None
        true, called = cell
        count, row = (
            int(evaluation.confusion[cell]),
            int(evaluation.confusion[true].sum()),
        )
        share = f" ({formatting.share(count, row)} of it)" if row else ""
        outcome = (
            "classified correctly"
            if true == called
            else f"predicted as {evaluation.name(called)}"
        )
        return f"{formatting.grouped_digits(count)} of class {evaluation.name(true)} {outcome}{share}"

    def keyPressEvent(self, event: QKeyEvent) -> None:
        moves = {
            Qt.Key.Key_Up: (-1, 0),
            Qt.Key.Key_Down: (1, 0),
            Qt.Key.Key_Left: (0, -1),
            Qt.Key.Key_Right: (0, 1),
        }
        if self.count and event.key() in moves:
            row, column = self._cell or (0, 0)
            down, along = moves[Qt.Key(event.key())]
            limit = self.count - 1
            self._choose(
                (min(max(row + down, 0), limit), min(max(column + along, 0), limit))
            )
        else:
            super().keyPressEvent(event)

    # painting

    def paintEvent(self, _event: QPaintEvent) -> None:
        evaluation = self._found
        if evaluation is None or evaluation.confusion is None:
            return
        painter, look, grid = start(self), theme.current(), self._grid()
        size = grid.width() / self.count
        rows = evaluation.confusion.sum(1, keepdims=True)
        shares = evaluation.confusion / np.maximum(rows, 1)
        numbers = self.count <= MOST_NUMBERS and size >= 12
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing, False)
        gap = 1.0 if size >= 8 else 0.0
        for row in range(self.count):
            for column in range(self.count):
                box = QRectF(
                    grid.left() + column * size,
                    grid.top() + row * size,
                    size - gap,
                    size - gap,
                )
                painter.fillRect(
                    box, _fill(look, float(shares[row, column]), row == column)
                )
        painter.setRenderHint(QPainter.RenderHint.Antialiasing, True)
        if numbers:
            self._write_numbers(painter, look, grid, size, shares)
        self._write_names(painter, look, grid, size)
        for cell, color in ((self._hovered, look.text2), (self._cell, look.accent)):
            if cell is not None:
                painter.setPen(color)
                painter.setBrush(Qt.BrushStyle.NoBrush)
                box = QRectF(
                    grid.left() + cell[1] * size,
                    grid.top() + cell[0] * size,
                    size - gap,
                    size - gap,
                )
                painter.drawRect(box.adjusted(0.5, 0.5, -0.5, -0.5))
        painter.end()

    def _write_numbers(
        self,
        painter: QPainter,
        look: theme.Theme,
        grid: QRectF,
        size: float,
        shares: NDArray[np.float64],
    ) -> None:
        assert self._found is not None and self._found.confusion is not None
        font = theme.font("axis")
        metrics = QFontMetricsF(font)
        widest = max(
            metrics.horizontalAdvance(_short(int(value)))
            for value in self._found.confusion.flat
        )
        if widest > size - 2:
            font.setPixelSize(max(round(font.pixelSize() * (size - 2) / widest), 7))
        painter.setFont(font)
        for row in range(self.count):
            for column in range(self.count):
                value = int(self._found.confusion[row, column])
                if value:
                    share = float(shares[row, column])
                    painter.setPen(_ink(look, share, row == column))
                    box = QRectF(
                        grid.left() + column * size, grid.top() + row * size, size, size
                    )
                    painter.drawText(box, Qt.AlignmentFlag.AlignCenter, _short(value))

    def _write_names(
        self, painter: QPainter, look: theme.Theme, grid: QRectF, size: float
    ) -> None:
        painter.setFont(theme.font("axis"))
        metrics = QFontMetricsF(painter.font())
        names, every = self._names(), max(math.ceil(metrics.height() / size), 1)
        widest = max(metrics.horizontalAdvance(name) for name in names)
        across = max(math.ceil((min(widest, max(3 * size, 30)) + 4) / size), 1)
        painter.setPen(look.text2)
        side = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
        for number in range(0, self.count, every):
            room = grid.left() - EDGE - HEAD - 6
            name = metrics.elidedText(names[number], Qt.TextElideMode.ElideRight, room)
            top = grid.top() + (number + 0.5) * size - metrics.height() / 2
            painter.drawText(
                QRectF(EDGE + HEAD, top, room, metrics.height()), side, name
            )
        for number in range(0, self.count, across):
            name = metrics.elidedText(
                names[number], Qt.TextElideMode.ElideRight, across * size - 2
            )
            box = QRectF(
                grid.left() + (number + 0.5 - across / 2) * size,
                grid.bottom() + 2,
                across * size,
                14,
            )
            painter.drawText(box, Qt.AlignmentFlag.AlignCenter, name)
        painter.setPen(look.text3)
        painter.setFont(theme.font("caption"))
        foot = QRectF(
            grid.left(), grid.bottom() + metrics.height() + 2, grid.width(), HEAD
        )
        painter.drawText(foot, Qt.AlignmentFlag.AlignCenter, "predicted")
        painter.save()
        painter.translate(EDGE + HEAD / 2, grid.center().y())
        painter.rotate(-90)
        painter.drawText(
            QRectF(-60, -HEAD / 2, 120, HEAD), Qt.AlignmentFlag.AlignCenter, "class"
        )
        painter.restore()


def _fill(look: theme.Theme, share: float, right: bool) -> QColor:
    """Return the colour of a cell: correct ones in the colour of forward, errors in red; the square root keeps rare
    ones visible."""
    if not share:
        return look.sunken if look.dark else look.hover
    return theme.mix(
        look.plot,
        look.accentFill if right else look.errorFill,
        0.12 + 0.88 * math.sqrt(share),
    )


def _ink(look: theme.Theme, share: float, right: bool) -> QColor:
    return look.onFill if 0.12 + 0.88 * math.sqrt(share) > 0.55 else look.text


def _short(value: int) -> str:
    """
    >>> _short(987), _short(12345)
    ('987', '12k')
    """
    return str(value) if value < 10_000 else f"{value // 1000}k"


class ValuesPlot(QWidget):
    """Predicted against true, a dot a sample; on the diagonal they agree."""

    chosen = Signal(int)  # a sample's number

    def __init__(self) -> None:
        super().__init__()
        self._true = self._called = np.zeros(0)
        self.setMinimumSize(170, 120)
        self.setAccessibleName("Predicted against true")
        theme.manager().changed.connect(self.update)

    def sizeHint(self) -> QSize:
        return QSize(290, 280)

    def set_found(self, evaluation: Evaluation | None) -> None:
        empty = np.zeros(0)
        self._true = (
            evaluation.columns["true"][:, 0].astype(float)
            if evaluation is not None
            else empty
        )
        self._called = (
            evaluation.columns["called"][:, 0].astype(float)
            if evaluation is not None
            else empty
        )
        self.update()

    def _bounds(self) -> tuple[float, float]:
        values = np.concatenate([self._true, self._called])
        values = values[np.isfinite(values)]
        low, high = (
            (float(values.min()), float(values.max())) if len(values) else (0.0, 1.0)
        )
        room = 0.04 * (high - low) or 0.5
        return low - room, high + room

    def _area(self) -> QRectF:
        side = max(min(self.width() - 62, self.height() - 48), 40)
        return QRectF(52, 8, side, side)

    def _points(self) -> tuple[np.ndarray, np.ndarray]:
        area, (low, high) = self._area(), self._bounds()
        scale = area.width() / (high - low)
        return area.left() + (self._true - low) * scale, area.bottom() - (
            self._called - low
        ) * scale

    def mousePressEvent(self, event: QMouseEvent) -> None:
        if len(self._true):
            x, y = self._points()
            away = np.hypot(x - event.position().x(), y - event.position().y())
            nearest = int(np.nanargmin(away))
            if away[nearest] < 12:
                self.chosen.emit(nearest)

    def paintEvent(self, _event: QPaintEvent) -> None:
        if not len(self._true):
            return
        painter, look, area = start(self), theme.current(), self._area()
        low, high = self._bounds()
        painter.fillRect(area, look.plot)
        painter.setPen(look.line2)
        painter.drawRect(area)
        painter.setPen(look.line3)
        painter.drawLine(area.bottomLeft(), area.topRight())
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(theme.faded(look.series[0], 0.6))
        for x, y in zip(*self._points(), strict=True):
            if math.isfinite(x) and math.isfinite(y):
                painter.drawEllipse(QPointF(x, y), DOT, DOT)
        painter.setPen(look.text3)
        painter.setFont(theme.font("axis"))
        right, middle = Qt.AlignmentFlag.AlignRight, Qt.AlignmentFlag.AlignHCenter
        for value, x, y in (
            (low, area.left(), area.bottom()),
            (high, area.right(), area.top()),
        ):
            painter.drawText(
                QRectF(0, y - 7, area.left() - 5, 14), right, formatting.figure(value)
            )
            painter.drawText(
                QRectF(x - 40, area.bottom() + 3, 80, 14),
                middle,
                formatting.figure(value),
            )
        painter.drawText(
            QRectF(area.left(), area.bottom() + 18, area.width(), 16), middle, "true"
        )
        painter.translate(12, area.center().y())
        painter.rotate(-90)
        painter.drawText(QRectF(-60, -8, 120, 16), middle, "predicted")
        painter.end()
