"""A row of controls that wraps into further rows where it has no room for all."""

from __future__ import annotations

from PySide6.QtCore import QPoint, QRect, QSize, Qt
from PySide6.QtWidgets import QLayout, QLayoutItem, QSizePolicy, QWidget

QWIDGETSIZE_MAX = (1 << 24) - 1  # Qt's maximum of a widget that has none


class FlowLayout(QLayout):
    """Lays widgets out from left to right, with the width that they ask for, and wraps them.

    The widget given to `fill` gets what its row leaves; one given to `push` is put to the right end of its row, with
    those after it, as wide as it may be there.
    """

    def __init__(
        self, on: QWidget, margins: tuple[int, int, int, int], spacing: int
    ) -> None:
        # Known until a part changes: heights by width, and the least size. Qt forgets them while it makes the layout.
        self._heights: dict[int, int] = {}
        self._minimum: QSize | None = None
        super().__init__(on)
        self.setContentsMargins(*margins)
        self.setSpacing(spacing)
        self._items: list[QLayoutItem] = []
        self._filling: QWidget | None = None
        self._pushed: QWidget | None = None
        policy = QSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Minimum)
        policy.setHeightForWidth(True)
        on.setSizePolicy(policy)

    def put(self, *widgets: QWidget) -> None:
        """Append widgets."""
        for widget in widgets:
            self.addWidget(widget)

    def fill(self, widget: QWidget) -> None:
        """Append the widget that gets what its row leaves."""
        self._filling = widget
        self.addWidget(widget)

    def push(self, widget: QWidget) -> None:
        """Append a widget at the right end of its row."""
        self._pushed = widget
        self.addWidget(widget)

    # what a layout has to answer

    def addItem(self, item: QLayoutItem) -> None:
        self._items.append(item)

    def count(self) -> int:
        return len(self._items)

    def itemAt(self, index: int) -> QLayoutItem | None:
        return self._items[index] if 0 <= index < len(self._items) else None

    def takeAt(self, index: int) -> QLayoutItem | None:
        return self._items.pop(index) if 0 <= index < len(self._items) else None

    def expandingDirections(self) -> Qt.Orientation:
        return Qt.Orientation(0)

    def hasHeightForWidth(self) -> bool:
        return True

    def invalidate(self) -> None:
        """Forget the sizes: Qt asks for them tens of times while it lays a window out."""
        self._heights.clear()
        self._minimum = None
        super().invalidate()

    def heightForWidth(self, width: int) -> int:
        if width not in self._heights:
            self._heights[width] = self._arrange(QRect(0, 0, width, 0), move=False)
        return self._heights[width]

    def sizeHint(self) -> QSize:
        return self.minimumSize()

    def minimumSize(self) -> QSize:
        if self._minimum is None:
            self._minimum = self._measure()
        return self._minimum

    def _measure(self) -> QSize:
        """Return the room that the largest part takes in both directions."""
        shown = [item for item in self._items if not item.isEmpty()]
        least = max((item.minimumSize().width() for item in shown), default=0)
        margins = self.contentsMargins()
        tallest = max((item.sizeHint().height() for item in shown), default=0)
        return QSize(
            least + margins.left() + margins.right(),
            tallest + margins.top() + margins.bottom(),
        )

    def setGeometry(self, rect: QRect) -> None:
        super().setGeometry(rect)
        self._arrange(rect, move=True)

    def _arrange(self, rect: QRect, *, move: bool) -> int:
        """Return the height that the rows take in a width, and place what is in them."""
        margins = self.contentsMargins()
        area = rect.marginsRemoved(margins)
        rows: list[list[tuple[QLayoutItem, int]]] = [[]]
        used = 0
        for item in self._items:
            if item.isEmpty():
                continue
            width = self._least(item)
            if rows[-1] and used + self.spacing() + width > area.width():
                rows.append([])
                used = 0
            used += width + (self.spacing() if rows[-1] else 0)
            rows[-1].append((item, width))
        y = area.top()
        for row in rows:
            height = max((item.sizeHint().height() for item, _ in row), default=0)
            if move:
                self._place(row, QRect(area.left(), y, area.width(), height))
            y += height + self.spacing()
        return y - self.spacing() - rect.top() + margins.bottom()

    def _least(self, item: QLayoutItem) -> int:
        """Return the width below which an item goes to the next row."""
        least, bounded = (
            item.minimumSize().width(),
            item.maximumSize().width() < QWIDGETSIZE_MAX,
        )
        stretches = item.widget() is self._filling or (
            item.widget() is self._pushed and bounded
        )
        return least if stretches else max(item.sizeHint().width(), least)

    def _place(self, row: list[tuple[QLayoutItem, int]], area: QRect) -> None:
        left = (
            area.width()
            - sum(width for _, width in row)
            - self.spacing() * max(len(row) - 1, 0)
        )
        filled = any(item.widget() is self._filling for item, _ in row)
        x = area.left()
        for item, hint_width in row:
            width = min(
                hint_width + (left if item.widget() is self._filling else 0),
                area.width(),
            )
            if item.widget() is self._pushed and not filled:
                if item.maximumSize().width() < QWIDGETSIZE_MAX:
                    grown = min(max(left, 0), item.maximumSize().width() - width)
                    width, left = width + grown, left - grown
                x += max(left, 0)
            high = min(item.sizeHint().height(), area.height())
            item.setGeometry(
                QRect(
                    QPoint(x, area.top() + (area.height() - high) // 2),
                    QSize(width, high),
                )
            )
            x += width + self.spacing()
