"""Short messages over a widget that disappear after a time, but not under the mouse pointer."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from PySide6.QtCore import QEvent, QObject, QRect, QRectF, QSize, Qt, QTimer, Signal
from PySide6.QtGui import QEnterEvent, QKeyEvent, QPaintEvent
from PySide6.QtWidgets import QFrame, QWidget

from app.views.ui.layouts import hbox, vbox
from app.views.ui.theme import current, manager
from app.views.ui.widgets.button import Button
from app.views.ui.widgets.painting import Glyph, announce, box, label, start

WIDTH = 284
MARGIN = 16
GAP = 8
MOST = 4
SECONDS = 6.0
Place = Callable[[QWidget, QSize, int, Sequence[QRect]], QRect]


class Toast(QFrame):
    """One message. It disappears on Esc or after its time; not while it is hovered or focused."""

    gone = Signal()
    acted = Signal()

    def __init__(
        self, title: str, detail: str, icon: str, color: str | None, action: str, seconds: float, parent: QWidget
    ) -> None:
        super().__init__(parent)
        self._title, self._detail = title, detail
        self.placed = False
        self.setAccessibleName(title)
        self.setAccessibleDescription(detail)
        words = vbox(label(title, "message", wrap=True), spacing=2)
        if detail:
            words.addWidget(label(detail, "caption", "text3", wrap=True))
        layout = hbox(
            (Glyph(icon, color), 0, Qt.AlignmentFlag.AlignVCenter), (words, 1), on=self, margins=(14, 9, 12, 9),
            spacing=12,
        )  # fmt: skip
        self.button: Button | None = None
        if action:
            self.button = Button(action, "link")
            self.button.clicked.connect(self._act)
            layout.addWidget(self.button, 0, Qt.AlignmentFlag.AlignVCenter)
        self._timer = QTimer(self, singleShot=True)
        self._timer.setInterval(round(seconds * 1000))
        self._timer.timeout.connect(self._time_is_up)
        self._timer.start()

    def text(self) -> str:
        return f"{self._title}. {self._detail}" if self._detail else self._title

    def _act(self) -> None:
        self.acted.emit()
        self.dismiss()

    def dismiss(self) -> None:
        """Remove the message."""
        self._timer.stop()
        self.hide()
        self.gone.emit()
        self.deleteLater()

    def _time_is_up(self) -> None:
        if self.underMouse() or (self.button is not None and self.button.hasFocus()):
            self._timer.start()
        else:
            self.dismiss()

    def enterEvent(self, event: QEnterEvent) -> None:
        self._timer.stop()

    def leaveEvent(self, event: QEvent) -> None:
        self._timer.start()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Escape:
            self.dismiss()
        else:
            super().keyPressEvent(event)

    def paintEvent(self, event: QPaintEvent) -> None:
        theme = current()
        painter = start(self)
        box(painter, QRectF(self.rect()), 6, theme.raised, theme.line3)
        painter.end()


class ToastStack(QObject):
    """The messages over one widget, newest at the bottom; above four the oldest is dismissed.

    They are at its bottom right, or placed by `place(host, size, margin, taken)`.
    """

    def __init__(self, parent: QWidget, place: Place | None = None) -> None:
        super().__init__(parent)
        self._host, self._place = parent, place
        self._toasts: list[Toast] = []
        parent.installEventFilter(self)
        self._restyled = QTimer(self, singleShot=True, interval=0)  # labels have their new font a turn later
        self._restyled.timeout.connect(self.place_again)
        manager().changed.connect(self._restyled.start)

    def show(
        self,
        title: str,
        detail: str = "",
        *,
        icon: str = "check",
        color: str | None = None,
        action: str = "",
        on_action: Callable[[], object] | None = None,
        seconds: float = SECONDS,
    ) -> Toast:
        """Show a message; `action` is the text of a link that calls `on_action` and dismisses it."""
        toast = Toast(title, detail, icon, color, action, seconds, self._host)
        if on_action is not None:
            toast.acted.connect(on_action)
        toast.gone.connect(self._forget_hidden)
        self._toasts.append(toast)
        toast.show()
        self._lay_out()
        announce(toast, toast.text())
        for old in self._toasts[:-MOST]:
            old.dismiss()
        return toast

    def toasts(self) -> tuple[Toast, ...]:
        """Return the visible messages, oldest first."""
        return tuple(self._toasts)

    def clear(self) -> None:
        """Dismiss all messages."""
        for toast in list(self._toasts):
            toast.dismiss()

    def place_again(self) -> None:
        """Move the messages: what they cover has changed."""
        for toast in self._toasts:
            toast.placed = False
        self._lay_out()

    def _forget_hidden(self) -> None:
        self._toasts = [t for t in self._toasts if not t.isHidden()]
        self._lay_out()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() == QEvent.Type.Resize:
            self.place_again()
        return False

    def _lay_out(self) -> None:
        bottom = self._host.height() - MARGIN
        width = min(WIDTH, self._host.width() - 2 * MARGIN)
        if self._place is not None:
            self._find_places(self._place, width)
            return
        for toast in reversed(self._toasts):
            height = max(toast.heightForWidth(width), 48)
            toast.setGeometry(self._host.width() - MARGIN - width, bottom - height, width, height)
            toast.raise_()
            bottom -= height + GAP

    def _find_places(self, place: Place, width: int) -> None:
        """Place the messages that have no place yet; the others stay where they are being read."""
        for toast in self._toasts:
            if toast.placed:
                continue
            size = QSize(width, max(toast.heightForWidth(width), 48))
            taken = [one.geometry().adjusted(0, -GAP, 0, GAP) for one in self._toasts if one.placed]
            toast.setGeometry(place(self._host, size, MARGIN, taken))
            toast.placed = True
            toast.raise_()
