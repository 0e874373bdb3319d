"""The box at the pointer with the values at that step."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QColor, QFontMetricsF, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QWidget

from app.views.ui import theme
from app.views.ui.present import present

Row = tuple[QColor | None, str, str]  # swatch, label, value

PAD = 9.0
ROW = 18.0
GAP = 14.0


class Readout(QWidget):
    """A heading with a note at its right, and rows of swatch, label and value. It lets the mouse through."""

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        self._heading = ""
        self._note = ""
        self._rows: Sequence[Row] = ()
        self.hide()

    @property
    def texts(self) -> list[str]:
        """The lines of text."""
        return [
            f"{self._heading} {self._note}".strip(),
            *(f"{label} {value}" for _, label, value in self._rows),
        ]

    def show_at(self, x: float, heading: str, note: str, rows: Sequence[Row]) -> None:
        """Show beside `x`, in pixels of the parent, at the side that has room."""
        self._heading, self._note, self._rows = heading, note, rows
        strong, plain = (
            QFontMetricsF(theme.font("section")),
            QFontMetricsF(theme.font("caption")),
        )
        widths = [
            strong.horizontalAdvance(heading)
            + (GAP + plain.horizontalAdvance(note) if note else 0)
        ]
        widths += [
            15 + plain.horizontalAdvance(a) + GAP + strong.horizontalAdvance(b)
            for _, a, b in rows
        ]
        width, height = (
            int(max(widths) + 2 * PAD) + 1,
            int(2 * PAD + ROW * (len(rows) + 1) - 2),
        )
        area = present(self.parentWidget()).rect()
        left = x + 12 if x + 12 + width <= area.right() else x - 12 - width
        left = min(max(left, 2), max(2, area.right() - width - 1))
        self.setGeometry(
            int(left), min(22, max(0, area.bottom() - height - 2)), width, height
        )
        self.show()
        self.raise_()
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        now = theme.current()
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(QPen(now.line2, 1))
        painter.setBrush(now.raised)
        painter.drawRoundedRect(
            QRectF(self.rect()).adjusted(0.5, 0.5, -0.5, -0.5), 5, 5
        )
        left, right, y = PAD, self.width() - PAD, PAD
        self._line(
            painter,
            QRectF(left, y, right - left, ROW - 2),
            self._heading,
            self._note,
            heading=True,
        )
        for color, label, value in self._rows:
            y += ROW
            if color is not None:
                painter.setPen(Qt.PenStyle.NoPen)
                painter.setBrush(color)
                painter.drawRoundedRect(
                    QRectF(QPointF(left, y + 4), QPointF(left + 8, y + 12)), 2, 2
                )
            self._line(
                painter,
                QRectF(left + 15, y, right - left - 15, ROW - 2),
                label,
                value,
                heading=False,
            )
        painter.end()

    @staticmethod
    def _line(
        painter: QPainter, rect: QRectF, first: str, second: str, *, heading: bool
    ) -> None:
        now = theme.current()
        strong, plain = (
            (theme.font("section"), now.text),
            (theme.font("caption"), now.text2),
        )
        for text, (font, color), side in (
            (first, strong if heading else plain, Qt.AlignmentFlag.AlignLeft),
            (second, plain if heading else strong, Qt.AlignmentFlag.AlignRight),
        ):
            painter.setFont(font)
            painter.setPen(color)
            painter.drawText(rect, side | Qt.AlignmentFlag.AlignVCenter, text)
