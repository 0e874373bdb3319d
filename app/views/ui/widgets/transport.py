"""Decks of keys: run, pause, step, stop of training; start, back, step, run, end of the backward pass."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace
from PySide6.QtCore import QRectF, QSize, Qt, Signal
from PySide6.QtGui import QKeyEvent, QPainterPath, QPaintEvent
from PySide6.QtWidgets import QAbstractButton, QSizePolicy, QWidget

from app.views.ui import icons
from app.views.ui.layouts import hbox
from app.views.ui.theme import current
from app.views.ui.widgets.painting import KeyboardFocus, box, start

STEPS: dict[int, int] = {Qt.Key.Key_Left: -1, Qt.Key.Key_Right: 1}


class Key(Struct, frozen=True):
    """One key of a deck: name, icon and tool tip."""

    name: str
    icon: str
    tip: str
    color: str = "text"


class DeckState(Struct, frozen=True):
    """A deck in one state: which keys are enabled, which one is lit, and the colours."""

    enabled: tuple[str, ...] = ()
    lit: str = ""
    fill: str = "pressed"
    color: str = "text"


class _DeckButton(KeyboardFocus, QAbstractButton):
    def __init__(
        self, key: Key, size: QSize, icon: int, cell: QPainterPath, parent: QWidget
    ) -> None:
        super().__init__(parent)
        self.key = key
        self._icon = icon
        self._cell = cell
        self.look = DeckState()
        self.setFixedSize(size)
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.setAttribute(Qt.WidgetAttribute.WA_Hover)
        self.setAccessibleName(key.tip)
        self.setToolTip(key.tip)

    def paintEvent(self, event: QPaintEvent) -> None:
        theme = current()
        painter = start(self)
        area = QRectF(self.rect())
        lit = self.look.lit == self.key.name
        if lit:
            painter.fillPath(self._cell, theme.color(self.look.fill))
        elif self.isEnabled() and (self.isDown() or self.underMouse()):
            painter.fillPath(
                self._cell, theme.pressed if self.isDown() else theme.hover
            )
        color = (
            self.look.color if lit else self.key.color if self.isEnabled() else "text4"
        )
        x, y = (self.width() - self._icon) / 2, (self.height() - self._icon) / 2
        icons.draw(painter, self.key.icon, color, x, y, self._icon)
        self.paint_ring(painter, area.adjusted(2, 2, -2, -2), 4)
        painter.end()


class KeyDeck(QWidget):
    """Keys in one frame. A subclass defines KEYS, LOOKS and a signal for each key.

    Left and Right move from key to key; Space and Enter press.
    """

    KEYS: tuple[Key, ...] = ()
    LOOKS: dict[str, DeckState] = {}
    SIZE = QSize(42, 36)
    ICON = 16
    RADIUS = 7

    def __init__(self, name: str, state: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setAccessibleName(name)
        self.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Fixed)
        layout = hbox(on=self, margins=1, spacing=1)
        self._buttons: dict[str, _DeckButton] = {}
        for key in self.KEYS:
            size = self.SIZE - QSize(1, 2)
            button = _DeckButton(key, size, self.ICON, self._cell(key, size), self)
            button.clicked.connect(getattr(self, key.name))
            layout.addWidget(button)
            self._buttons[key.name] = button
        self.setFixedHeight(self.SIZE.height())
        self.set_state(state)

    def state(self) -> str:
        return self._state

    def set_state(self, state: str, reason: str = "") -> None:
        """Show a state of `LOOKS`; `reason` explains disabled keys in their tool tip.

        Raises:
            KeyError: there is no such state.
        """
        look = self.LOOKS[state]
        self._state = state
        for name, button in self._buttons.items():
            enabled = name in look.enabled
            button.look = look
            button.setEnabled(enabled)
            button.setToolTip(
                f"{button.key.tip}\n{reason}"
                if reason and not enabled
                else button.key.tip
            )
            button.update()
        self.update()

    def show_on(self, name: str, icon: str, tip: str) -> None:
        """Change icon and tip of a key: Run to Pause while it runs."""
        button = self._buttons[name]
        button.key = replace(button.key, icon=icon, tip=tip)
        button.setAccessibleName(tip)
        button.setToolTip(tip)
        button.update()

    def button(self, name: str) -> QAbstractButton:
        """Return the key of that name."""
        return self._buttons[name]

    def keyPressEvent(self, event: QKeyEvent) -> None:
        step = STEPS.get(event.key())
        pressable = [b for b in self._buttons.values() if b.isEnabled()]
        focused = self.focusWidget()
        if step is not None and focused in pressable:
            target = pressable[(pressable.index(focused) + step) % len(pressable)]
            target.setFocus(Qt.FocusReason.TabFocusReason)
        elif (
            event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter)
            and focused in pressable
        ):
            focused.click()
        else:
            super().keyPressEvent(event)

    def _cell(self, key: Key, size: QSize) -> QPainterPath:
        """Return the outline of a key, rounded at the ends of the frame."""
        radius = self.RADIUS - 1
        left = 0 if key is self.KEYS[0] else radius
        right = 0 if key is self.KEYS[-1] else radius
        frame = QPainterPath()
        frame.addRoundedRect(
            QRectF(-left, 0, size.width() + left + right, size.height()), radius, radius
        )
        cell = QPainterPath()
        cell.addRect(QRectF(0, 0, size.width(), size.height()))
        return frame.intersected(cell)

    def paintEvent(self, event: QPaintEvent) -> None:
        theme = current()
        painter = start(self)
        box(painter, QRectF(self.rect()), self.RADIUS, theme.raised, theme.line2)
        for button in list(self._buttons.values())[1:]:
            painter.fillRect(
                QRectF(button.x() - 1, 1, 1, self.height() - 2), theme.line2
            )
        painter.end()


class Transport(KeyDeck):
    """The training deck. States: blocked, ready, running, paused."""

    run = Signal()
    pause = Signal()
    step = Signal()
    stop = Signal()

    KEYS = (
        Key("run", "run", "Run", "run"),
        Key("pause", "pause", "Pause"),
        Key("step", "step", "Step one batch"),
        Key("stop", "stop", "Stop"),
    )
    LOOKS = {
        "blocked": DeckState(),
        "ready": DeckState(("run", "step")),
        "running": DeckState(("pause", "stop"), "run", "runBg", "run"),
        "paused": DeckState(("run", "step", "stop"), "pause", "pressed", "text"),
    }

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__("Training deck", "blocked", parent)


class BackwardTransport(KeyDeck):
    """The deck of the backward pass. States: blocked, at_start, ready, running, at_end. Run pauses while running."""

    to_start = Signal()
    step_back = Signal()
    step = Signal()
    run = Signal()
    to_end = Signal()

    SIZE = QSize(36, 28)
    ICON = 15
    RADIUS = 5
    KEYS = (
        Key("to_start", "to-start", "Back to the start"),
        Key("step_back", "step-back", "Step back"),
        Key("step", "step", "Step one backward node", "back"),
        Key("run", "run", "Run to the end or to the next break"),
        Key("to_end", "to-end", "To the end"),
    )
    LOOKS = {
        "blocked": DeckState(),
        "at_start": DeckState(("step", "run", "to_end")),
        "ready": DeckState(("to_start", "step_back", "step", "run", "to_end")),
        "running": DeckState(
            ("to_start", "step_back", "step", "run", "to_end"), "run", "backBg", "back"
        ),
        "at_end": DeckState(("to_start", "step_back", "run")),
    }

    def __init__(self) -> None:
        super().__init__("Backward tape", "blocked")

    def set_state(self, state: str, reason: str = "") -> None:
        runs = state == "running"
        self.show_on(
            "run",
            "pause" if runs else "run",
            "Pause" if runs else "Run to the end or to the next break",
        )
        super().set_state(state, reason)
