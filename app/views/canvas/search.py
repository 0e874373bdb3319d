"""Type to find a layer and put it on the canvas: opened at the pointer, driven by the keyboard."""

from __future__ import annotations

from collections.abc import Iterable

from PySide6.QtCore import QEvent, QPoint, QRect, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QKeyEvent, QPainter, QPaintEvent
from PySide6.QtWidgets import (
    QFrame,
    QListWidget,
    QListWidgetItem,
    QStyle,
    QStyledItemDelegate,
    QStyleOptionViewItem,
    QVBoxLayout,
    QWidget,
)

from app.builder.catalog import Catalog, OpSpec
from app.views import fuzzy, icons
from app.views.theme import current, font
from app.views.widgets.painting import box, label, start
from app.views.widgets.search import SearchField

WIDTH, ROW, MOST_ROWS = 320, 25, 10
CATEGORIES = {
    "io": "Input / output", "conv": "Convolution", "linear": "Linear", "act": "Activation", "norm": "Normalisation",
    "shape": "Pooling & shape", "drop": "Regularisation", "merge": "Merge", "seq": "Sequence & attention",
    "block": "Blocks", "loss": "Loss",
}  # fmt: skip
KEY = Qt.ItemDataRole.UserRole


def found(catalog: Catalog, query: str, only: Iterable[str] | None = None) -> list[OpSpec]:
    """The ops that fit the letters, best first; all of them for no letters. The name weighs most."""
    keys = list(catalog) if only is None else [key for key in only if key in catalog]
    fits = []
    for order, key in enumerate(keys):
        spec = catalog[key]
        category = CATEGORIES.get(spec.category, spec.category)
        fit = fuzzy.best(query, ((spec.label, 1.0), (spec.key, 0.8), (spec.stem, 0.7), (category, 0.5)))
        if fit is not None:
            fits.append((-fit, order, spec))
    return [spec for _, _, spec in sorted(fits, key=lambda fit: fit[:2])]


class SearchBox(QFrame):
    """`chosen` tells the key of the op; `closed` comes when it goes away, chosen or not."""

    chosen = Signal(str)
    closed = Signal()

    def __init__(self, catalog: Catalog, parent: QWidget) -> None:
        super().__init__(parent)
        self._catalog = catalog
        self._only: tuple[str, ...] | None = None
        self.setObjectName("canvasSearch")
        self.setAccessibleName("Add a layer")
        self.field = SearchField("Search layers")
        self.rows = QListWidget()
        self.rows.setAccessibleName("Layers found")
        self.rows.setItemDelegate(_Row(self.rows))
        self.rows.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.rows.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.rows.setUniformItemSizes(True)
        self.hint = label("", "caption", "text3")
        layout = QVBoxLayout(self)
        layout.setContentsMargins(8, 8, 8, 8)
        layout.setSpacing(6)
        layout.addWidget(self.field)
        layout.addWidget(self.rows)
        layout.addWidget(self.hint)
        self.setFixedWidth(WIDTH)
        self.field.textChanged.connect(self._refill)
        self.field.installEventFilter(self)
        self.rows.itemClicked.connect(lambda item: self._choose(item))
        self.hide()

    def paintEvent(self, event: QPaintEvent) -> None:
        now = current()
        painter = start(self)
        box(painter, QRectF(self.rect()), 7, now.panel, now.line3)
        painter.end()

    def open_at(self, spot: QPoint, only: Iterable[str] | None = None, hint: str = "") -> None:
        """Open near a spot of the parent with every op, or with those under the keys `only`."""
        self._only = None if only is None else tuple(only)
        self._hint = hint or "Enter adds, Esc closes"
        self.field.clear()
        self._refill()
        self.adjustSize()
        area = self.parentWidget().rect().adjusted(8, 8, -8, -8)
        place = QRect(spot, self.size())
        place.moveLeft(max(area.left(), min(place.left(), area.right() - place.width())))
        place.moveTop(max(area.top(), min(place.top(), area.bottom() - place.height())))
        self.move(place.topLeft())
        self.show()
        self.raise_()
        self.field.setFocus(Qt.FocusReason.PopupFocusReason)

    def close_box(self) -> None:
        if self.isVisible():
            self.hide()
            self.closed.emit()

    def keys(self) -> list[str]:
        """The ops that are listed, best first."""
        return [self.rows.item(i).data(KEY).key for i in range(self.rows.count())]

    def _refill(self) -> None:
        specs = found(self._catalog, self.field.text(), self._only)
        self.rows.clear()
        for spec in specs:
            item = QListWidgetItem(spec.label)
            item.setData(KEY, spec)
            item.setData(Qt.ItemDataRole.AccessibleTextRole, f"{spec.label}, {spec.key}")
            self.rows.addItem(item)
        self.rows.setCurrentRow(0 if specs else -1)
        self.rows.setFixedHeight(ROW * max(1, min(len(specs), MOST_ROWS)) + 2)
        self.hint.setText(self._hint if specs else "No layer fits: try fewer letters")
        if self.isVisible():
            self.adjustSize()

    def _choose(self, item: QListWidgetItem | None) -> None:
        if item is not None:
            key = item.data(KEY).key
            self.hide()
            self.chosen.emit(key)
            self.closed.emit()

    def eventFilter(self, watched, event: QEvent) -> bool:
        if watched is self.field and event.type() == QEvent.Type.KeyPress:
            return self._key(event)
        if watched is self.field and event.type() == QEvent.Type.FocusOut and self.isActiveWindow():
            self.close_box()  # the person went on to something else; another window coming up is no reason
        return super().eventFilter(watched, event)

    def _key(self, event: QKeyEvent) -> bool:
        steps = {Qt.Key.Key_Down: 1, Qt.Key.Key_Up: -1, Qt.Key.Key_PageDown: MOST_ROWS, Qt.Key.Key_PageUp: -MOST_ROWS}
        key = Qt.Key(event.key())
        if key in steps:
            count = self.rows.count()
            if count:
                self.rows.setCurrentRow(min(max(self.rows.currentRow() + steps[key], 0), count - 1))
            return True
        if key in (Qt.Key.Key_Return, Qt.Key.Key_Enter, Qt.Key.Key_Tab):
            self._choose(self.rows.currentItem())
            return True
        if key == Qt.Key.Key_Escape:
            self.close_box()
            return True
        return False


class _Row(QStyledItemDelegate):
    """Icon, name, and at right the category and the key's first part, so that relu and ReLU are told apart."""

    def sizeHint(self, option: QStyleOptionViewItem, index) -> QSize:
        return QSize(WIDTH - 40, ROW)

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index) -> None:
        now, spec, area = current(), index.data(KEY), option.rect
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        chosen = bool(option.state & QStyle.StateFlag.State_Selected)
        if chosen or option.state & QStyle.StateFlag.State_MouseOver:
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(now.accentBg if chosen else now.hover)
            painter.drawRoundedRect(area.adjusted(0, 1, 0, -1), 5, 5)
        icons.draw(painter, spec.category, spec.category, area.left() + 8, area.top() + (area.height() - 14) / 2, 14)
        painter.setFont(font("label"))
        painter.setPen(now.text)
        text = area.adjusted(30, 0, -8, 0)
        painter.drawText(text, Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignLeft, spec.label)
        painter.setFont(font("caption"))
        painter.setPen(now.text3)
        where = spec.key.rpartition(".")[0] or CATEGORIES.get(spec.category, spec.category)
        painter.drawText(text, Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignRight, where)
        painter.restore()
