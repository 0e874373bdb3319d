"""Play recorded steps of another process: there is no graph to hold, edit or inspect."""

from __future__ import annotations

from PySide6.QtCore import QObject, QTimer

from app.autograd.playback.steps import PassResult, Stop
from app.autograd.tape import Tape
from app.engine.client import Engine
from app.engine.requests.observe import AnyCapture
from app.views.autograd.tape.player import (
    EMPTY,
    EVERY,
    PLAYING,
    READY,
    STANDING,
    Player,
)


class RecordedPlayer(Player):
    """A `Player` of a pass that is given with its tape. Its length is that of the pass, which may end early."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._passed = PassResult(())
        self._clock = QTimer(self)
        self._clock.timeout.connect(self._tick)

    def set_pass(self, tape: Tape | None, passed: PassResult | None) -> None:
        """Have another pass to play, None for none."""
        self.set_tape(tape if passed is not None else None)
        self._passed = passed or PassResult(())
        self.changed.emit()

    def set_tape(
        self,
        tape: Tape | None,
        batch: AnyCapture | None = None,
        engine: Engine | None = None,
    ) -> None:
        self.release()
        self._passed = PassResult(())
        super().set_tape(tape, batch, engine)

    def is_concealed(self, node: int) -> bool:
        """Return whether gradients are hidden: of a few lines, all, since each follows from its neighbours."""
        return bool(self.concealed)

    def __len__(self) -> int:
        return len(self._passed.records)

    @property
    def keeps(self) -> bool:
        """Return whether it has been moved: then the graph shows its position."""
        return self.state in (STANDING, PLAYING)

    # -- going ---------------------------------------------------------------------------------------------------------

    def play(self) -> None:
        if not len(self):
            return
        if self.position >= len(self):
            self._move_to(0)
        self._set_state(PLAYING)
        self._wind()

    def pause(self) -> None:
        if self.state == PLAYING:
            self._rest("cancelled")

    def seek(self, position: int) -> None:
        position = max(0, min(position, len(self)))
        if not len(self) or (not self.keeps and position == 0):
            return
        self._clock.stop()
        if not self.keeps:
            self._set_state(STANDING)
        self._move_to(position)
        self._rest("end" if position == len(self) else "node")

    def set_speed(self, speed: float | None) -> None:
        super().set_speed(speed)
        if self._clock.isActive():
            self._wind()

    def release(self) -> None:
        """Return to before the first step, without records."""
        self._clock.stop()
        super().release()
        self._set_state(READY if self.tape is not None else EMPTY)

    # -- how -----------------------------------------------------------------------------------------------------------

    def _wind(self) -> None:
        self._clock.start(
            EVERY if self.speed is None else max(1, round(1000 / self.speed))
        )

    def _tick(self) -> None:
        """Advance one step; at full speed as many as end it within two seconds."""
        steps = 1 if self.speed is not None else max(1, len(self) * EVERY // 2000)
        self._move_to(min(self.position + steps, len(self)))
        if self.position == len(self):
            self._rest("end")

    def _move_to(self, position: int) -> None:
        before, every = self.position, self._passed.records
        self.records = list(every[:position])
        for record in every[before:position]:
            self.norms.update(
                {
                    (edge.source, edge.slot): edge.stats.unscaled
                    for edge in record.leaving
                    if edge.stats is not None
                }
            )
        waits = every[position] if position < len(every) else None
        self.arriving = waits.arriving if waits is not None else ()
        self.fan_ins = waits.fan_ins if waits is not None else ()
        if position != before:
            self.moved.emit(before, position)

    def _rest(self, reason: str) -> None:
        self._clock.stop()
        self.last = Stop(reason, self.position, self.next_node)
        self._set_state(STANDING)
        self.stood.emit(self.last)
