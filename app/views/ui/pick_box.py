"""Boxes in which one types to find a row and takes it with Enter: over a view, and below a field."""

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
from PySide6.QtGui import QKeyEvent, QPainter, QPaintEvent
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
from app.views.ui.op_rows import write
from app.views.ui.present import present
from app.views.ui.theme import current, font
from app.views.ui.widgets.painting import box, label, show_or_hide, start
from app.views.ui.widgets.search import SearchField

ROW, MOST_ROWS = 25, 10
PICKER = 260  # px wide
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
    RADIUS = 7

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
        self.field.lead(self.rows, MOST_ROWS, self._take_current)
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
        show_or_hide(self.hint, self._question.hint if rows else self._question.nothing)
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
        self._take_question(question)
        area = present(self.parentWidget()).rect().adjusted(8, 8, -8, -8)
        rect = QRect(spot, self.size())
        if beside is not None and not area.contains(rect):
            rect = self._beside(beside, area) or rect
        rect.moveLeft(max(area.left(), min(rect.left(), area.right() - rect.width())))
        rect.moveTop(max(area.top(), min(rect.top(), area.bottom() - rect.height())))
        self._open_at(rect.topLeft())

    def _take_question(self, question: Question) -> None:
        self._question = question
        self.field.setPlaceholderText(question.placeholder)
        self.field.setAccessibleName(question.placeholder)
        self.field.clear()
        self.refill()
        self.adjustSize()

    def _open_at(self, corner: QPoint) -> None:
        self.move(corner)
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

    def _take_current(self) -> None:
        self._choose(self.rows.currentItem())

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
        box(painter, QRectF(self.rect()), self.RADIUS, now.panel, now.line3)
        painter.end()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if isinstance(event, QKeyEvent) and event.type() == QEvent.Type.KeyPress:
            if event.key() == Qt.Key.Key_Tab:
                self._take_current()
                return True
            if event.key() == Qt.Key.Key_Escape:
                self.close_box()
                return True
        if (
            watched is self.field
            and event.type() == QEvent.Type.FocusOut
            and self.isActiveWindow()
        ):
            self.close_box()  # the focus moved on; an activated other window does not count
        return super().eventFilter(watched, event)


class Picker(PickBox):
    """A list that opens below a field. `picked(value)` carries the choice."""

    picked = Signal(object)
    RADIUS = 0

    def __init__(
        self, title: str, picks: Sequence[PickRow], nothing: str, parent: QWidget
    ) -> None:
        super().__init__(title, title, PICKER, parent)
        self.setWindowFlags(Qt.WindowType.Popup)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.closed.connect(self.deleteLater)

        def matches(letters: str) -> list[PickRow]:
            letters = letters.strip().lower()
            return [
                pick for pick in picks if letters in f"{pick.text} {pick.faint}".lower()
            ]

        for widget in (self.field, self.rows):
            widget.setVisible(bool(picks))
        self._take_question(Question(title, "", nothing, matches, self.picked.emit))

    def open_below(self, widget: QWidget) -> None:
        """Open below a widget, on the screen as a whole."""
        corner = widget.mapToGlobal(widget.rect().bottomLeft() + QPoint(0, 2))
        if (screen := widget.screen()) is not None:
            room = screen.availableGeometry()
            corner.setX(max(room.left(), min(corner.x(), room.right() - self.width())))
            if corner.y() + self.height() > room.bottom():
                corner.setY(widget.mapToGlobal(QPoint(0, 0)).y() - self.height() - 2)
        self._open_at(corner)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Escape:
            self.close_box()
        else:
            super().keyPressEvent(event)


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
        if row.category:
            icons.draw(
                painter,
                row.category,
                row.category,
                area.left() + 8,
                area.top() + (area.height() - 14) / 2,
                14,
            )
        room = area.adjusted(30 if row.category else 8, 0, -8, 0)
        used = write(painter, room, row.text, font("label"), now.text)
        room.setLeft(room.left() + used + 8)
        hint = write(painter, room, row.hint, font("caption"), now.text3, right=True)
        room.setRight(room.right() - hint - (8 if hint else 0))
        write(painter, room, row.faint, font("label"), now.text2)
        painter.restore()
