"""A message that stays until it is closed: what happened, why, and what to do next."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from PySide6.QtCore import QRectF, QSize, Qt, Signal
from PySide6.QtGui import QKeyEvent, QPaintEvent, QShowEvent
from PySide6.QtWidgets import QBoxLayout, QFrame, QWidget

from app.views.ui.layouts import hbox, vbox
from app.views.ui.theme import current
from app.views.ui.widgets.button import Button, icon_button
from app.views.ui.widgets.fitting_label import FittingLabel
from app.views.ui.widgets.painting import (
    Glyph,
    announce,
    box,
    label,
    show_or_hide,
    start,
)

# kind: icon, line, fill
KINDS = {
    "error": ("error", "error", "errorBg"),
    "warning": ("warning", "warn", "warnBg"),
    "info": ("info", "accent", "accentBg"),
}
WHOLE, COMPACT = (13, 8, 8, 8), (11, 3, 6, 3)  # margins
SHARE = 0.3  # of the width that actions may take beside the words; else they are below
SPACING, GAP = 12, 8  # between the parts, and between actions
LEAST, TITLE = (
    42,
    150,
)  # px: the least height of a whole message, and width of the title in one line
ALONG, DOWN = QBoxLayout.Direction.LeftToRight, QBoxLayout.Direction.TopToBottom


class Form(Enum):
    """Layout of a message: complete, title and actions in one line, or the title alone."""

    WHOLE = "whole"
    LINE = "line"
    TITLE = "title"


class Banner(QFrame):
    """A message across a view: error, warning or info, with a reason, actions and a close button.

    `acted` is emitted for the first action only, `chosen(text)` for any.
    """

    acted = Signal()
    chosen = Signal(str)
    closed = Signal()
    expanded = Signal()

    def __init__(
        self,
        kind: str = "info",
        title: str = "",
        reason: str = "",
        action: str = "",
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(parent)
        self.form = Form.WHOLE
        self.brief = (
            False  # in one line until it is expanded: its reason stands elsewhere too
        )
        self._icon = Glyph("info", parent=self)
        self._title = label("", "message", wrap=True)
        self._reason = label("", "caption", "text2", wrap=True)
        self._action = Button()
        self._more: list[Button] = []
        self._closable = True
        self._actions, self._words, self._line = (
            QWidget(),
            QWidget(),
            FittingLabel("", "message", at_right=True),
        )
        self._row = hbox(self._action, on=self._actions, margins=0, spacing=GAP)
        self._column = vbox(
            self._title, self._reason, on=self._words, margins=0, spacing=2
        )
        self._line.hide()
        self.expand = icon_button("chevron-down", "Show the whole message")
        self.expand.hide()
        self._close = icon_button("close", "Close this message")
        self._beside = hbox(self._actions, spacing=0)
        middle = Qt.AlignmentFlag.AlignVCenter
        self._parts = hbox(
            (self._icon, 0, middle),
            (self._words, 1),
            (self._line, 1),
            self._beside,
            (self.expand, 0, middle),
            (self._close, 0, middle),
            on=self,
            margins=WHOLE,
            spacing=SPACING,
        )
        self.expand.clicked.connect(self.take_focus)
        self._action.clicked.connect(self.acted)
        self._action.clicked.connect(lambda: self.chosen.emit(self._action.text()))
        self._close.clicked.connect(self.close_message)
        self.set(kind, title, reason, action)

    def set(
        self, kind: str, title: str, reason: str = "", action: str = "", *more: str
    ) -> None:
        """Show another message; `more` are further actions beside the first.

        Raises:
            KeyError: `kind` is none of error, warning, info.
        """
        icon, color, self._fill = KINDS[kind]
        self._kind, self._color = kind, color
        self._icon.set(icon, color)
        self._title.setText(title)
        self._line.set_whole(title, f"{title}\n{reason}".strip())
        show_or_hide(self._reason, reason)
        show_or_hide(self._action, action)
        self._offer(more)
        self.setAccessibleName(f"{kind}: {title}")
        self.setAccessibleDescription(reason)
        self.update()

    def _offer(self, texts: tuple[str, ...]) -> None:
        for old in self._more:
            self._row.removeWidget(old)
            old.hide()
            old.deleteLater()
        self._more = [Button(text, parent=self) for text in texts]
        for button in self._more:
            self._row.addWidget(button)
            button.clicked.connect(
                lambda _=False, button=button: self.chosen.emit(button.text())
            )
            button.show()

    def sizes(self, widths: Sequence[int], most: int) -> list[tuple[QSize, Form]]:
        """Return the sizes in which it can be shown with their forms, the preferred first: as wide as one of `widths`,
        up to `most` where actions need that, then in one line, with its actions and without."""
        sizes = [
            (QSize(width, self.set_form(Form.WHOLE, width, most)), Form.WHOLE)
            for width in widths
        ]
        sizes = [
            (QSize(max(size.width(), min(self._needed(), most)), size.height()), form)
            for size, form in sizes
        ]
        for form in (Form.LINE, Form.TITLE):
            height = self.set_form(form, most, most)
            title_width, around = (
                self._line.sizeHint().width(),
                self._needed() + SPACING,
            )
            for title in (title_width, min(title_width, TITLE)):
                if form is Form.TITLE or around + title <= most:
                    sizes.append((QSize(min(around + title, most), height), form))
        return sizes

    def set_form(self, form: Form, width: int, most: int) -> int:
        """Show the message in a form; return its height at a width."""
        full = form is Form.WHOLE
        below = full and self._actions_width() > SHARE * width
        if (self._column.indexOf(self._actions) >= 0) != below:
            self._beside.removeWidget(self._actions)
            self._column.removeWidget(self._actions)
            self._column.addWidget(
                self._actions, 0, Qt.AlignmentFlag.AlignLeft
            ) if below else self._beside.addWidget(self._actions)
        self._row.setDirection(DOWN if below and self._needed() > most else ALONG)
        self._parts.setContentsMargins(*(WHOLE if full else COMPACT))
        for widget, on in (
            (self._words, full),
            (self._line, not full),
            (self.expand, not full),
        ):
            widget.setVisible(on)
        self._actions.setVisible(form is not Form.TITLE and bool(self._shown_actions()))
        self.form = form
        return max(
            self.heightForWidth(
                max(width, min(self._needed(), most)) if below else width
            )
            if full
            else self.sizeHint().height(),
            LEAST if full else 0,
        )

    def _shown_actions(self) -> list[Button]:
        return [
            button for button in (self._action, *self._more) if not button.isHidden()
        ]

    def _actions_width(self) -> int:
        return (
            sum(button.sizeHint().width() + GAP for button in self._shown_actions())
            - GAP
        )

    def _needed(self) -> int:
        """Return the width that shows all actions in a row, and nothing else beside the buttons of the message."""
        around = (
            self._icon.width()
            + self._close.sizeHint().width()
            + 2 * SPACING
            + WHOLE[0]
            + WHOLE[2]
        )
        if self.form is Form.TITLE:
            return around + self.expand.sizeHint().width() + SPACING
        expand = (
            self.expand.sizeHint().width() + 2 * SPACING
            if self.form is Form.LINE
            else 0
        )
        return around + expand + self._actions_width()

    def set_closable(self, on: bool) -> None:
        """Set whether it can be closed; one that cannot stays until it is hidden."""
        self._close.setVisible(on)
        self._closable = on

    def actions_offered(self) -> tuple[str, ...]:
        """Return the texts of the actions, in order."""
        return tuple(
            text
            for text in (self._action.text(), *(button.text() for button in self._more))
            if text
        )

    def button(self, text: str) -> Button:
        """Return the button of an action. Raises KeyError."""
        return {button.text(): button for button in (self._action, *self._more)}[text]

    def take_focus(self) -> None:
        """Focus the first action, else the button that closes the message, of which all is shown then."""
        if self.form is not Form.WHOLE:
            # Of a whole message the clicked button is hidden, which would take the focus out of the message.
            (self._close if self._closable else self).setFocus(
                Qt.FocusReason.ShortcutFocusReason
            )
            self.expanded.emit()
        button = self._close if self._action.isHidden() else self._action
        button.setFocus(Qt.FocusReason.ShortcutFocusReason)

    def kind(self) -> str:
        return self._kind

    def title(self) -> str:
        return self._title.text()

    def reason(self) -> str:
        return self._reason.text()

    def close_message(self) -> None:
        """Hide the banner and emit `closed`."""
        self.hide()
        self.closed.emit()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        announce(self, f"{self._title.text()} {self._reason.text()}".strip())

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Escape and self._closable:
            self.close_message()
        else:
            super().keyPressEvent(event)

    def minimumSizeHint(self) -> QSize:
        return QSize(220, LEAST if self.form is Form.WHOLE else 0)

    def paintEvent(self, event: QPaintEvent) -> None:
        theme = current()
        painter = start(self)
        box(
            painter,
            QRectF(self.rect()),
            6,
            theme.color(self._fill),
            theme.color(self._color),
        )
        painter.end()
