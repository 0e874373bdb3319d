"""Building blocks of painted widgets: laid out text, rounded boxes, the focus ring, small labels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QEvent, QPoint, QPointF, QRectF, QSize, Qt
from PySide6.QtGui import (
    QAccessible,
    QAccessibleAnnouncementEvent,
    QColor,
    QFocusEvent,
    QFontMetricsF,
    QHelpEvent,
    QPainter,
    QPaintEvent,
    QPen,
    QResizeEvent,
    QStaticText,
)
from PySide6.QtWidgets import (
    QAbstractButton,
    QGraphicsItem,
    QLabel,
    QSizePolicy,
    QStyleOptionGraphicsItem,
    QToolTip,
    QWidget,
)

from app.views.ui import icons
from app.views.ui.theme import current, font, manager, scene_font

KEY_REASONS = (
    Qt.FocusReason.TabFocusReason,
    Qt.FocusReason.BacktabFocusReason,
    Qt.FocusReason.ShortcutFocusReason,
)

RETURNS = (
    Qt.FocusReason.ActiveWindowFocusReason,
    Qt.FocusReason.PopupFocusReason,
)  # it had the focus before


class TextLine:
    """One line of text in the font of a role, laid out when it is made and not when it is painted.

    It is laid out again when the text size has changed, but for one of a `scene`, which is enlarged as a whole.
    """

    __slots__ = (
        "text",
        "_role",
        "_scene",
        "_scale",
        "_width",
        "_height",
        "_font",
        "_static",
    )

    def __init__(self, text: str, role: str, scene: bool = False) -> None:
        self.text, self._role, self._scene = text, role, scene
        self._lay_out()

    def _lay_out(self) -> None:
        self._scale = manager().scale
        self._font = scene_font(self._role) if self._scene else font(self._role)
        metrics = QFontMetricsF(self._font)
        self._width = metrics.horizontalAdvance(self.text)
        self._height = metrics.height()
        self._static = QStaticText(self.text)
        self._static.setTextFormat(Qt.TextFormat.PlainText)
        self._static.setPerformanceHint(QStaticText.PerformanceHint.AggressiveCaching)
        self._static.prepare(font=self._font)

    def _refresh(self) -> None:
        if not self._scene and self._scale != manager().scale:
            self._lay_out()

    @property
    def width(self) -> float:
        self._refresh()
        return self._width

    @property
    def height(self) -> float:
        self._refresh()
        return self._height

    def draw(self, painter: QPainter, x: float, y: float, color: QColor) -> None:
        """Paint with the top left corner at (x, y)."""
        self._refresh()
        painter.setFont(self._font)
        painter.setPen(color)
        painter.drawStaticText(QPointF(x, y), self._static)

    def draw_in(self, painter: QPainter, x: float, area: QRectF, color: QColor) -> None:
        """Paint at `x`, in the middle of an area's height."""
        self.draw(painter, x, round(area.center().y() - self.height / 2), color)


def elided(
    text: str, role: str, width: float, scene: bool = False, middle: bool = False
) -> TextLine:
    """`text` as a line of at most `width` pixels, with an ellipsis where it was cut: at its end, or in the middle."""
    metrics = QFontMetricsF(scene_font(role) if scene else font(role))
    where = Qt.TextElideMode.ElideMiddle if middle else Qt.TextElideMode.ElideRight
    return TextLine(metrics.elidedText(text, where, max(width, 0.0)), role, scene)


def box(
    painter: QPainter,
    area: QRectF,
    radius: float,
    fill: QColor | None = None,
    line: QColor | None = None,
    width: float = 1.0,
) -> None:
    """Paint a rounded box whose border lies inside `area`."""
    half = width / 2 if line is not None else 0.0
    painter.setPen(QPen(line, width) if line is not None else Qt.PenStyle.NoPen)
    painter.setBrush(fill if fill is not None else Qt.BrushStyle.NoBrush)
    painter.drawRoundedRect(
        area.adjusted(half, half, -half, -half), radius - half, radius - half
    )


def start(widget: QWidget) -> QPainter:
    """Return an antialiasing painter on a widget; the caller ends it."""
    painter = QPainter(widget)
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    return painter


if TYPE_CHECKING:
    _Item = QGraphicsItem
    _Widget = QWidget
else:
    _Item = _Widget = object


class KeyboardFocus(_Widget):
    """Mixin that shows the focus ring for keyboard focus only. List it before the Qt class."""

    _came_by_key = False

    def focusInEvent(self, event: QFocusEvent) -> None:
        if event.reason() not in RETURNS:
            self._came_by_key = event.reason() in KEY_REASONS
        super().focusInEvent(event)

    def shows_ring(self) -> bool:
        return self._came_by_key and self.hasFocus()

    def paint_ring(
        self, painter: QPainter, area: QRectF, radius: float, gap: QColor | None = None
    ) -> None:
        """Paint the focus ring inside `area`; `gap` is the colour of a line between ring and fill, for contrast."""
        if self.shows_ring():
            box(painter, area, radius, line=current().accent, width=2)
            if gap is not None:
                box(painter, area.adjusted(2, 2, -2, -2), radius - 2, line=gap, width=1)


def show_or_hide(words: QLabel | QAbstractButton, text: str) -> None:
    """Show a text in a label or on a button, which is hidden without one."""
    words.setText(text)
    words.setVisible(bool(text))


class TipAt(_Widget):
    """Mixin whose tool tip is that of the place under the pointer. List it before the Qt class."""

    def tip_at(self, at: QPoint) -> str:
        """Return the tool tip of a place, "" for none."""
        raise NotImplementedError

    def event(self, event: QEvent) -> bool:
        if isinstance(event, QHelpEvent) and event.type() == QEvent.Type.ToolTip:
            QToolTip.showText(event.globalPos(), self.tip_at(event.pos()), self)
            return True
        return super().event(event)


class Drawn(_Item):
    """Mixin of items of a scene that paint themselves with nothing but a painter. List it before the Qt class."""

    def paint(
        self,
        painter: QPainter,
        option: QStyleOptionGraphicsItem,
        widget: QWidget | None = None,
    ) -> None:
        self.draw(painter)

    def draw(self, painter: QPainter) -> None:
        """Paint it."""
        raise NotImplementedError


class Glyph(QWidget):
    """A standalone icon that follows the theme."""

    def __init__(
        self,
        name: str,
        color: str | None = None,
        size: int = 16,
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(parent)
        self._size = size
        self._name = self._color = ""
        self.setFixedSize(size, size)
        self.set(name, color)

    def set(self, name: str, color: str | None = None) -> None:
        """Show another icon; `color` is a token or a category, by default the icon's own."""
        look = (name, color or icons.default_color(name))
        if look != (self._name, self._color):
            self._name, self._color = look
            self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        icons.draw(
            painter,
            self._name,
            self._color if self.isEnabled() else "text4",
            0,
            0,
            self._size,
        )
        painter.end()


class Divider(QWidget):
    """A divider, 1 px."""

    def __init__(
        self,
        *,
        vertical: bool = False,
        color: str = "line",
    ) -> None:
        super().__init__()
        self._color = color
        if vertical:
            self.setFixedWidth(1)
        else:
            self.setFixedHeight(1)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.fillRect(self.rect(), current().color(self._color))
        painter.end()


class Words(QLabel):
    """A label that ends with an ellipsis where a line is cut; its window shows the whole text as a tool tip."""

    def paintEvent(self, event: QPaintEvent) -> None:
        text, area, metrics = self.text(), self.contentsRect(), self.fontMetrics()
        plain = (
            self.textFormat() == Qt.TextFormat.PlainText
            and not self.wordWrap()
            and "\n" not in text
        )
        if not plain or metrics.horizontalAdvance(text) <= area.width():
            super().paintEvent(event)
            return
        shown = metrics.elidedText(text, Qt.TextElideMode.ElideRight, area.width())
        painter = QPainter(self)
        flags = int(self.alignment()) | Qt.TextFlag.TextSingleLine
        self.style().drawItemText(
            painter,
            area,
            flags,
            self.palette(),
            self.isEnabled(),
            shown,
            self.foregroundRole(),
        )
        painter.end()


class Wrapped(Words):
    """A text in lines that insists on the height of all of them, for parents that do not ask, such as splitters."""

    def setText(self, text: str) -> None:
        super().setText(text)
        self._fit()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit()

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        if event.type() == QEvent.Type.FontChange:
            self._fit()

    def _fit(self) -> None:
        self.setMinimumHeight(0)  # else what it needs is never less than it was
        self.setMinimumHeight(max(self.heightForWidth(self.width()), 0))


def label(
    text: str,
    role: str = "body",
    tone: str = "",
    *,
    wrap: bool = False,
    whole: bool = False,
) -> QLabel:
    """Return a plain text label. `tone` is one of text2, text3, error, warn, run, accent, back.

    A `whole` one that wraps is never lower than its lines.
    """
    result = Wrapped(text) if whole else Words(text)
    result.setTextFormat(Qt.TextFormat.PlainText)
    result.setFont(font(role))
    result.setWordWrap(wrap)
    if tone:
        result.setProperty("tone", tone)
    if wrap:
        policy = QSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Minimum)
        policy.setHeightForWidth(True)
        result.setSizePolicy(policy)
    return result


def set_property(widget: QWidget, name: str, value: str | bool) -> None:
    """Set a property that the stylesheet selects by, and restyle the widget."""
    before = widget.property(name)
    if before is None and not value:  # no rule selects by an absent or false property
        return
    if before != value:
        widget.setProperty(name, value)
        if not widget.testAttribute(Qt.WidgetAttribute.WA_WState_Polished):
            return  # it is styled when it is shown; twice would lose a font that was set in between
        widget.style().unpolish(widget)
        widget.style().polish(widget)
        widget.update()


def announce(widget: QWidget, text: str) -> None:
    """Announce a change to screen readers without moving the focus."""
    if QAccessible.isActive():
        QAccessible.updateAccessibility(QAccessibleAnnouncementEvent(widget, text))


def in_lines(text: str, role: str, width: float) -> str:
    """Return a text broken into lines of at most `width`, between words."""
    lines: list[str] = []
    for word in text.split(" "):
        longer = f"{lines[-1]} {word}" if lines else word
        if lines and TextLine(longer, role).width <= width:
            lines[-1] = longer
        else:
            lines.append(word)
    return "\n".join(lines)


def at_least(width: float, height: float) -> QSize:
    """Return the size in whole pixels that holds a fractional one."""
    return QSize(int(width + 0.999), int(height + 0.999))
