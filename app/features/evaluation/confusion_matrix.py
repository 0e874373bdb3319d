"""The confusion matrix as a heat map with counts, and for regression predicted against true values."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PySide6.QtCore import QEvent, QPointF, QRectF, QSize, Qt, Signal
from PySide6.QtGui import (
    QColor,
    QFontInfo,
    QFontMetricsF,
    QKeyEvent,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QResizeEvent,
)
from PySide6.QtWidgets import QSizePolicy, QToolTip, QWidget

from app.training.evaluation.result import Evaluation
from app.util import formatting
from app.views.ui import theme
from app.views.ui.present import present
from app.views.ui.widgets.painting import start

MOST_NUMBERS = 30  # classes that the numbers of the cells are written of
EDGE, HEAD = 8, 18
LEAST_NAMES = 84  # px that names may take at least
NEAR, HEAD_GAP = 6, 4  # px between names and cells, of rows and of columns
MOST_LINES = 3  # of a name
APART = 3  # px between names of several lines
PREDICTED = "predicted"
NUMBERED = 12.5  # px of a cell with a number
LEAST_WIDE, LEAST_HIGH = 170, 120
DOT = 2.5


class _Plan(NamedTuple):
    """Layout of a confusion matrix, in px.

    `grid` is the area of the cells. `names` are the classes with their line breaks; row labels are `room` wide, and
    column labels `foot` high, upright if `on_end`. `is_whole`: no label is cut.
    """

    grid: QRectF
    names: tuple[str, ...]
    room: float
    foot: float
    on_end: bool
    in_corner: bool  # the caption of the columns, beside their heads
    is_whole: bool


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
        self._plan: _Plan | None = None
        self.setMouseTracking(True)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Expanding)
        self.setMinimumSize(LEAST_WIDE, LEAST_HIGH)
        self.setAccessibleName("Confusion matrix")
        theme.manager().changed.connect(self._place)

    def sizeHint(self) -> QSize:
        return QSize(290, 280)

    def set_found(self, evaluation: Evaluation | None) -> None:
        """Show another evaluation's matrix."""
        self._found, self._cell, self._hovered = evaluation, None, None
        self._place()

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

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._plan = None

    def _place(self) -> None:
        """Measure the names again, and take the room for them and for numbers in ten cells."""
        self._plan = None
        widest = _widest(self._names())
        cells = min(self.count, 10) * NUMBERED
        wanted = 2 * EDGE + HEAD + NEAR + min(widest, LEAST_NAMES) + cells
        self.setMinimumWidth(max(math.ceil(wanted), LEAST_WIDE))
        self.update()

    def _names(self) -> list[str]:
        return [present(self._found).name(number) for number in range(self.count)]

    def _planned(self) -> _Plan:
        if self._plan is None:
            self._plan = planned(self._names(), self.width(), self.height())
        return self._plan

    def _grid(self) -> QRectF:
        return self._planned().grid

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

    def head_at(self, position: QPointF) -> int | None:
        """Return the class whose name is at a point, left of its row or below its column."""
        if not self.count:
            return None
        grid, x, y = self._grid(), position.x(), position.y()
        across, down = x - grid.left(), y - grid.top()
        if across < 0 <= down < grid.height():
            return int(down * self.count / grid.height())
        if down >= grid.height() and 0 <= across < grid.width():
            return int(across * self.count / grid.width())
        return None

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
        at = event.position()
        cell, head = self.cell_at(at), self.head_at(at)
        text = self._cell_text(cell) if cell else ""
        if head is not None:
            text = present(self._found).name(head)
        QToolTip.showText(event.globalPosition().toPoint(), text, self)
        if cell != self._hovered:
            self._hovered = cell
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
            pixels = QFontInfo(font).pixelSize() * (size - 2) / widest
            font.setPixelSize(max(int(pixels), 7))
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
        plan = self._planned()
        painter.setFont(theme.font("axis"))
        painter.setPen(look.text2)
        lines = max(name.count("\n") for name in plan.names) + 1
        every = max(math.ceil(lines * _line() / size), 1)
        right, middle = Qt.AlignmentFlag.AlignRight, Qt.AlignmentFlag.AlignHCenter
        extent, below = every * size, grid.bottom() + HEAD_GAP
        for number in range(0, self.count, every):
            name, at = plan.names[number], (number + 0.5) * size
            row = QRectF(EDGE + HEAD, grid.top() + at - extent / 2, plan.room, extent)
            _write(painter, row, name, right)
            painter.save()
            painter.translate(grid.left() + at, below)
            if plan.on_end:
                painter.rotate(-90)
                column = QRectF(-plan.foot, -extent / 2, plan.foot, extent)
                _write(painter, column, name, right)
            else:
                _write(painter, QRectF(-size / 2, 0, size, plan.foot), name, middle)
            painter.restore()
        painter.setPen(look.text3)
        painter.setFont(theme.font("caption"))
        if plan.in_corner:
            corner = QRectF(EDGE, below, grid.left() - NEAR - EDGE, HEAD)
            painter.drawText(corner, right, PREDICTED)
        else:
            foot = QRectF(grid.left(), below + plan.foot, grid.width(), HEAD)
            painter.drawText(foot, Qt.AlignmentFlag.AlignCenter, PREDICTED)
        painter.save()
        painter.translate(EDGE + HEAD / 2, grid.center().y())
        painter.rotate(-90)
        painter.drawText(
            QRectF(-60, -HEAD / 2, 120, HEAD), Qt.AlignmentFlag.AlignCenter, "class"
        )
        painter.restore()


def planned(names: Sequence[str], width: float, height: float) -> _Plan:
    """Return how a matrix of these classes fills an area: with whole names, if it can, and then with large cells."""
    most = max(min(int(height / _line() / max(len(names), 1)), MOST_LINES), 1)
    plans = [_of_lines(names, lines, width, height) for lines in range(1, most + 1)]
    return max(plans, key=lambda plan: (plan.is_whole, plan.grid.width()))


def _of_lines(names: Sequence[str], lines: int, width: float, height: float) -> _Plan:
    """Return the plan with each name in as many lines, or fewer."""
    wrapped = tuple(_wrapped(name, lines) for name in names)
    widest = _widest(line for name in wrapped for line in name.split("\n"))

    def with_foot(foot: float, on_end: bool, in_corner: bool) -> _Plan:
        high = height - 2 * EDGE - HEAD_GAP - foot - (0 if in_corner else HEAD)
        # Names have what a square as high as the page leaves beside it.
        spare = width - high - 2 * EDGE - HEAD - NEAR
        room = min(widest, max(spare, LEAST_NAMES))
        left = EDGE + HEAD + room + NEAR
        side = max(min(width - left - EDGE, high), 40)
        cell = side / max(len(names), 1)
        is_whole = room == widest <= (foot if on_end else cell - 4)
        is_whole = is_whole and (lines == 1 or cell >= lines * _line())
        grid = QRectF(left, EDGE, side, side)
        return _Plan(grid, wrapped, room, foot, on_end, in_corner, is_whole)

    flat = with_foot(lines * _line() + APART, False, False)
    if flat.is_whole:
        return flat
    room = HEAD + min(widest, LEAST_NAMES)
    in_corner = (
        QFontMetricsF(theme.font("caption")).horizontalAdvance(PREDICTED) <= room
    )
    return with_foot(min(widest, height / 3), True, in_corner)


def _wrapped(name: str, most: int) -> str:
    """Return a name in at most as many lines, which are as short as they can be."""
    words = name.split() if most > 1 else [name]
    if len(words) < 2:
        return name
    pieces = {
        " ".join(words[start:end])
        for start in range(len(words))
        for end in range(start + 1, len(words) + 1)
    }
    advance = QFontMetricsF(theme.font("axis")).horizontalAdvance
    for limit in sorted(map(advance, pieces)):
        lines = [words[0]]
        for word in words[1:]:
            longer = f"{lines[-1]} {word}"
            if advance(longer) <= limit:
                lines[-1] = longer
            else:
                lines.append(word)
        if len(lines) <= most and max(map(advance, lines)) <= limit:
            break
    return "\n".join(lines)


def _write(painter: QPainter, area: QRectF, name: str, side: Qt.AlignmentFlag) -> None:
    """Write the lines of a name in the middle of an area, apart from those of the next one."""
    lines, metrics = name.split("\n"), QFontMetricsF(painter.font())
    high = metrics.height()
    step = min(high, (area.height() - APART) / len(lines))
    for number, line in enumerate(lines):
        middle = area.center().y() + (number + 0.5 - len(lines) / 2) * step
        box = QRectF(area.left(), middle - high / 2, area.width(), high)
        text = metrics.elidedText(line, Qt.TextElideMode.ElideRight, area.width())
        painter.drawText(box, side | Qt.AlignmentFlag.AlignVCenter, text)


def _widest(texts: Iterable[str]) -> float:
    advance = QFontMetricsF(theme.font("axis")).horizontalAdvance
    return math.ceil(max(map(advance, texts), default=0.0))


def _line() -> float:
    """Return px from one line of names to the next."""
    metrics = QFontMetricsF(theme.font("axis"))
    return metrics.ascent() + metrics.descent() / 2


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
