"""A popup list at a field: typing filters, arrows move, Enter picks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct
from PySide6.QtCore import QEvent, QObject, QPoint, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QKeyEvent, QPaintEvent
from PySide6.QtWidgets import QFrame, QListWidget, QListWidgetItem, QWidget

from app.views.ui import icons, theme
from app.views.ui.layouts import vbox
from app.views.ui.widgets import SearchField
from app.views.ui.widgets.painting import box, label, start

_ROW, _ROWS_MOST, _WIDTH = 24, 9, 260
_WALK: dict[int, int] = {
    Qt.Key.Key_Up: -1,
    Qt.Key.Key_Down: 1,
    Qt.Key.Key_PageUp: -8,
    Qt.Key.Key_PageDown: 8,
}


class Pick(Struct, frozen=True):
    """An item to pick: value, name, description and icon."""

    value: Any
    name: str
    detail: str = ""
    icon: str = ""


class Picker(QFrame):
    """A popup. `picked(value)` carries the choice."""

    picked = Signal(object)

    def __init__(
        self, title: str, picks: Sequence[Pick], nothing: str, parent: QWidget
    ) -> None:
        super().__init__(parent, Qt.WindowType.Popup)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setAccessibleName(title)
        self._picks = tuple(picks)
        column = vbox(on=self, margins=8, spacing=6)
        self.search = SearchField(title)
        self.list = QListWidget()
        self.list.setIconSize(QSize(14, 14))
        self.list.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.list.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.list.setTextElideMode(Qt.TextElideMode.ElideRight)
        self.nothing = label(nothing, "label", "text3", wrap=True)
        self.nothing.setVisible(not picks)
        self.list.setVisible(bool(picks))
        self.search.setVisible(bool(picks))
        for widget in (self.search, self.list, self.nothing):
            column.addWidget(widget)
        self.setFixedWidth(_WIDTH)
        self.search.textChanged.connect(self._narrow)
        self.search.installEventFilter(self)
        self.list.itemClicked.connect(self._pick)
        self._narrow("")

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = start(self)
        box(
            painter,
            QRectF(self.rect()),
            0,
            theme.current().panel,
            theme.current().line3,
        )
        painter.end()

    def open_below(self, widget: QWidget) -> None:
        """Open below a widget, on the screen as a whole."""
        self.adjustSize()
        position = widget.mapToGlobal(widget.rect().bottomLeft() + QPoint(0, 2))
        if (screen := widget.screen()) is not None:
            room = screen.availableGeometry()
            position.setX(
                max(room.left(), min(position.x(), room.right() - self.width()))
            )
            if position.y() + self.height() > room.bottom():
                position.setY(widget.mapToGlobal(QPoint(0, 0)).y() - self.height() - 2)
        self.move(position)
        self.show()
        self.search.setFocus(Qt.FocusReason.PopupFocusReason)

    def _narrow(self, text: str) -> None:
        self.list.clear()
        for pick in self._picks:
            if text.strip().lower() in f"{pick.name} {pick.detail}".lower():
                item = QListWidgetItem(
                    f"{pick.name}   {pick.detail}" if pick.detail else pick.name
                )
                if pick.icon:
                    item.setIcon(icons.icon(pick.icon))
                item.setToolTip(item.text())
                item.setData(Qt.ItemDataRole.UserRole, pick)
                item.setSizeHint(QSize(10, _ROW))
                self.list.addItem(item)
        self.list.setCurrentRow(0)
        self.list.setFixedHeight(_ROW * max(1, min(len(self._picks), _ROWS_MOST)) + 4)

    def _pick(self, item: QListWidgetItem | None) -> None:
        if item is not None:
            pick = item.data(Qt.ItemDataRole.UserRole)
            self.close()
            self.picked.emit(pick.value)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() == QEvent.Type.KeyPress and isinstance(event, QKeyEvent):
            if event.key() in _WALK:
                count, row = self.list.count(), self.list.currentRow()
                self.list.setCurrentRow(
                    max(0, min(count - 1, row + _WALK[event.key()]))
                )
                return True
            if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
                self._pick(self.list.currentItem())
                return True
        return super().eventFilter(watched, event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Escape:
            self.close()
        else:
            super().keyPressEvent(event)
