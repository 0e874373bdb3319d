"""Page "Backward tape": transport controls, position, break conditions, and the strip with its memory curve."""

from __future__ import annotations

from html import escape

from PySide6.QtCore import QEvent, QObject, Qt, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QCheckBox, QSizePolicy, QStackedWidget, QWidget

from app.autograd.playback.steps import Stop
from app.autograd.tape import TapeNode
from app.util.formatting import bytes_text, figure, plural
from app.views.autograd.capture_offer import CaptureOffer
from app.views.autograd.tape.player import EMPTY, LEFT, LOADING, PLAYING, Player
from app.views.autograd.tape.tape_strip import TapeStrip
from app.views.ui.flow import FlowLayout
from app.views.ui.layouts import hbox, vbox
from app.views.ui.present import present
from app.views.ui.theme import manager
from app.views.ui.widgets import (
    BackwardTransport,
    ChoiceField,
    NumberField,
    icon_button,
)
from app.views.ui.widgets.painting import Divider, label, set_property

SPEEDS = (
    (1.0, "1 /s"),
    (4.0, "4 /s"),
    (20.0, "20 /s"),
    (60.0, "60 /s"),
    (None, "Full"),
)

NARROW = 1320  # px below which words are short, at the designed text size
TIGHT = 800  # px: a narrower page does not repeat the held memory beside the controls

BATCH_HINT = "Run one batch forward. Then play its backward pass step by step, both ways, at any speed."
STEP_HINT = "Pause the script before its next backward. Then play it step by step, both ways, at any speed."


class TapePage(QWidget):
    """Shows and controls a `Player`. `captureRequested` requests a batch if there is no tape."""

    captureRequested = Signal()

    def __init__(self, player: Player) -> None:
        super().__init__()
        self.player = player
        self.deck = BackwardTransport()
        self.count = label("0/0", "counter")
        self.words = label("", "label", "text2")
        self.words.setTextFormat(Qt.TextFormat.RichText)
        self.words.setSizePolicy(
            QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred
        )
        self.words.installEventFilter(self)
        self.non_finite = QCheckBox("Break on NaN or Inf")
        self.non_finite.setChecked(player.non_finite)
        self.above = QCheckBox("Break when norm above")
        self.bound = NumberField(10.0, "float", minimum=0.0)
        self.bound.setFixedWidth(64)
        self.bound.setAccessibleName("Norm above which playing stops")
        self.held = label("", "label", "text2")
        self.held.setTextFormat(Qt.TextFormat.RichText)
        self.strip = TapeStrip()
        self.controls = QWidget()
        self.speed = ChoiceField(SPEEDS, player.speed, pairs=True)
        self.speed.setAccessibleName("Speed of playing")
        self.speed.setToolTip("Steps per second while playing")
        self.let_go = icon_button("stop", "Free the graph; Play runs the batch again")
        self._lay_out()
        self._connect()
        self._tape_changed()

    def _lay_out(self) -> None:
        self.speed.setFixedWidth(92)
        self.speed.setMinimumContentsLength(3)
        hbox(self.let_go, on=self.controls, margins=0, spacing=8)
        self._divider = Divider(vertical=True, color="line2")
        self._divider.setFixedHeight(20)
        tools = QWidget()
        row = FlowLayout(tools, (12, 7, 12, 5), 10)
        row.put(self.deck, self.count)
        row.fill(self.words)
        row.put(
            self.speed,
            self.non_finite,
            self.above,
            self.bound,
            self._divider,
            self.held,
        )
        tape = QWidget()
        vbox(tools, (self.strip, 1), on=tape, margins=0, spacing=0)
        self.offer = CaptureOffer("No backward tape yet", BATCH_HINT, STEP_HINT)
        self._pages = QStackedWidget()
        self._pages.addWidget(self.offer)
        self._pages.addWidget(tape)
        vbox(self._pages, on=self, margins=0)
        # Narrower than all of it: the least important words are shortened, nothing is cut off.
        self.setMinimumWidth(1)

    def _connect(self) -> None:
        player = self.player
        self.deck.to_start.connect(lambda: player.seek(0))
        self.deck.step_back.connect(player.back)
        self.deck.step.connect(player.step)
        self.deck.run.connect(player.toggle)
        self.deck.to_end.connect(lambda: player.seek(len(player)))
        self.strip.sought.connect(player.seek)
        self.strip.toggled.connect(player.toggle)
        self.speed.edited.connect(player.set_speed)
        self.let_go.clicked.connect(player.release)
        self.non_finite.toggled.connect(self._breaks)
        self.above.toggled.connect(self._breaks)
        self.bound.edited.connect(self._bounded)
        self.offer.acted.connect(self.captureRequested)
        player.tape_changed.connect(self._tape_changed)
        player.moved.connect(lambda _before, _now: self._moved())
        player.state_changed.connect(lambda _state: self._moved())
        player.changed.connect(self._changed)

    def _bounded(self, _value: object) -> None:
        self.above.setChecked(True)
        self._breaks()

    def _breaks(self) -> None:
        self.player.non_finite = self.non_finite.isChecked()
        self.player.norm_above = self.bound.value() if self.above.isChecked() else None

    # -- showing -------------------------------------------------------------------------------------------------------

    def _tape_changed(self) -> None:
        tape = self.player.tape
        self.strip.set_tape(tape)
        self._pages.setCurrentIndex(0 if tape is None else 1)
        self._changed()
        self._moved()

    def _changed(self) -> None:
        steps = self.player.tape.steps if self.player.tape is not None else {}
        self.strip.set_breaks(
            frozenset(steps[node] for node in self.player.breaks if node in steps)
        )
        self._moved()

    def _moved(self) -> None:
        player = self.player
        tape, position = player.tape, player.position
        self.deck.set_state(self._deck_state())
        self.let_go.setVisible(player.keeps)
        if tape is None:
            return
        self.strip.set_position(position)
        now = min(position + 1, len(player))
        self.count.setText(f"{now:,}/{len(player):,}")
        node = player.next_node
        self.words.setToolTip(
            self._status_text(tape.nodes[node] if node is not None else None)
        )
        self._fit()
        self.held.setText(
            _held_text(
                player.held[position],
                tape.held_bytes,
                self.width() < NARROW * manager().scale,
            )
        )
        self.strip.setAccessibleDescription(self.words.toolTip())

    def _deck_state(self) -> str:
        player = self.player
        if player.state in (EMPTY, LEFT):
            return "blocked"
        if player.state in (PLAYING, LOADING):
            return "running"
        return (
            "at_start"
            if not player.position
            else "at_end"
            if player.next_node is None
            else "ready"
        )

    def _status_text(self, node: TapeNode | None) -> str:
        """Return the text beside the counter."""
        player, tape = self.player, self.player.tape
        assert tape is not None
        if player.state == LOADING:
            return "Running the batch again to keep its graph…"
        stop = player.last
        if node is None:
            return " · ".join(filter(None, (stopped_by(stop), "All nodes have run")))
        where = "in the loss" if node.in_loss else f"in {tape.title_of(node)}"
        name = (
            f"{node.name} of {node.parameters[0]}"
            if node.parameters
            else f"{node.name} {where}"
        )
        why = stopped_by(stop) if player.state != PLAYING else ""
        return " · ".join(filter(None, (why, f"{name} runs next")))

    def _fit(self) -> None:
        """Elide the text to the available width, with the name in bold."""
        metrics, text = self.words.fontMetrics(), self.words.toolTip()
        shown = metrics.elidedText(
            text, Qt.TextElideMode.ElideRight, max(self.words.width() - 14, 0)
        )
        name, _, rest = shown.partition(" ")
        bold = self.player.next_node is not None and self.player.state != LOADING
        self.words.setText(
            f"<b>{escape(name)}</b> {escape(rest)}" if bold else escape(shown)
        )
        broke = self.player.last is not None and self.player.last.reason in (
            "norm",
            "non_finite",
        )
        set_property(
            self.words,
            "tone",
            "warn" if broke and self.player.state != PLAYING else "text2",
        )

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if (
            watched is self.words
            and event.type() == QEvent.Type.Resize
            and self.player.tape is not None
        ):
            self._fit()
        return super().eventFilter(watched, event)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        narrow = self.width() < NARROW * manager().scale
        for widget in (self._divider, self.held):  # the strip shows it too
            widget.setVisible(self.width() >= TIGHT * manager().scale)
        self.non_finite.setText("NaN or Inf" if narrow else "Break on NaN or Inf")
        self.above.setText("Norm above" if narrow else "Break when norm above")
        self.non_finite.setToolTip("Break on NaN or Inf")
        self.above.setToolTip("Break when a norm is above this bound")
        present(present(self._pages.currentWidget()).layout()).activate()
        if self.player.tape is not None:
            self._moved()


def stopped_by(stop: Stop | None) -> str:
    """Return why playback stopped, "" if that needs no explanation."""
    if stop is None or stop.value is None:
        return ""
    if stop.reason == "norm":
        return f"Norm {figure(stop.value)}: stopped"
    return (
        f"{stop.value:,.0f} NaN or infinite {plural(int(stop.value), 'value')}: stopped"
    )


def _held_text(now: int, most: int, narrow: bool) -> str:
    """ "Held for backward 48.0 MiB of 53.2", one unit where both have it."""
    now_text, most_text = bytes_text(now), bytes_text(most)
    if now_text.split()[1] == most_text.split()[1]:
        most_text = most_text.split()[0]
    return (
        f"<b>{now_text}</b> of {most_text} held"
        if narrow
        else f"Held for backward <b>{now_text}</b> of {most_text}"
    )
