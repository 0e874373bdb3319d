"""A box over the canvas in which one types to find a row and takes it with Enter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct
from PySide6.QtCore import (
    QEvent,
    QModelIndex,
    QObject,
    QPersistentModelIndex,
    QPoint,
    QRect,
    QRectF,
    QSize,
    Qt,
    Signal,
)
from PySide6.QtGui import QColor, QFontMetrics, QKeyEvent, QPainter, QPaintEvent
from PySide6.QtWidgets import (
    QFrame,
    QListWidget,
    QListWidgetItem,
    QStyle,
    QStyledItemDelegate,
    QStyleOptionViewItem,
    QWidget,
)

from app.views.ui import icons
from app.views.ui.layouts import vbox
from app.views.ui.present import present
from app.views.ui.theme import current, font
from app.views.ui.widgets.painting import box, label, start
from app.views.ui.widgets.search import SearchField

ROW, MOST_ROWS = 25, 10
GAP = 6
MOST_FOUND = 400  # limit of listed rows; typing more narrows the search
DATA = Qt.ItemDataRole.UserRole


class PickRow(Struct, frozen=True):
    """One row: its icon is that of a category, `faint` follows the text, `hint` is at the right."""

    text: str
    category: str
    value: Any
    faint: str = ""
    hint: str = ""

    @property
    def accessible_text(self) -> str:
        return ", ".join(text for text in (self.text, self.faint, self.hint) if text)


class Question(Struct, frozen=True):
    """What a box asks for: `matches` are the rows for some letters, best first, and `take` gets the value of the one
    that is chosen. `hint` stands below the rows, `nothing` in place of them."""

    placeholder: str
    hint: str
    nothing: str
    matches: Callable[[str], Sequence[PickRow]]
    take: Callable[[Any], object]


class PickBox(QFrame):
    """A search popup. `closed` is emitted when it closes, with a choice or without one."""

    closed = Signal()

    def __init__(self, name: str, rows_name: str, width: int, parent: QWidget) -> None:
        super().__init__(parent)
        self._question: Question | None = None
        self.setObjectName("canvasSearch")
        self.setAccessibleName(name)
        self.field = SearchField("")
        self.rows = QListWidget()
        self.rows.setAccessibleName(rows_name)
        self.rows.setItemDelegate(_Delegate(self.rows))
        self.rows.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.rows.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.rows.setUniformItemSizes(True)
        self.hint = label("", "caption", "text3", wrap=True)
        vbox(self.field, self.rows, self.hint, on=self, margins=8, spacing=6)
        self.setFixedWidth(width)
        self.field.textChanged.connect(self.refill)
        self.field.installEventFilter(self)
        self.rows.itemClicked.connect(lambda item: self._choose(item))
        self.hide()

    # --- Rows

    def refill(self) -> None:
        """List what fits the letters."""
        if self._question is None:
            return
        rows = self._question.matches(self.field.text())
        self.rows.clear()
        for row in rows[:MOST_FOUND]:
            item = QListWidgetItem(row.text)
            item.setData(DATA, row)
            item.setData(Qt.ItemDataRole.AccessibleTextRole, row.accessible_text)
            self.rows.addItem(item)
        self.rows.setCurrentRow(0 if rows else -1)
        self.rows.setFixedHeight(ROW * max(1, min(len(rows), MOST_ROWS)) + 2)
        self.hint.setText(self._question.hint if rows else self._question.nothing)
        if self.isVisible():
            self.adjustSize()

    def values(self) -> list[Any]:
        """Return the values of the listed rows, best first."""
        return [self.rows.item(i).data(DATA).value for i in range(self.rows.count())]

    # --- Opening and closing

    def ask(
        self, question: Question, spot: QPoint, beside: QRect | None = None
    ) -> None:
        """Open near a spot of the parent, inside it; where that covers `beside`, rather above or at its sides."""
        self._question = question
        self.field.setPlaceholderText(question.placeholder)
        self.field.setAccessibleName(question.placeholder)
        self.field.clear()
        self.refill()
        self.adjustSize()
        area = present(self.parentWidget()).rect().adjusted(8, 8, -8, -8)
        rect = QRect(spot, self.size())
        if beside is not None and not area.contains(rect):
            rect = self._beside(beside, area) or rect
        rect.moveLeft(max(area.left(), min(rect.left(), area.right() - rect.width())))
        rect.moveTop(max(area.top(), min(rect.top(), area.bottom() - rect.height())))
        self.move(rect.topLeft())
        self.show()
        self.raise_()
        self.field.setFocus(Qt.FocusReason.PopupFocusReason)

    def _beside(self, thing: QRect, area: QRect) -> QRect | None:
        """Return the first position next to a thing that fits an area: above it, at its right, at its left."""
        above = QPoint(thing.left(), thing.top() - self.height() - GAP)
        top = max(area.top(), min(thing.top(), area.bottom() - self.height()))
        right, left = (
            QPoint(thing.right() + GAP, top),
            QPoint(thing.left() - self.width() - GAP, top),
        )
        rects = (QRect(corner, self.size()) for corner in (above, right, left))
        return next((rect for rect in rects if area.contains(rect)), None)

    def close_box(self) -> None:
        if self.isVisible():
            self.hide()
            self.closed.emit()

    def _choose(self, item: QListWidgetItem | None) -> None:
        if item is not None and self._question is not None:
            value = item.data(DATA).value
            self.hide()
            self._question.take(value)
            self.closed.emit()

    # --- Qt

    def paintEvent(self, event: QPaintEvent) -> None:
        now = current()
        painter = start(self)
        box(painter, QRectF(self.rect()), 7, now.panel, now.line3)
        painter.end()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if (
            watched is self.field
            and isinstance(event, QKeyEvent)
            and event.type() == QEvent.Type.KeyPress
        ):
            return self._key(event)
        if (
            watched is self.field
            and event.type() == QEvent.Type.FocusOut
            and self.isActiveWindow()
        ):
            self.close_box()  # the focus moved on; an activated other window does not count
        return super().eventFilter(watched, event)

    def _key(self, event: QKeyEvent) -> bool:
        steps = {
            Qt.Key.Key_Down: 1,
            Qt.Key.Key_Up: -1,
            Qt.Key.Key_PageDown: MOST_ROWS,
            Qt.Key.Key_PageUp: -MOST_ROWS,
        }
        key = Qt.Key(event.key())
        if key in steps:
            count = self.rows.count()
            if count:
                self.rows.setCurrentRow(
                    min(max(self.rows.currentRow() + steps[key], 0), count - 1)
                )
            return True
        if key in (Qt.Key.Key_Return, Qt.Key.Key_Enter, Qt.Key.Key_Tab):
            self._choose(self.rows.currentItem())
            return True
        if key == Qt.Key.Key_Escape:
            self.close_box()
            return True
        return False


class _Delegate(QStyledItemDelegate):
    """Paints icon, text and faint text, and at the right the hint, for which the text is elided."""

    def sizeHint(
        self, option: QStyleOptionViewItem, index: QModelIndex | QPersistentModelIndex
    ) -> QSize:
        return QSize(120, ROW)

    def paint(
        self,
        painter: QPainter,
        option: QStyleOptionViewItem,
        index: QModelIndex | QPersistentModelIndex,
    ) -> None:
        now, row, area = current(), index.data(DATA), option.rect
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        chosen = bool(option.state & QStyle.StateFlag.State_Selected)
        if chosen or option.state & QStyle.StateFlag.State_MouseOver:
            ground = QRectF(area.adjusted(0, 1, 0, -1))
            box(
                painter,
                ground,
                5,
                now.accentBg if chosen else now.hover,
                now.outline(now.accent) if chosen else None,
            )
        icons.draw(
            painter,
            row.category,
            row.category,
            area.left() + 8,
            area.top() + (area.height() - 14) / 2,
            14,
        )
        room = area.adjusted(30, 0, -8, 0)
        used = _write(painter, room, row.text, "label", now.text)
        room.setLeft(room.left() + used + 8)
        hint = _write(painter, room, row.hint, "caption", now.text3, right=True)
        room.setRight(room.right() - hint - (8 if hint else 0))
        _write(painter, room, row.faint, "label", now.text2)
        painter.restore()


def _write(
    painter: QPainter,
    area: QRect,
    text: str,
    role: str,
    color: QColor,
    right: bool = False,
) -> int:
    """Write one line, cut where it must be; returns the width used."""
    if not text or area.width() < 12:
        return 0
    face = font(role)
    metrics = QFontMetrics(face)
    shown = metrics.elidedText(text, Qt.TextElideMode.ElideRight, area.width())
    painter.setFont(face)
    painter.setPen(color)
    side = Qt.AlignmentFlag.AlignRight if right else Qt.AlignmentFlag.AlignLeft
    painter.drawText(
        area, Qt.AlignmentFlag.AlignVCenter | side | Qt.TextFlag.TextSingleLine, shown
    )
    return metrics.horizontalAdvance(shown)
