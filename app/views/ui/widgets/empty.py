"""The placeholder of an empty page: its future content and how to add it."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QPointF, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QPaintEvent, QPen, QResizeEvent, QShowEvent
from PySide6.QtWidgets import QWidget

from app.views.ui import icons
from app.views.ui.layouts import vbox
from app.views.ui.present import present
from app.views.ui.theme import current, manager
from app.views.ui.widgets.button import Button
from app.views.ui.widgets.painting import label, show_or_hide, start

CHANGES = frozenset(
    {
        QEvent.Type.LayoutRequest,
        QEvent.Type.FontChange,
        QEvent.Type.StyleChange,
        QEvent.Type.Polish,
    }
)


class _Art(QWidget):
    """A dashed node between two loose wires, and the room below it."""

    HIGH, BELOW = 42, 18

    def __init__(self, icon: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._icon = icon
        self.setFixedSize(172, self.HIGH + self.BELOW)

    def paintEvent(self, event: QPaintEvent) -> None:
        theme = current()
        painter = start(self)
        middle = self.HIGH / 2
        pen = QPen(theme.line3, 1.5, Qt.PenStyle.CustomDashLine)
        pen.setDashPattern([3, 2.4])
        painter.setPen(pen)
        painter.drawLine(QPointF(14, middle), QPointF(50, middle))
        painter.drawLine(QPointF(122, middle), QPointF(158, middle))
        painter.setBrush(theme.canvas)
        painter.drawRoundedRect(QRectF(52, 2, 68, 38), 6, 6)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(theme.line3)
        painter.drawEllipse(QPointF(9, middle), 5, 5)
        painter.drawEllipse(QPointF(163, middle), 5, 5)
        icons.draw(painter, self._icon, "text2", 77, middle - 9, 18)
        painter.end()


MOST_HEIGHT = 1 << 20  # px, before it is known


class EmptyState(QWidget):
    """Icon, title, hint and, for an obvious next step, a primary button.

    `acted` and `first_acted` are emitted by the buttons: that of the constructor, and one before it, of `set_first`.
    """

    acted = Signal()
    first_acted = Signal()

    def __init__(
        self,
        icon: str,
        title: str,
        hint: str = "",
        action: str = "",
        parent: QWidget | None = None,
    ) -> None:
        self._least: QSize | None = (
            None  # until a part changes: a stack of pages asks tens of times in one layout
        )
        super().__init__(parent)
        centre = Qt.AlignmentFlag.AlignHCenter
        self._title = label(title, "title")
        self._hint = label(hint, "label", "text3", wrap=True)
        self._hint.setAlignment(centre | Qt.AlignmentFlag.AlignTop)
        self._hint.setMaximumWidth(round(320 * manager().scale))
        manager().scaled.connect(self._rescale)
        self.button = Button(action, "primary", parent=self)
        self.button.setVisible(bool(action))
        self.button.clicked.connect(self.acted)
        self.first = Button("", "primary", parent=self)
        self.first.hide()
        self.first.clicked.connect(self.first_acted)
        self._art = _Art(icon, self)
        layout = vbox(
            1, (self._art, 0, centre), on=self, margins=(24, 8, 24, 8), spacing=0
        )
        layout.addWidget(self._title, 0, centre)
        layout.addSpacing(6)
        layout.addWidget(self._hint, 0)
        layout.setAlignment(self._hint, centre)
        layout.addSpacing(14)
        layout.addWidget(self.first, 0, centre)
        layout.addSpacing(8)
        layout.addWidget(self.button, 0, centre)
        layout.addStretch(1)
        self.setAccessibleName(title)
        self.setAccessibleDescription(hint)
        self._fit()

    def set_text(self, title: str, hint: str = "") -> None:
        """Set title and hint."""
        self._title.setText(title)
        self._hint.setText(hint)
        self.setAccessibleName(title)
        self.setAccessibleDescription(hint)
        self._fit()

    def set_first(self, action: str) -> None:
        """Put a step before the button's, which becomes the second choice; none for ""."""
        show_or_hide(self.first, action)
        self.button.set_kind("secondary" if action else "primary")
        self._fit()

    def title(self) -> str:
        return self._title.text()

    def _rescale(self, _share: float) -> None:
        self._hint.setMaximumWidth(round(320 * manager().scale))
        self._fit()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._fit()

    def _fit(self) -> None:
        self._least = None
        # A centred label with word wrap has no natural width: it gets what the room or the text allows.
        most = round(320 * manager().scale)
        natural = self._hint.fontMetrics().horizontalAdvance(self._hint.text()) + 4
        self._wrap(min(natural, most * 23 // 32 if natural > most else most))
        # In a low dock, text and button matter more than the drawing, and lines are longer.
        art = self._art.height()
        room = self.height() if self.isVisible() else MOST_HEIGHT
        text = self._least_height() - (0 if self._art.isHidden() else art)
        self._art.setVisible(text + art <= room)
        if text > room:
            self._wrap(min(natural, most))

    def _least_height(self) -> int:
        layout = present(self.layout())
        layout.invalidate()
        return layout.minimumSize().height()

    def _wrap(self, wanted: int) -> None:
        """Wrap the hint in a width in pixels, or in that of the widget."""
        width = max(min(wanted, self.width() - 48), 80)
        wrap = Qt.TextFlag.TextWordWrap | Qt.AlignmentFlag.AlignHCenter
        text = self._hint.fontMetrics().boundingRect(
            0, 0, width, 1000, wrap, self._hint.text()
        )
        self._hint.setFixedSize(width, max(text.height(), 1))

    def sizeHint(self) -> QSize:
        return present(self.layout()).sizeHint()

    def minimumSizeHint(self) -> QSize:
        """Leave the hint out, which is as wide as it is because there is room."""
        if self._least is None:
            least = present(self.layout()).minimumSize()
            width = (
                max(
                    self._title.minimumSizeHint().width(),
                    self.button.minimumSizeHint().width(),
                    80,
                )
                + 48
            )
            self._least = QSize(min(width, least.width()), least.height())
        return self._least

    def event(self, event: QEvent) -> bool:
        """Forget the least size when a part has changed."""
        if event.type() in CHANGES:
            self._least = None
        return super().event(event)
