"""A segmented control, one of several options: Overlay Shapes | Gradients | Memory."""

from __future__ import annotations

from collections.abc import Iterable

from PySide6.QtCore import QRectF, QSize, Qt, Signal
from PySide6.QtGui import QKeyEvent, QPainterPath, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QAbstractButton, QButtonGroup, QSizePolicy, QWidget

from app.views.ui.layouts import hbox
from app.views.ui.theme import current, grown
from app.views.ui.widgets.painting import KeyboardFocus, TextLine, at_least, box, start

HEIGHT = 24


class _Segment(KeyboardFocus, QAbstractButton):
    def __init__(self, text: str, parent: QWidget) -> None:
        super().__init__(parent)
        self.setText(text)
        self.setCheckable(True)
        self.setAutoExclusive(True)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setAttribute(Qt.WidgetAttribute.WA_Hover)
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Fixed)
        self._lines = (TextLine(text, "label"), TextLine(text, "button"))

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() in (
            Qt.Key.Key_Left,
            Qt.Key.Key_Right,
            Qt.Key.Key_Up,
            Qt.Key.Key_Down,
        ):
            event.ignore()  # the row moves the choice
        else:
            super().keyPressEvent(event)

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Tell the text where it is cut."""
        if self.width() < self.sizeHint().width() and not self.toolTip():
            self.setToolTip(self.text())
        elif self.toolTip() == self.text() and self.width() >= self.sizeHint().width():
            self.setToolTip("")

    def sizeHint(self) -> QSize:
        return at_least(self._lines[1].width + 20, grown(HEIGHT, "button"))

    def minimumSizeHint(self) -> QSize:
        return self.sizeHint()

    def paintEvent(self, event: QPaintEvent) -> None:
        theme = current()
        painter = start(self)
        area = QRectF(self.rect()).adjusted(1, 1, -1, -1)
        if self.isChecked():
            box(painter, area, 4, theme.pressed)
        elif self.underMouse() and self.isEnabled():
            box(painter, area, 4, theme.hover)
        line = self._lines[self.isChecked()]
        color = (
            theme.text4
            if not self.isEnabled()
            else theme.text
            if self.isChecked()
            else theme.text2
        )
        line.draw_in(
            painter, (self.width() - line.width) / 2, QRectF(self.rect()), color
        )
        self.paint_ring(painter, area, 4)
        painter.end()


class Segmented(QWidget):
    """One option among a few, all visible. Arrow keys change it.

    Args:
        options: Texts, or pairs of (key, text).
    """

    changed = Signal(str)

    def __init__(
        self,
        options: Iterable[str | tuple[str, str]],
        name: str = "",
    ) -> None:
        super().__init__()
        self.setAccessibleName(name)
        self.setSizePolicy(QSizePolicy.Policy.Maximum, QSizePolicy.Policy.Fixed)
        layout = hbox(on=self, margins=0, spacing=0)
        self._group = QButtonGroup(self)
        self._segments: dict[str, _Segment] = {}
        for option in options:
            key, text = (option, option) if isinstance(option, str) else option
            segment = _Segment(text, self)
            self._segments[key] = segment
            self._group.addButton(segment)
            layout.addWidget(segment)
            segment.toggled.connect(self._emit_changed)
        next(iter(self._segments.values())).setChecked(True)

    def _emit_changed(self, on: bool) -> None:
        if on:
            self.changed.emit(self.value())

    def keys(self) -> tuple[str, ...]:
        """Return the keys of all options."""
        return tuple(self._segments)

    def value(self) -> str:
        """Return the key of the selected option."""
        return next(
            (key for key, segment in self._segments.items() if segment.isChecked()), ""
        )

    def set_value(self, key: str) -> None:
        """Select an option; `changed` is emitted if it was not selected already.

        Raises:
            KeyError: there is no such choice.
        """
        self._segments[key].setChecked(True)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        open_ones = [
            s for s in self._segments.values() if s.isEnabled() and not s.isHidden()
        ]
        here = next((i for i, s in enumerate(open_ones) if s.isChecked()), 0)
        targets = {
            Qt.Key.Key_Left: here - 1,
            Qt.Key.Key_Right: here + 1,
            Qt.Key.Key_Home: 0,
            Qt.Key.Key_End: -1,
        }
        if event.key() not in targets or not open_ones:
            super().keyPressEvent(event)
            return
        target = open_ones[targets[Qt.Key(event.key())] % len(open_ones)]
        target.setChecked(True)
        target.setFocus(Qt.FocusReason.TabFocusReason)

    def set_option_enabled(self, key: str, enabled: bool, reason: str = "") -> None:
        """Enable or disable an option; `reason` is its tool tip while disabled."""
        self._segments[key].setEnabled(enabled)
        self._segments[key].setToolTip("" if enabled else reason)

    def set_option_offered(self, key: str, offered: bool) -> None:
        """Show or hide an option."""
        self._segments[key].setVisible(offered)
        self.updateGeometry()

    def is_offered(self, key: str) -> bool:
        """Return whether there is an option, which is not hidden."""
        return key in self._segments and not self._segments[key].isHidden()

    def paintEvent(self, event: QPaintEvent) -> None:
        theme = current()
        painter = start(self)
        box(painter, QRectF(self.rect()), 5, theme.raised, theme.line2)
        inside = QPainterPath()
        inside.addRoundedRect(QRectF(self.rect()), 5, 5)
        painter.setClipPath(inside)
        for segment in [
            button for button in self._segments.values() if not button.isHidden()
        ][1:]:
            painter.fillRect(
                QRectF(segment.x() - 0.5, 0, 1, self.height()), theme.line2
            )
        painter.end()
