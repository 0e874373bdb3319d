"""The frame of a chart: heading, legend with the newest values, and the plot below."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace
from PySide6.QtCore import QPointF, QRectF, QSize, Qt, Signal
from PySide6.QtGui import (
    QColor,
    QFontMetricsF,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QPen,
    QResizeEvent,
)
from PySide6.QtWidgets import QSizePolicy, QWidget

from app.views.ui import theme
from app.views.ui.layouts import hbox, vbox

LINE = 18  # pixels: a line of a legend, at the designed text size
HEAD = 26  # px of a segmented control in the heading
LEAST_PLOT, LEAST_HEIGHT = (
    148,
    64,
)  # px: the least size of a plot, at the designed text size
USUAL = "0.0000"  # a value of a legend
MOST_LEGEND = 210  # px that a legend insists on; the names of long ones are shortened

Mark = Literal["line", "dots", "square", "dash"]


class Heading(QWidget):
    """A title, a grey note, and a value at the right.

    `short` replaces a title that does not fit, and of a note whole parts are left out, the last first; the tooltip has
    the full text, and says what is shown (`doc`).
    """

    doc = ""

    def __init__(self, title: str, note: str = "", short: str = "") -> None:
        super().__init__()
        self._short = short
        self._title, self._note, self._value = title, note, ""
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self._tell()

    @property
    def texts(self) -> tuple[str, str, str]:
        """Title, note and value."""
        return self._title, self._note, self._value

    def set(
        self,
        title: str | None = None,
        note: str | None = None,
        value: str | None = None,
    ) -> None:
        """Change the texts that are not None."""
        changes = (title, note, value)
        new = tuple(
            old if text is None else text
            for text, old in zip(changes, self.texts, strict=True)
        )
        if new != self.texts:
            old_hint = self.minimumSizeHint()
            self._title, self._note, self._value = new
            if self.minimumSizeHint() != old_hint:
                self.updateGeometry()
            self._tell()
            self.update()

    def _tell(self) -> None:
        texts = ", ".join(text for text in (self._title, self._note) if text)
        self.setToolTip("\n".join(filter(None, (texts, self.doc))))
        self.setAccessibleName(" ".join(self.texts).strip())

    def explain(self, doc: str) -> None:
        """Have the tooltip say what is shown."""
        self.doc = doc
        self._tell()

    def fitted_title(self, room: float) -> str:
        """Return the title, or its short form, in as much as fits into `room` pixels."""
        metrics = QFontMetricsF(theme.font("section"))
        fits = not self._short or metrics.horizontalAdvance(self._title) <= room
        return metrics.elidedText(
            self._title if fits else self._short, Qt.TextElideMode.ElideRight, room
        )

    def fitted_note(self, room: float) -> str:
        """Return as many parts of the note as fit into `room` pixels."""
        metrics, parts = QFontMetricsF(theme.font("caption")), self._note.split(", ")
        while parts and metrics.horizontalAdvance(", ".join(parts)) > room:
            parts.pop()
        return ", ".join(parts)

    def minimumSizeHint(self) -> QSize:
        """Leave room for the title, or its short form, and a value."""
        metrics = QFontMetricsF(theme.font("section"))
        value = metrics.horizontalAdvance("0.00000") + 8 if self._value else 0.0
        return QSize(
            round(metrics.horizontalAdvance(self._short or self._title) + value) + 6,
            HEAD,
        )

    def paintEvent(self, event: QPaintEvent) -> None:
        now = theme.current()
        painter = QPainter(self)
        area = QRectF(self.rect())
        side = Qt.AlignmentFlag.AlignVCenter
        strong, plain = theme.font("section"), theme.font("caption")
        if self._value:
            painter.setFont(strong)
            painter.setPen(now.text)
            painter.drawText(area, side | Qt.AlignmentFlag.AlignRight, self._value)
            area.setWidth(
                area.width() - QFontMetricsF(strong).horizontalAdvance(self._value) - 8
            )
        painter.setFont(strong)
        painter.setPen(now.text)
        title = self.fitted_title(area.width())
        painter.drawText(area, side, title)
        area.setLeft(area.left() + QFontMetricsF(strong).horizontalAdvance(title) + 8)
        painter.setFont(plain)
        painter.setPen(now.text3)
        painter.drawText(area, side, self.fitted_note(area.width()))
        painter.end()


class LegendEntry(Struct, frozen=True):
    """One series in the legend. `series` is its chart colour, −1 that of text; `short` is the label for little room."""

    label: str
    value: str
    series: int = 0
    mark: Mark = "line"
    short: str = ""
    opacity: float = 1.0

    @property
    def color(self) -> QColor:
        now = theme.current()
        return theme.faded(
            now.series[self.series] if self.series >= 0 else now.text, self.opacity
        )


class ChartLegend(QWidget):
    """The meaning of each mark with its newest value. Where space is short it abbreviates labels, wraps to a second
    line, or to as many as `most_lines`, and moves values to the tool tip before it drops a name."""

    def __init__(self) -> None:
        super().__init__()
        self.most_lines = 2
        self._entries: tuple[LegendEntry, ...] = ()
        self._lines = 1
        self._in_one_line = False
        self._usual = USUAL
        self.fits_text = True
        theme.manager().scaled.connect(self._rescale)
        self.setFixedHeight(_line())
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)

    @property
    def texts(self) -> list[str]:
        return [f"{entry.label} {entry.value}" for entry in self._entries]

    def set_entries(self, entries: Sequence[LegendEntry]) -> None:
        if tuple(entries) != self._entries:
            before, self._entries = self._entries, tuple(entries)
            if [entry.label for entry in before] != [entry.label for entry in entries]:
                self._fit()
                self.updateGeometry()
            self.setToolTip("\n".join(self.texts))
            self.setAccessibleName(", ".join(self.texts))
            self.update()

    def set_usual(self, value: str = "") -> None:
        """Leave room for a value like this one; "" for a number."""
        if self._usual != (value or USUAL):
            self._usual = value or USUAL
            self._fit()

    def set_in_one_line(self, on: bool) -> None:
        """Insist on one line, in charts that are too low for two."""
        self._in_one_line = on
        self.updateGeometry()

    def minimumSizeHint(self) -> QSize:
        """Leave room for the widest entry on a separate line, or for all in one."""
        usual = [
            replace(entry, value=max(entry.value, USUAL, key=len))
            for entry in self._entries
        ]
        widths = [width for *_, width in _widths(usual, True, True)]
        most = MOST_LEGEND * theme.manager().scale
        widest = (
            sum(widths)
            if self._in_one_line and len(widths) < 3
            else min(max(widths, default=40.0), most)
        )
        return QSize(round(widest), _line())

    def resizeEvent(self, event: QResizeEvent) -> None:
        self._fit()

    def _rescale(self) -> None:
        self._fit()
        self.updateGeometry()

    def _fit(self) -> None:
        """Take further lines where short names do not fit in one, whatever the values are at the moment."""
        usual = [
            replace(entry, value=entry.value and self._usual) for entry in self._entries
        ]
        self._lines = min(
            _rows(_widths(usual, True, True), True, self.width()), self.most_lines
        )
        self.setFixedHeight(self._lines * _line())

    def fitted_entries(self) -> list[tuple[str, str, bool, float]]:
        """Return label, value, whether the mark is small, and width of every entry, in the longest form that fits."""
        for short, small in ((False, False), (True, False), (True, True)):
            fitted = _widths(self._entries, short, small)
            if _rows(fitted, small, self.width()) <= self._lines:
                return fitted
        plain = [replace(entry, value="") for entry in self._entries]
        fitted = _widths(plain, True, True)
        room = float("inf")
        while _rows(fitted, True, self.width()) > self._lines and room > 20:
            room = min(room - 4, max(width for *_, width in fitted) - 4)
            fitted = _widths(plain, True, True, room)
        return fitted

    def paintEvent(self, event: QPaintEvent) -> None:
        now = theme.current()
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        line = _line()
        x, middle, top = 0.0, line / 2, 0.0
        baseline = Qt.AlignmentFlag.AlignVCenter
        for (label, value, small, width), entry in zip(
            self.fitted_entries(), self._entries, strict=True
        ):
            mark_width = _mark_width(entry.mark, small)
            if (
                x
                and x + width - 2 * _gap(small) > self.width()
                and top < self.height() - line
            ):
                x, top = 0.0, top + line
            _paint_mark(painter, entry, x, top + middle, mark_width - 6)
            left = x + mark_width
            painter.setFont(theme.font("caption"))
            painter.setPen(now.text2)
            painter.drawText(QRectF(left, top, 400, line), baseline, label)
            left += QFontMetricsF(painter.font()).horizontalAdvance(label) + _gap(small)
            painter.setFont(theme.font("section"))
            painter.setPen(now.text)
            metrics = QFontMetricsF(painter.font())
            value = metrics.elidedText(
                value, Qt.TextElideMode.ElideRight, self.width() - left
            )
            painter.drawText(QRectF(left, top, 400, line), baseline, value)
            x += width
        painter.end()


def _widths(
    entries: Sequence[LegendEntry], short: bool, small: bool, most: float = float("inf")
) -> list[tuple[str, str, bool, float]]:
    """Label, value, whether the mark is small, and width of every entry, with the gap behind it; labels are cut where
    an entry would be wider than `most`."""
    plain, strong = (
        QFontMetricsF(theme.font("caption")),
        QFontMetricsF(theme.font("section")),
    )
    widths = []
    for entry in entries:
        label = (entry.short if short else "") or entry.label
        used_width = _mark_width(entry.mark, small) + strong.horizontalAdvance(
            entry.value
        )
        used_width += (3 if entry.value else 2) * _gap(small)
        if most < float("inf"):
            label = plain.elidedText(
                label, Qt.TextElideMode.ElideRight, max(most - used_width, 0.0)
            )
        widths.append(
            (label, entry.value, small, used_width + plain.horizontalAdvance(label))
        )
    return widths


def _rows(
    entries: Sequence[tuple[str, str, bool, float]], small: bool, room: float
) -> int:
    """Return the number of lines that the entries fill."""
    rows, x = 1, 0.0
    for *_, width in entries:
        if x and x + width - 2 * _gap(small) > room:
            rows, x = rows + 1, 0.0
        x += width
    return rows


def _line() -> int:
    """Return the height of a line of a legend at the text size in force."""
    return (
        LINE
        if theme.manager().scale == 1.0
        else round(QFontMetricsF(theme.font("section")).height()) + 1
    )


def _gap(small: bool) -> float:
    return 4.0 if small else 6.0


def _mark_width(mark: Mark, small: bool) -> float:
    """Return the width of a mark, with 6 px behind it."""
    if not small:
        return 15.0 if mark == "square" else 22.0
    return {"square": 13.0, "dots": 13.0, "line": 16.0, "dash": 16.0}[mark]


def _paint_mark(
    painter: QPainter, entry: LegendEntry, x: float, y: float, width: float
) -> None:
    pen = QPen(entry.color, 2)
    if entry.mark == "dash":
        pen.setWidthF(1.25)
        pen.setDashPattern([4, 3])
    if entry.mark != "square":
        painter.setPen(pen)
        painter.drawLine(QPointF(x, y), QPointF(x + width, y))
    painter.setPen(Qt.PenStyle.NoPen)
    painter.setBrush(entry.color)
    if entry.mark == "dots":
        painter.drawEllipse(QPointF(x + width / 2, y), 3, 3)
    elif entry.mark == "square":
        painter.drawRoundedRect(QRectF(x, y - 4.5, 9, 9), 2, 2)


class ChartCard(QWidget):
    """Heading, legend and a body; `tools` is the room at the right of the heading.

    `double_clicked` is emitted for the card around its plot.
    """

    double_clicked = Signal()

    def __init__(
        self, title: str, note: str = "", *, legend: bool = True, short: str = ""
    ) -> None:
        super().__init__()
        self.heading = Heading(title, note, short)
        self.legend = ChartLegend()
        if not legend:
            self.legend.hide()
        self.tools = hbox(spacing=4)
        self.heading.setFixedHeight(HEAD)
        top = hbox((self.heading, 1), self.tools, margins=(0, 0, 12, 0))
        self.body = vbox(margins=0)
        below = hbox(self.legend, margins=(0, 0, 12, 0))
        vbox(top, below, (self.body, 1), on=self, margins=(12, 6, 0, 2), spacing=1)

    least_plot = LEAST_PLOT

    def mouseDoubleClickEvent(self, event: QMouseEvent) -> None:
        self.double_clicked.emit()

    def minimumSizeHint(self) -> QSize:
        """Leave room for the words, and for a plot that can be read."""
        least, scale = super().minimumSizeHint(), theme.manager().scale
        room = self.body.minimumSize().height()
        higher = max(
            least.height() - room + round(LEAST_HEIGHT * scale), least.height()
        )
        return QSize(max(least.width(), round(self.least_plot * scale)), higher)
