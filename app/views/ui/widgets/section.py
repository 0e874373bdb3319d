"""A collapsible section of a panel: header with chevron, title and caption; body below."""

from __future__ import annotations

from collections.abc import Mapping

from PySide6.QtCore import QRectF, QSize, Qt, Signal
from PySide6.QtGui import QKeyEvent, QPaintEvent
from PySide6.QtWidgets import QAbstractButton, QSizePolicy, QWidget

from app.views.ui import icons
from app.views.ui.layouts import hbox, vbox
from app.views.ui.theme import current, font, grown
from app.views.ui.widgets.button import Button
from app.views.ui.widgets.painting import (
    Divider,
    KeyboardFocus,
    TextLine,
    at_least,
    elided,
    label,
    set_property,
    show_or_hide,
    start,
)

HEADER = 30
INSET = 6  # room for the focus ring before the chevron, px
_folds: dict[str, bool] = {}  # by title: whether the user left it open


def folds() -> dict[str, bool]:
    """Return which sections the user has opened or folded, by title."""
    return dict(_folds)


def set_folds(stored_folds: Mapping[str, bool]) -> None:
    """Have sections that are made from now on be open or folded as they were left."""
    _folds.clear()
    _folds.update(stored_folds)


class _Header(KeyboardFocus, QAbstractButton):
    """Chevron and title; checked means open. Left folds, Right unfolds."""

    def __init__(self, title: str, parent: QWidget) -> None:
        super().__init__(parent)
        self.setText(title)
        self.setCheckable(True)
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.setAttribute(Qt.WidgetAttribute.WA_Hover)
        self.setFixedHeight(grown(HEADER, "section"))
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self._line = TextLine(title, "section")
        self._shown = self._line

    def set_title(self, title: str) -> None:
        self.setText(title)
        self._line = TextLine(title, "section")
        self.updateGeometry()
        self.update()

    def _fit(self) -> None:
        room = self.width() - INSET - 20
        fits = self._line.width <= room
        self._shown = self._line if fits else elided(self.text(), "section", room)
        if bool(self.toolTip()) == fits:
            self.setToolTip("" if fits else self.text())

    def sizeHint(self) -> QSize:
        return at_least(INSET + 18 + self._line.width + 8, HEADER)

    def minimumSizeHint(self) -> QSize:
        return QSize(60, HEADER)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() in (Qt.Key.Key_Left, Qt.Key.Key_Right):
            if self.isChecked() != (event.key() == Qt.Key.Key_Right):
                self.click()
        elif event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            self.click()
        else:
            super().keyPressEvent(event)

    def paintEvent(self, event: QPaintEvent) -> None:
        theme = current()
        self._fit()  # here, since the text size changes after the width
        painter = start(self)
        chevron = "chevron-down" if self.isChecked() else "chevron-right"
        icons.draw(
            painter,
            chevron,
            "text" if self.underMouse() else "text3",
            INSET,
            (HEADER - 12) / 2,
            12,
        )
        self._shown.draw_in(painter, INSET + 18, QRectF(self.rect()), theme.text)
        self.paint_ring(painter, QRectF(self.rect()).adjusted(0, 3, 0, -3), 4)
        painter.end()


class Section(QWidget):
    """A collapsible section. Fill it with `set_body` or through `body_layout`. It is open or folded as the user
    left the last one of its title.
    """

    toggled = Signal(bool)
    acted = Signal()

    def __init__(
        self,
        title: str,
        caption: str = "",
        parent: QWidget | None = None,
        *,
        opened: bool = True,
    ) -> None:
        super().__init__(parent)
        self._header = _Header(title, self)
        self._caption = label(caption, "caption", "text3")
        self._action = Button("", "link")
        self._action.hide()
        self._action.clicked.connect(self.acted)
        top = hbox(
            (self._header, 1),
            self._caption,
            self._action,
            margins=(12 - INSET, 0, 12, 0),
            spacing=8,
        )

        self._body = QWidget(self)
        self.body_layout = vbox(on=self._body, margins=(12, 2, 12, 12), spacing=5)
        vbox(Divider(), top, self._body, on=self, margins=0, spacing=0)
        opened = _folds.get(title, opened)
        self._header.toggled.connect(self._show_body)
        self._header.clicked.connect(self._remember)
        self._header.setChecked(opened)
        self._body.setVisible(opened)

    def _show_body(self, opened: bool) -> None:
        self._body.setVisible(opened)
        self.toggled.emit(opened)

    def _remember(self, opened: bool) -> None:
        _folds[self.title()] = opened

    def title(self) -> str:
        return self._header.text()

    def set_title(self, title: str) -> None:
        self._header.set_title(title)

    def caption(self) -> str:
        return self._caption.text()

    def set_caption(self, text: str, tone: str = "text3") -> None:
        """Set the small text at the right."""
        self._caption.setText(text)
        set_property(self._caption, "tone", tone)

    def set_action(self, text: str, *, quiet: bool = False) -> None:
        """Show a link at the right that emits `acted`; an empty text removes it. `quiet` greys it until hovered."""
        self._action.set_kind("flat" if quiet else "link")
        set_property(self._action, "tone", "quiet" if quiet else "")
        self._action.setFont(font("caption" if quiet else "label"))
        show_or_hide(self._action, text)

    def is_open(self) -> bool:
        return self._header.isChecked()

    def set_open(self, opened: bool) -> None:
        self._header.setChecked(opened)

    def propose_open(self, opened: bool) -> None:
        """Open or fold it, unless the user has done either."""
        self._header.setChecked(_folds.get(self.title(), opened))

    def body(self) -> QWidget:
        return self._body

    def set_body(self, widget: QWidget) -> None:
        """Make `widget` the whole body; the previous content is deleted."""
        while (item := self.body_layout.takeAt(0)) is not None:
            if (old := item.widget()) is not None:
                old.hide()
                old.deleteLater()
        self.body_layout.addWidget(widget)
