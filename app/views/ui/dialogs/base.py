"""Base class of the dialogs: a titled column and a row of buttons at the bottom."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtGui import QShowEvent
from PySide6.QtWidgets import QApplication, QDialog, QVBoxLayout, QWidget

from app.views.ui.cut_texts import ShowsCutTexts
from app.views.ui.layouts import PaintedLaidOut, hbox, vbox
from app.views.ui.scaling import FRAME, fit
from app.views.ui.scrolled import Scrolled
from app.views.ui.theme import manager
from app.views.ui.widgets import Button
from app.views.ui.widgets.painting import Glyph, label

SCROLL_GAP = 8  # px between content that scrolls and its bar


class Dialog(ShowsCutTexts, PaintedLaidOut, QDialog):
    """A column for content (`body`) above a row of buttons; the button added last is the default action, rightmost."""

    def __init__(
        self,
        title: str,
        parent: QWidget | None = None,
        *,
        icon: str = "",
        color: str | None = None,
    ) -> None:
        super().__init__(parent)
        self.setWindowTitle(title)
        self._widened = False  # for larger text
        self.setWindowFlag(Qt.WindowType.WindowContextHelpButtonHint, False)
        self.heading = label(title, "project", wrap=True)
        top = hbox(spacing=12)
        if icon:
            top.addWidget(Glyph(icon, color, 20), 0, Qt.AlignmentFlag.AlignTop)
        top.addWidget(self.heading, 1)
        self.body = vbox(spacing=8)
        self._buttons = hbox(1, spacing=8)
        vbox(
            top,
            (self.body, 1),
            self._buttons,
            on=self,
            margins=(24, 20, 24, 20),
            spacing=14,
        )

    def add_button(
        self,
        text: str,
        kind: str = "secondary",
        *,
        left: bool = False,
        default: bool = False,
    ) -> Button:
        """Add a button at the bottom; `left` puts it at the far left. Enter presses the default one, which looks like
        that."""
        if default and kind == "secondary":
            kind = "primary"
        button = Button(text, kind)
        button.setMinimumHeight(28)
        if default:
            button.setAutoDefault(True)
            button.setDefault(True)
        if left:
            self._buttons.insertWidget(0, button)
        else:
            self._buttons.addWidget(button)
        return button

    def give_mnemonics(self) -> None:
        """Give each button with words a letter that presses it together with Alt, those at the bottom first."""
        items = (self._buttons.itemAt(index) for index in range(self._buttons.count()))
        rows = [item.widget() for item in items if item is not None]
        buttons = [widget for widget in rows if isinstance(widget, Button)]
        buttons += [
            widget for widget in self.findChildren(Button) if widget not in buttons
        ]
        used_letters: set[str] = set()
        for button in (
            candidate for candidate in buttons if candidate.isVisibleTo(self)
        ):
            initials = [word[0] for word in button.text().split() if word]
            letters = (
                character.upper()
                for character in (*initials, *button.text())
                if character.isascii() and character.isalpha()
            )
            letter = next(
                (character for character in letters if character not in used_letters),
                "",
            )
            used_letters.add(letter)
            button.set_mnemonic(letter)

    def done(self, result: int) -> None:
        """Close, and give the keyboard back to the window below: without a window manager nobody else does."""
        below, active = self.parentWidget(), self.isActiveWindow()
        super().done(result)
        if (
            active
            and below is not None
            and below.isVisible()
            and QApplication.activeModalWidget() is None
        ):
            below.window().activateWindow()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self.give_mnemonics()
        if manager().scale != 1.0:
            self._fit_text()
        outer, most = self.layout(), self.screen().availableSize().height() - FRAME
        assert isinstance(outer, QVBoxLayout)
        # A wrapped label knows its height only once its width is known.
        high = max(
            outer.totalHeightForWidth(self.width()), outer.totalMinimumSize().height()
        )
        least = max(
            outer.totalMinimumHeightForWidth(self.width()),
            outer.totalMinimumSize().height(),
        )
        if least > most and outer.indexOf(self.body) >= 0:
            self._scroll(outer)
        self.resize(self.width(), min(max(self.height(), high), most))

    def _fit_text(self) -> None:
        """Make the dialog wider for larger text."""
        fit(self, manager().scale)
        if not self._widened:
            self._widened = True
            most = self.screen().availableSize().width() - FRAME
            self.resize(min(round(self.width() * manager().scale), most), self.height())

    def _scroll(self, outer: QVBoxLayout) -> None:
        """Have the content scroll, for which the screen is too low; heading and buttons stay in sight."""
        outer.removeItem(self.body)
        self.body.setParent(None)
        content = QWidget()
        content.setLayout(self.body)
        self.body.setContentsMargins(0, 0, SCROLL_GAP, 0)
        outer.insertWidget(1, Scrolled(content), 1)
        outer.activate()  # or the dialog could not be lower than its content
