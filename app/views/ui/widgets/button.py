"""Buttons: secondary by default, primary for the next step, flat and link for the rest."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QRect, QRectF, QSize, Qt
from PySide6.QtGui import (
    QFontMetrics,
    QHelpEvent,
    QIcon,
    QKeyEvent,
    QKeySequence,
    QPainter,
    QPaintEvent,
)
from PySide6.QtWidgets import (
    QPushButton,
    QStyle,
    QStyleOptionButton,
    QStylePainter,
    QToolTip,
    QWidget,
)

from app.views.ui import icons
from app.views.ui.theme import current, grown
from app.views.ui.widgets.painting import KeyboardFocus, set_property

HEIGHT = 26
ICON, GAP = 14, 6  # size of an icon, and its distance from the text, px
CHEVRON = 11  # of a button with a menu
# kind: colours of text and icon, and horizontal padding, px
KINDS = {
    "secondary": ("text", "text2", 13),
    "primary": ("onFill", "onFill", 13),
    "flat": ("text2", "text2", 13),
    "link": ("accent", "accent", 3),
}


class Button(KeyboardFocus, QPushButton):
    """A button of 26 px, sized to its text, which can have several lines; with a menu it carries a chevron.

    The stylesheet paints the background, the button its content: Qt would put a gap of 4 px between icon and text.

    Args:
        kind: One of secondary, primary, flat, link.
        icon: The name of an icon, left of the text.
        icon_color: A token or category, by default the kind's.

    Raises:
        ValueError: there is no such kind.
    """

    def __init__(
        self,
        text: str = "",
        kind: str = "secondary",
        icon: str = "",
        parent: QWidget | None = None,
        *,
        icon_color: str = "",
    ) -> None:
        super().__init__(text, parent)
        self.setAutoDefault(False)
        self._mnemonic = ""
        self._icon, self._icon_color = icon, icon_color
        self._kind = ""
        self.setIconSize(QSize(ICON, ICON))
        self.set_kind(kind)

    @property
    def kind(self) -> str:
        return self._kind

    def set_kind(self, kind: str) -> None:
        """Change the kind of the button."""
        if kind not in KINDS:
            raise ValueError(f"a button is one of {', '.join(KINDS)}, not {kind!r}")
        self._kind = kind
        set_property(self, "kind", kind)
        self.set_icon(self._icon, self._icon_color)

    def set_icon(self, icon: str, color: str = "") -> None:
        """Set the icon, or none, in a token's or a category's colour, or in the kind's."""
        self._icon, self._icon_color = icon, color
        self.setIcon(
            icons.icon(icon, color or KINDS[self._kind][1]) if icon else QIcon()
        )

    def set_mnemonic(self, letter: str) -> None:
        """Have Alt and a letter press the button, which is underlined; "" for none."""
        self._mnemonic = letter
        self.setShortcut(QKeySequence(f"Alt+{letter}") if letter else QKeySequence())
        self.update()

    def setText(self, text: str) -> None:
        """Set the text; the mnemonic, which Qt forgets here, is kept where its letter is in the text."""
        super().setText(text)
        if self._mnemonic:
            self.set_mnemonic(
                self._mnemonic if self._mnemonic.lower() in text.lower() else ""
            )

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Press the button at Enter too, as at Space; in a dialog Qt would press the default button instead."""
        if (
            event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter)
            and not event.isAutoRepeat()
        ):
            self.click()
        else:
            super().keyPressEvent(event)

    def _plain_text(self) -> str:
        return self.text().replace("&&", "\0").replace("&", "").replace("\0", "&")

    def _parts(self) -> tuple[int, int, int]:
        """Return the widths of icon, text and chevron, each with the gap before it."""
        icon = 0 if self.icon().isNull() else self.iconSize().width()
        metrics = QFontMetrics(self.font())
        text = (
            max(map(metrics.horizontalAdvance, self._plain_text().split("\n"))) + 1
            if self.text()
            else 0
        )
        chevron = CHEVRON + GAP if self.menu() is not None else 0
        return icon, text + (GAP if icon and text else 0), chevron

    def sizeHint(self) -> QSize:
        self.ensurePolished()
        more = self.text().count("\n") * QFontMetrics(self.font()).lineSpacing()
        return QSize(
            sum(self._parts()) + 2 * KINDS[self._kind][2],
            grown(HEIGHT if self._kind != "link" else 20, "button") + more,
        )

    def minimumSizeHint(self) -> QSize:
        return self.sizeHint()

    def _text_color(self) -> str:
        if not self.isEnabled():
            return "text4"
        if self._kind == "flat" and (self.underMouse() or self.isChecked()):
            return "text"
        return "text3" if self.property("tone") == "quiet" else KINDS[self._kind][0]

    def event(self, event: QEvent) -> bool:
        """Show the whole text as the tool tip of a button that is cut and has none."""
        if isinstance(event, QHelpEvent) and not self.toolTip() and self.is_cut():
            QToolTip.showText(event.globalPos(), self._plain_text(), self)
            return True
        return super().event(event)

    def is_cut(self) -> bool:
        """Return whether the text is elided for lack of room."""
        return sum(self._parts()) + KINDS[self._kind][2] > self.width()

    def _underline(self, painter: QPainter, area: QRectF, text: str) -> None:
        at = text.lower().find(self._mnemonic.lower())
        if at >= 0:
            metrics = QFontMetrics(self.font())
            left = area.left() + metrics.horizontalAdvance(text[:at])
            y = round(area.center().y() + metrics.ascent() / 2 + 2)
            painter.drawLine(
                round(left),
                y,
                round(left + metrics.horizontalAdvance(text[at]) - 1),
                y,
            )

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QStylePainter(self)
        painter.setRenderHint(painter.RenderHint.Antialiasing)
        option = QStyleOptionButton()
        self.initStyleOption(option)
        option.features &= ~QStyleOptionButton.ButtonFeature.HasMenu
        painter.drawControl(QStyle.ControlElement.CE_PushButtonBevel, option)
        icon, text, chevron = self._parts()
        color = self._text_color()
        x = max(
            (self.width() - icon - text - chevron) / 2,
            KINDS[self._kind][2] if text else 0,
        )
        if icon:
            mode = QIcon.Mode.Normal if self.isEnabled() else QIcon.Mode.Disabled
            self.icon().paint(
                painter,
                QRect(round(x), round((self.height() - icon) / 2), icon, icon),
                mode=mode,
            )
            x += icon
        if text:
            gap = GAP if icon else 0
            painter.setFont(self.font())
            painter.setPen(current().color(color))
            area = QRectF(x + gap, 0, text - gap + 1, self.height())
            flags = Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignLeft
            caption = self._plain_text()
            if (
                over := sum(self._parts()) + KINDS[self._kind][2] - self.width()
            ) > 0:  # squeezed by a layout
                area.setWidth(max(area.width() - over, 0.0))
                caption = QFontMetrics(self.font()).elidedText(
                    caption, Qt.TextElideMode.ElideRight, int(area.width())
                )
            painter.drawText(area, flags, caption)
            if self._mnemonic:
                self._underline(painter, area, caption)
            if self._kind == "link" and self.underMouse() and self.isEnabled():
                under = int(self.height() / 2 + 8)
                painter.drawLine(int(area.left()), under, int(area.right() - 2), under)
        if chevron:
            right = self.width() - 11 - CHEVRON
            icons.draw(
                painter,
                "chevron-down",
                color,
                right,
                (self.height() - CHEVRON) / 2,
                CHEVRON,
            )
        self.paint_ring(
            painter,
            QRectF(self.rect()),
            5,
            current().panel if self._kind == "primary" else None,
        )
        painter.end()


def icon_button(name: str, tip: str) -> Button:
    """Return a flat square button with only an icon; `tip` is its tool tip and accessible name."""
    button = Button("", "flat", name)
    button.setIconSize(QSize(16, 16))
    button.setFixedSize(HEIGHT, HEIGHT)
    button.setToolTip(tip)
    button.setAccessibleName(tip)
    return button
