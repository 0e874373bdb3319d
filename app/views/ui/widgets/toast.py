"""Messages over a widget, which move nothing in it: short ones that disappear after a time, but not under the mouse
pointer, and banners that stay until they are closed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from PySide6.QtCore import (
    QEvent,
    QObject,
    QPoint,
    QRect,
    QRectF,
    QSize,
    Qt,
    QTimer,
    Signal,
)
from PySide6.QtGui import QEnterEvent, QKeyEvent, QPaintEvent
from PySide6.QtWidgets import QApplication, QFrame, QWidget

from app.views.ui.layouts import hbox, vbox
from app.views.ui.theme import current, manager
from app.views.ui.widgets.banner import Banner, Form
from app.views.ui.widgets.button import Button
from app.views.ui.widgets.focus import focus_in
from app.views.ui.widgets.painting import Glyph, announce, box, label, start

WIDTH = 284
BANNER_WIDTHS = 460, 340  # the second where the first covers more
MARGIN = 16
GAP = 8
MOST = 4
LEAST = 48  # px, of the height of a whole message
WHOLE, COMPACT = (14, 9, 12, 9), (14, 5, 12, 5)  # margins of the forms of a message
SECONDS = 6.0
Place = Callable[[QWidget, Sequence[QSize], int, Sequence[QRect]], QRect]


class Toast(QFrame):
    """One message. It disappears on Esc or after its time; not while it is hovered or focused. Where it would cover
    what is looked at, its detail is in its tooltip (Form.LINE)."""

    gone = Signal()
    acted = Signal()

    def __init__(
        self,
        title: str,
        detail: str,
        icon: str,
        color: str | None,
        action: str,
        seconds: float,
        parent: QWidget,
    ) -> None:
        super().__init__(parent)
        self._title, self._detail = title, detail
        self.setAccessibleName(title)
        self.setAccessibleDescription(detail)
        column = vbox(label(title, "message", wrap=True), spacing=2)
        self._below = label(detail, "caption", "text3", wrap=True)
        column.addWidget(self._below)
        layout = self._row = hbox(
            (Glyph(icon, color), 0, Qt.AlignmentFlag.AlignVCenter),
            (column, 1),
            on=self,
            margins=WHOLE,
            spacing=12,
        )
        self.set_form(Form.WHOLE)
        self.button: Button | None = None
        if action:
            self.button = Button(action, "link")
            self.button.clicked.connect(self._act)
            layout.addWidget(self.button, 0, Qt.AlignmentFlag.AlignVCenter)
        self._timer = QTimer(self, singleShot=True)
        self._timer.setInterval(round(seconds * 1000))
        self._timer.timeout.connect(self._time_is_up)
        self._timer.start()

    def set_form(self, form: Form) -> None:
        """Show the message with its detail, or the title and the action alone."""
        whole = form is Form.WHOLE
        self._below.setVisible(whole and bool(self._detail))
        self.setToolTip("" if whole else self._detail)
        self._row.setContentsMargins(*(WHOLE if whole else COMPACT))
        self._row.invalidate()

    def height_in(self, form: Form, width: int) -> int:
        """Return the height of a form at a width."""
        self.set_form(form)
        least = LEAST if form is Form.WHOLE else 0
        return max(self.heightForWidth(width), least)

    def text(self) -> str:
        return f"{self._title}. {self._detail}" if self._detail else self._title

    def _act(self) -> None:
        self.acted.emit()
        self.dismiss()

    @property
    def brief(self) -> bool:
        """Whether it can do without its detail."""
        return bool(self._detail)

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
    """The messages over one widget, newest at the bottom; above four toasts the oldest is dismissed.

    They are at its bottom right, or placed by `place(host, sizes, margin, taken)`. A message stays where it is being
    read, until the host has another size or `place_again` is called.
    """

    def __init__(self, parent: QWidget, place: Place | None = None) -> None:
        super().__init__(parent)
        self._host, self._place = parent, place
        self._toasts: list[Toast] = []
        self._banners: list[Banner] = []
        self._placed: dict[Toast | Banner, str] = {}  # with the title that was placed
        self._expanded: Banner | None = None
        parent.installEventFilter(self)
        application = QApplication.instance()
        assert isinstance(application, QApplication)
        application.focusChanged.connect(self._collapse)
        self._restyled = QTimer(
            self, singleShot=True, interval=0
        )  # labels have their new font a turn later
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

    def add_banner(self, banner: Banner) -> None:
        """Show a banner among the messages, whenever it is not hidden."""
        banner.setParent(self._host)
        banner.hide()
        banner.installEventFilter(self)
        banner.expanded.connect(lambda: self._expand(banner))
        self._banners.append(banner)

    def toasts(self) -> tuple[Toast, ...]:
        """Return the visible short messages, oldest first."""
        return tuple(self._toasts)

    def banner(self) -> Banner | None:
        """Return the newest banner in sight."""
        return next(
            (banner for banner in reversed(self._banners) if banner.isVisible()), None
        )

    def clear(self) -> None:
        """Dismiss all short messages."""
        for toast in list(self._toasts):
            toast.dismiss()

    def place_again(self) -> None:
        """Move the messages: what they cover has changed."""
        self._placed.clear()
        self._lay_out()

    def _forget_hidden(self) -> None:
        self._toasts = [t for t in self._toasts if not t.isHidden()]
        self._lay_out()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if watched is self._host and event.type() == QEvent.Type.Resize:
            self.place_again()
        elif isinstance(watched, Banner) and event.type() == QEvent.Type.Show:
            self._banners.sort(key=lambda banner: banner is watched)
            self._place_banner(watched)
        elif (
            isinstance(watched, Banner)
            and event.type() == QEvent.Type.LayoutRequest
            and watched in self._placed
        ):
            self._refit(watched)
        return False

    def _sizes(self, message: Toast | Banner) -> list[tuple[QSize, Form]]:
        """Return the possible sizes of a message with its layout, the preferred first."""
        room = self._host.width() - 2 * MARGIN
        if isinstance(message, Toast):
            width = min(WIDTH, room)
            forms = (Form.LINE, Form.WHOLE) if message.brief else (Form.WHOLE,)
            sizes = [
                (QSize(width, message.height_in(form, width)), form) for form in forms
            ]
            return sizes[::-1]
        widths = [
            min(round(width * (1 + manager().scale) / 2), room)
            for width in BANNER_WIDTHS
        ]
        allowed = {Form.WHOLE: message is self._expanded or not message.brief}
        return [
            candidate
            for candidate in message.sizes(widths, room)
            if allowed.get(candidate[1], message is not self._expanded)
        ]

    def _expand(self, banner: Banner) -> None:
        """Show all of a banner until the focus leaves it."""
        self._expanded = banner
        self._place_banner(banner)

    def _collapse(self, _old: object, _new: object) -> None:
        banner = self._expanded
        if banner is not None and focus_in(banner) is None:
            self._expanded = None
            self._place_banner(banner)

    def _place_banner(self, banner: Banner) -> None:
        self._placed.pop(banner, None)
        self._lay_out()

    def _refit(self, banner: Banner) -> None:
        """Give a banner the height of its new words; the edge next to that of the host stays where it is."""
        if self._placed[banner] != banner.title():
            self._place_banner(banner)
        elif banner.form is Form.WHOLE:
            area, width = banner.geometry(), banner.width()
            height = banner.set_form(Form.WHOLE, width, width)
            if area.center().y() > self._host.height() / 2:
                area.setTop(max(area.bottom() + 1 - height, 0))
            area.setHeight(height)
            banner.setGeometry(area)

    def _lay_out(self) -> None:
        """Place the messages that have no place yet."""
        shown: list[Toast | Banner] = [
            *(banner for banner in self._banners if not banner.isHidden()),
            *self._toasts,
        ]
        self._placed = {
            placed: title for placed, title in self._placed.items() if placed in shown
        }
        bottom = self._host.height() - MARGIN
        for message in shown if self._place is not None else reversed(shown):
            if self._place is None:
                size, _ = self._sizes(message)[0]
                message.setGeometry(
                    QRect(
                        QPoint(
                            self._host.width() - MARGIN - size.width(),
                            bottom - size.height(),
                        ),
                        size,
                    )
                )
                bottom -= size.height() + GAP
            elif message not in self._placed:
                occupied = [
                    other.geometry().adjusted(0, -GAP, 0, GAP)
                    for other in shown
                    if other in self._placed
                ]
                sizes = self._sizes(message)
                area = self._place(
                    self._host, [size for size, _ in sizes], MARGIN, occupied
                )
                form = next(form for size, form in sizes if size == area.size())
                if isinstance(message, Banner):
                    message.set_form(form, area.width(), area.width())
                else:
                    message.set_form(form)
                message.setGeometry(area)
            self._placed[message] = (
                message.title() if isinstance(message, Banner) else ""
            )
            message.raise_()
