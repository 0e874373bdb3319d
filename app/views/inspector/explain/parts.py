"""Widgets of "Explain shape": a chip with selectable dimensions, the formula, aligned shapes, rows of nodes."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QEvent, QPointF, QRectF, QSize, Qt, Signal
from PySide6.QtGui import (
    QFont,
    QFontMetricsF,
    QKeyEvent,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QPen,
    QResizeEvent,
)
from PySide6.QtWidgets import QAbstractButton, QSizePolicy, QWidget

from app.builder.dimensions.dimensions import (
    CLASH,
    MISSING,
    SAME,
    STRETCHED,
    Aligned,
    DimensionStory,
)
from app.builder.dimensions.formula import FormulaPart, Line
from app.views.ui import icons, theme
from app.views.ui.widgets.chip import HEIGHT, STATES, ShapeChip
from app.views.ui.widgets.painting import (
    KeyboardFocus,
    TextLine,
    at_least,
    box,
    elided,
    start,
)

ROW = 24
TIMES = "×"


class DimensionChip(KeyboardFocus, ShapeChip):
    """A shape with one selected dimension: by click, or with Left, Right, Home and End.

    `chosen(dimension)` is emitted on a selection; -1 is none.
    """

    chosen = Signal(int)

    def __init__(self, port: str, text: str, stories: Sequence[DimensionStory]) -> None:
        super().__init__(text, "accent")
        self._port, self._stories, self._dimension, self._over = (
            port,
            tuple(stories),
            -1,
            -1,
        )
        self._parts = [TextLine(str(story.result), "shape") for story in stories]
        self._sign = TextLine(TIMES, "shape")
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setMouseTracking(True)
        self._name()

    @property
    def dimension(self) -> int:
        return self._dimension

    def show_dimension(self, dimension: int) -> None:
        """Select a dimension without emitting `chosen`."""
        self._dimension = dimension
        self._name()
        self.update()

    def area_of(self, dimension: int) -> QRectF:
        """Return the area of a dimension inside the chip."""
        left = 8.0 + sum(
            text_line.width + self._sign.width for text_line in self._parts[:dimension]
        )
        return QRectF(left, 0, self._parts[dimension].width, self.height())

    def _name(self) -> None:
        text = f"{self._port}: {self.text()}"
        if 0 <= self._dimension < len(self._stories):
            story = self._stories[self._dimension]
            text += f", dimension {story.dimension} explained: {story.name} is {story.result}"
        self.setAccessibleName(text)
        self.setAccessibleDescription(
            "Left and Right choose the dimension that is explained."
        )

    def sizeHint(self) -> QSize:
        width = sum(text_line.width for text_line in self._parts) + self._sign.width * (
            len(self._parts) - 1
        )
        return at_least(width + 16, HEIGHT + 6)

    def _dimension_at(self, x: float) -> int:
        half = self._sign.width / 2
        for i in range(len(self._parts)):
            area = self.area_of(i)
            if area.left() - half <= x < area.right() + half:
                return i
        return 0 if x < 8 + half else len(self._parts) - 1

    def _choose(self, dimension: int) -> None:
        if 0 <= dimension < len(self._parts) and dimension != self._dimension:
            self.show_dimension(dimension)
            self.chosen.emit(dimension)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        if event.button() == Qt.MouseButton.LeftButton:
            self._choose(self._dimension_at(event.position().x()))

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        over = self._dimension_at(event.position().x())
        if over != self._over:
            self._over = over
            story = self._stories[over]
            self.setToolTip(f"Explain {story.name}, {story.result}")
            self.setCursor(Qt.CursorShape.PointingHandCursor)
            self.update()

    def leaveEvent(self, event: QEvent) -> None:
        self._over = -1
        self.update()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        last = len(self._parts) - 1
        ways = {
            Qt.Key.Key_Left: max(self._dimension - 1, 0),
            Qt.Key.Key_Right: min(self._dimension + 1, last),
            Qt.Key.Key_Home: 0,
            Qt.Key.Key_End: last,
        }
        if event.key() in ways:
            self._choose(ways[Qt.Key(event.key())])
        else:
            super().keyPressEvent(event)

    def paintEvent(self, event: QPaintEvent) -> None:
        colors = theme.current()
        fill, line, text = (colors.color(name) for name in STATES[self.state()])
        painter = start(self)
        middle = QRectF(0, (self.height() - HEIGHT) / 2, self.width(), HEIGHT)
        box(painter, middle, 9, fill, line)
        for i, text_line in enumerate(self._parts):
            area = self.area_of(i)
            text_line.draw_in(painter, area.left(), middle, text)
            if i + 1 < len(self._parts):
                self._sign.draw_in(painter, area.right(), middle, text)
            if i in (self._dimension, self._over):
                color = colors.accent if i == self._dimension else colors.text3
                painter.setPen(QPen(color, 1.5))
                y = middle.bottom() - 3.0
                painter.drawLine(QPointF(area.left(), y), QPointF(area.right(), y))
        self.paint_ring(painter, QRectF(self.rect()), 11)
        painter.end()


class FormulaBox(QWidget):
    """Lines of a formula: letters quiet, real numbers strong, the result in accent. Wraps where it is too long."""

    PAD = 9
    fits_text = True

    def __init__(self, lines: Sequence[Line], remark: str) -> None:
        super().__init__()
        self._lines, self._remark = tuple(lines), remark
        self._take_fonts()
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Fixed)
        self.setAccessibleName(". ".join([*self.texts(), remark]).strip(". "))
        self._rows = self._wrapped(10_000)
        theme.manager().scaled.connect(self._rescale)

    def _take_fonts(self) -> None:
        self._plain, self._strong = theme.font("formula"), theme.font("formula")
        self._strong.setWeight(QFont.Weight.Bold)
        self._metrics = QFontMetricsF(self._plain)

    def _rescale(self, _share: float) -> None:
        self._take_fonts()
        self._rows = self._wrapped(self.width() - 2 * self.PAD)
        self.setFixedHeight(self._height())

    def texts(self) -> list[str]:
        """Return the lines as text."""
        return ["".join(piece.text for piece in line) for line in self._lines]

    @property
    def remark(self) -> str:
        return self._remark

    def _font(self, piece: FormulaPart) -> QFont:
        return self._plain if piece.tone == "letter" else self._strong

    def _width(self, piece: FormulaPart) -> float:
        return QFontMetricsF(self._font(piece)).horizontalAdvance(piece.text)

    def _wrapped(self, room: float) -> list[list[FormulaPart]]:
        """Wrap lines between parts, so that each fits `room` pixels if possible."""
        rows: list[list[FormulaPart]] = []
        for line in self._lines:
            rows.append([])
            used = 0.0
            for piece in line:
                width = self._width(piece)
                if used + width > room and rows[-1]:
                    rows.append([FormulaPart("    ")])
                    used = self._width(rows[-1][0])
                rows[-1].append(piece)
                used += width
        return rows

    def resizeEvent(self, event: QResizeEvent) -> None:
        self._rows = self._wrapped(self.width() - 2 * self.PAD)
        self.setFixedHeight(self._height())

    def _height(self) -> int:
        return int(
            (len(self._rows) + (not self._remark_fits())) * self._line_height()
            + 2 * self.PAD
            - 2
        )

    def _line_height(self) -> float:
        return self._metrics.height() + 2

    def _remark_fits(self) -> bool:
        used = sum(map(self._width, self._rows[-1])) + 2 * self.PAD + 12
        return (
            not self._remark
            or used + self._metrics.horizontalAdvance(self._remark) <= self.width()
        )

    def sizeHint(self) -> QSize:
        return QSize(120, self._height())

    def paintEvent(self, event: QPaintEvent) -> None:
        colors = theme.current()
        tones = {"letter": colors.text2, "value": colors.text, "result": colors.accent}
        painter = start(self)
        box(painter, QRectF(self.rect()), 5, colors.sunken, colors.line2)
        y = self.PAD - 1 + self._metrics.ascent()
        for row in self._rows:
            x = float(self.PAD)
            for piece in row:
                painter.setFont(self._font(piece))
                painter.setPen(tones[piece.tone])
                painter.drawText(QPointF(x, y), piece.text)
                x += self._width(piece)
            y += self._line_height()
        if self._remark:
            painter.setFont(self._plain)
            painter.setPen(colors.text3)
            right = (
                self.width() - self.PAD - self._metrics.horizontalAdvance(self._remark)
            )
            painter.drawText(
                QPointF(right, y - (self._line_height() if self._remark_fits() else 0)),
                self._remark,
            )
        painter.end()


class AlignedShapes(QWidget):
    """Shapes that broadcast, one above the other, aligned at the right; expanded sizes are dashed, conflicts red."""

    def __init__(self, rows: Sequence[Aligned]) -> None:
        super().__init__()
        self._rows = tuple(rows)
        self._names = [TextLine(row.name, "formula") for row in rows]
        self._cells = [
            [TextLine(_cell(text, state), "shape") for text, state in row.cells]
            for row in rows
        ]
        rank = len(rows[0].cells)
        self._widths = [
            max(cells[i].width for cells in self._cells) + 14 for i in range(rank)
        ]
        self.setFixedHeight(ROW * len(rows))
        self.setAccessibleName("; ".join(_accessible_text(row) for row in rows))

    def sizeHint(self) -> QSize:
        return at_least(60 + sum(self._widths), self.height())

    def paintEvent(self, event: QPaintEvent) -> None:
        colors = theme.current()
        painter = start(self)
        left = max(
            0.0,
            min(
                max(name.width for name in self._names) + 12,
                self.width() - sum(self._widths) - 8,
            ),
        )
        for number, row in enumerate(self._rows):
            area = QRectF(0, number * ROW, self.width(), ROW)
            elided(row.name, "formula", left - 8).draw_in(
                painter, 0, area, colors.text2
            )
            x = left
            for line, width, (_, state) in zip(
                self._cells[number], self._widths, row.cells, strict=True
            ):
                self._paint_cell(
                    painter, QRectF(x, area.top() + 3, width - 4, ROW - 6), line, state
                )
                x += width
        painter.end()

    @staticmethod
    def _paint_cell(
        painter: QPainter, area: QRectF, line: TextLine, state: str
    ) -> None:
        colors = theme.current()
        stretches, clashes = state in (STRETCHED, MISSING), state == CLASH
        pen = QPen(
            colors.error if clashes else colors.accent if stretches else colors.line2, 1
        )
        if stretches:
            pen.setStyle(Qt.PenStyle.CustomDashLine)
            pen.setDashPattern([3, 3])
        painter.setPen(pen)
        painter.setBrush(
            colors.errorBg
            if clashes
            else colors.accentBg
            if stretches
            else colors.panel
        )
        painter.drawRoundedRect(area.adjusted(0.5, 0.5, -0.5, -0.5), 3, 3)
        ink = colors.error if clashes else colors.text if stretches else colors.text2
        line.draw_in(painter, area.center().x() - line.width / 2, area, ink)


def _cell(text: str, state: str) -> str:
    return "–" if state == MISSING else text


def _accessible_text(row: Aligned) -> str:
    notes = {SAME: "", STRETCHED: " stretches", CLASH: " clashes"}
    return f"{row.name}: " + ", ".join(
        "missing" if state == MISSING else text + notes[state]
        for text, state in row.cells
    )


class UpstreamRow(KeyboardFocus, QAbstractButton):
    """A node upstream: icon, name, op, and size. A click or Enter selects it."""

    def __init__(
        self, category: str, name: str, words: str, full: str, size: str
    ) -> None:
        super().__init__()
        self._category, self._words = category, words
        self._name, self._size = TextLine(name, "label"), TextLine(size, "shape")
        self.setText(name)
        self.setFixedHeight(ROW)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setAttribute(Qt.WidgetAttribute.WA_Hover)
        self.setCursor(Qt.CursorShape.PointingHandCursor)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setAccessibleName(f"{name}: {size}, {words}")
        self.setToolTip(f"{full} Click selects {name}.")

    def sizeHint(self) -> QSize:
        return QSize(120, ROW)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            self.click()
        elif event.key() in (Qt.Key.Key_Up, Qt.Key.Key_Down):
            self.focusNextPrevChild(event.key() == Qt.Key.Key_Down)
        else:
            super().keyPressEvent(event)

    def paintEvent(self, event: QPaintEvent) -> None:
        colors = theme.current()
        painter = start(self)
        area = QRectF(self.rect())
        if self.underMouse() or self.isDown():
            box(painter, area, 5, colors.pressed if self.isDown() else colors.hover)
        icons.draw(painter, self._category, self._category, 6, (ROW - 13) / 2, 13)
        right = area.right() - 8 - self._size.width
        name = (
            self._name
            if self._name.width <= right - 34
            else elided(self._name.text, "label", right - 34)
        )
        name.draw_in(painter, 25, area, colors.text)
        self._size.draw_in(painter, right, area, colors.text)
        left = 25 + name.width + 8
        if right - left > 40:
            elided(self._words, "caption", right - left - 8).draw_in(
                painter, left, area, colors.text3
            )
        self.paint_ring(painter, area, 5)
        painter.end()
