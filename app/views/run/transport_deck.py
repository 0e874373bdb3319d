"""The training deck of the toolbar: transport keys and tape counter."""

from __future__ import annotations

from math import inf
from time import monotonic

from msgspec.structs import replace
from PySide6.QtCore import QTimer, Signal, Slot
from PySide6.QtWidgets import QWidget

from app.util import formatting
from app.views.run.session import ACTIVE, RunProgress, RunSession
from app.views.ui.layouts import hbox
from app.views.ui.widgets.button import Button
from app.views.ui.widgets.counter import Counter
from app.views.ui.widgets.transport import Transport

# A run's state: the look of the transport, the colour of the tape, and the word at the counter's right.
LOOKS: dict[str, tuple[str, str, str, str, str]] = {
    "idle": ("ready", "text4", "", "", "text2"),
    "starting": ("running", "run", "Starting…", "", "text2"),
    "waiting": ("running", "run", "Waiting…", "", "text2"),
    "running": ("running", "run", "", "", "text2"),
    "paused": ("paused", "run", "Paused", "pause", "text2"),
    "stopping": ("blocked", "run", "Stopping…", "", "text2"),
    "done": ("ready", "text4", "Done", "check", "run"),
    "stopped": ("ready", "text4", "Stopped", "stop", "text2"),
    "left": ("ready", "text4", "Not watched", "", "text2"),
    "failed": ("ready", "text4", "Failed", "error", "error"),
}
# By the state of `ScriptStep`.
CAPTURE = {"none": "Capture step", "waiting": "Cancel", "held": "Continue"}
CAPTURE_TIPS = {
    "none": "Capture the autograd graph of the script's next backward, to inspect and play it",
    "waiting": "Stop waiting for the next backward",
    "held": "Let the script run its own backward and continue",
}
NOTHING = "–"
READABLE = 0.25  # seconds between two figures of the counter
# A run without a step for this many seconds, and for this many times the duration of its last one, has no speed.
STALLED, STALLED_STEPS = 5.0, 5.0


class RunDeck(QWidget):
    """Keys and counter. It only emits signals for the pressed keys.

    During a run the buttons control it, whatever `set_blocked` says: the run has a copy of the net.
    """

    run = Signal()
    pause = Signal()
    step = Signal()
    stop = Signal()
    capture = Signal()
    go_on = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.transport, self.counter = (
            Transport(self),
            Counter(self, ("Samples/s", "Batch")),
        )
        self.counter.reserve(word for _, _, word, _, _ in LOOKS.values())
        self.step_button = Button(CAPTURE["none"])
        widest = max(
            (Button(text).sizeHint().width() for text in CAPTURE.values()), default=0
        )
        self.step_button.setFixedSize(widest, 30)  # the keys stay where they are
        self.step_button.hide()
        self._step_state = "none"
        self.step_button.clicked.connect(
            lambda: (self.capture if self._step_state == "none" else self.go_on).emit()
        )
        hbox(
            self.transport,
            (self.counter, 1),
            self.step_button,
            on=self,
            margins=0,
            spacing=12,
        )
        self._state = "idle"
        self._blocked = ("", "", "text2")
        self._status = ""
        self._starts_later = False
        self._step = 0
        self._session: RunSession | None = None
        self._shown_at, self._advanced_at = 0.0, inf
        self._stall = QTimer(self)
        self._stall.setSingleShot(True)
        self._stall.timeout.connect(self._on_stall)
        for name in ("run", "pause", "step", "stop"):
            getattr(self.transport, name).connect(getattr(self, name))
        self.show_progress(None)
        self._show()

    @property
    def state(self) -> str:
        return self._state

    def follow(self, session: RunSession) -> None:
        """Show what this session does from now on."""
        self._session = session
        session.stateChanged.connect(self.set_state)
        session.progressed.connect(self._on_progress)
        session.commandsChanged.connect(self._offer_capture)
        self.set_state(session.state)
        self._on_progress()

    @Slot(str)
    def set_state(self, state: str, status: str = "") -> None:
        """Show a state of a run (see `Run`), or "idle"; `status` replaces the state's own text.

        Raises:
            KeyError: there is no such state.
        """
        LOOKS[state]
        self._state, self._status = state, status
        if state in ("starting", "waiting"):
            self.show_progress(None)
        elif state not in ("running", "idle") and self._session is not None:
            self.show_progress(self._session.progress())  # exact to the batch
        self._show()

    @Slot(str)
    def set_step(self, state: str) -> None:
        """Show whether a step of a script is waited for or held; see `ScriptStep`."""
        self._step_state = state
        self.step_button.setText(CAPTURE[state])
        self.step_button.setToolTip(CAPTURE_TIPS[state])

    def set_blocked(
        self,
        reason: str,
        icon: str = "",
        color: str = "text2",
        *,
        starts_later: bool = False,
    ) -> None:
        """Show why no run can be started, such as "Fix 1 error to run"; an empty text unblocks. A run that
        `starts_later` by itself can be requested all the same.
        """
        self._blocked, self._starts_later = (reason, icon, color), starts_later
        self._show()

    def _show(self) -> None:
        look, tape, word, icon, tone = LOOKS[self._state]
        reason = ""
        if self._blocked[0] and self._state not in ACTIVE:
            look, reason = (
                "ready" if self._starts_later else "blocked",
                self._blocked[0],
            )
            word, icon, tone = self._blocked
        elif self._status:
            word, icon, tone = self._status, "", "text2"
        self.transport.set_state(look, reason)
        self._offer_capture()
        self.counter.set_color(tape)
        self.counter.set_message(word, icon, tone)

    def _offer_capture(self) -> None:
        """Show the button while a script is watched that takes commands."""
        session = self._session
        self.step_button.setVisible(
            session is not None and session.watches and session.commands
        )

    @Slot()
    def _on_progress(self) -> None:
        """Throttle the counter: faster digits are unreadable, and each update costs the run a little."""
        now = monotonic()
        if self._state == "running":
            self._stall.start(
                int(1000 * max(STALLED, STALLED_STEPS * (now - self._advanced_at)))
            )
            self._advanced_at = now
        else:
            self._stall.stop()
            self._advanced_at = inf
        if self._session is not None and (
            now - self._shown_at >= READABLE or self._state != "running"
        ):
            self._shown_at = now
            self.show_progress(self._session.progress())
            looked = self._session.history.looking if self._session.history else None
            self.counter.set_note(
                telemetry_share(looked.spent, looked.seconds, looked.steps)
                if looked
                else ""
            )

    @Slot()
    def _on_stall(self) -> None:
        """Take the speed and the remaining time off the counter: a stopped process would keep the last ones."""
        progress = self._session.progress() if self._session is not None else None
        if self._state == "running" and progress is not None:
            self.show_progress(replace(progress, samples_per_second=None, eta=None))

    def show_progress(self, progress: RunProgress | None) -> None:
        """Show the values of the counter; None before there are any. The remaining time is marked as an estimate."""
        if progress is None:
            self._step = 0
            watches = self._session is not None and self._session.watches
            captions = (
                ("Step", "Steps/s", "Loss")
                if watches
                else ("Epoch", "Batch", "Samples/s", "Loss", "ETA")
            )
            self.counter.set_fields([(caption, NOTHING) for caption in captions])
            self.counter.set_progress(0.0, 0)
            return
        p = progress
        speed = (
            NOTHING if p.samples_per_second is None else f"{p.samples_per_second:,.0f}"
        )
        left = (
            NOTHING
            if p.eta is None or self._state not in ACTIVE
            else formatting.duration(p.eta)
        )
        if not p.batches:
            fields = (
                ("Step", f"{p.step:,}"),
                ("Steps/s", speed),
                ("Loss", formatting.figure(p.loss)),
            )
            self.counter.set_fields([*fields])
            self.counter.set_progress(0.0, 0)
            self.counter.turn(p.step - self._step)
            self._step = p.step
            return
        self.counter.set_fields(
            [
                ("Epoch", f"{p.epoch:,}/{p.epochs:,}"),
                ("Batch", f"{p.batch:,}/{p.batches:,}"),
                ("Samples/s", speed),
                ("Loss", formatting.figure(p.loss)),
                ("ETA", left),
            ]
        )
        self.counter.set_progress(p.epoch - 1 + p.batch / max(p.batches, 1), p.epochs)
        self.counter.turn(p.step - self._step)
        self._step = p.step


def telemetry_share(spent: float, seconds: float, steps: int) -> str:
    """Return the overhead of telemetry as text.

    >>> telemetry_share(0.02, 1.0, 1000)
    'Measuring takes 0.020 ms a step, 2.00 % of the time.'
    """
    a_step = 1000 * spent / max(steps, 1)
    return f"Measuring takes {a_step:.3f} ms a step, {formatting.percent(spent / max(seconds, 1e-9))} % of the time."
