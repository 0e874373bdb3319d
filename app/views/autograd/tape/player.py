"""State of a playback in the window: position, records so far, and the commands to move, inspect and edit."""

from __future__ import annotations

from PySide6.QtCore import QObject, QTimer, Signal, Slot

from app.autograd.playback.memory_timeline import held_by_step
from app.autograd.playback.steps import (
    Breaks,
    FanIn,
    GradStats,
    PassResult,
    StepRecord,
    Stop,
)
from app.autograd.tape import Tape
from app.engine.client import Engine, shared
from app.engine.requests.capture import HeldStep
from app.engine.requests.observe import AnyCapture
from app.engine.requests.playback import (
    Back,
    Edit,
    GradientInspected,
    GraphFreed,
    GraphHeld,
    InspectGradient,
    MovementEnded,
    Play,
    PlaybackRequest,
    Seek,
    Trouble,
    UndoEdit,
)
from app.views.autograd.playback_client import PlaybackClient

EVERY = 33  # polling interval in ms
EMPTY, READY, LOADING, STANDING, PLAYING = (
    "empty",
    "ready",
    "loading",
    "standing",
    "playing",
)
LEFT = "left"  # the played steps can be inspected, but not continued


class Player(QObject):
    """Plays the graph of a tape, which the engine keeps from the first movement until `release`.

    `moved(before, now)` carries positions, at most 30 times a second, `state_changed` a state of EMPTY to LEFT.
    `stood` carries the Stop that ended a movement, `changed` reports any change but the position (an edit, a
    breakpoint, numbers of an earlier tape). `replaced(tape)` is emitted if the graph in the engine is drawn
    differently.
    """

    tape_changed = Signal()
    moved = Signal(int, int)
    state_changed = Signal(str)
    stood = Signal(object)
    changed = Signal()
    replaced = Signal(object)
    looked = Signal(object)
    troubled = Signal(object)
    graph_released = Signal(int)

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.tape: Tape | None = None
        self.held: list[int] = [0]
        self.state = EMPTY
        self.records: list[StepRecord] = []
        self.breaks: frozenset[int] = frozenset()
        self.non_finite = True
        self.norm_above: float | None = None
        self.arriving: tuple[GradStats | None, ...] = ()
        self.fan_ins: tuple[FanIn, ...] = ()
        self.edits: tuple[tuple[int, int, int], ...] = ()
        self.kept = 0
        self.last: Stop | None = None
        # Norms that left by an edge, of steps that were stepped back too, as long as nothing before was edited.
        self.norms: dict[tuple[int, int], float] = {}
        self.concealed: frozenset[str] = frozenset()  # names of gradients
        self._speed: float | None = 20.0
        self._turn = 0  # of the latest movement requested
        self._target: int | None = (
            None  # the position that it leads to, until it is there
        )
        self.batch: AnyCapture | None = None  # the request that produced the tape
        self._engine: Engine | None = None
        self._client: PlaybackClient | None = None
        self._leaving: list[PlaybackClient] = []
        self._alive = 0  # bytes not freed with the last graph
        self._timer = QTimer(self, interval=EVERY)
        self._timer.timeout.connect(self._drain)

    # -- state ---------------------------------------------------------------------------------------------------------

    @property
    def position(self) -> int:
        """How many nodes have run."""
        return len(self.records)

    @property
    def next_node(self) -> int | None:
        return (
            self.tape.order[self.position]
            if self.tape is not None and self.position < len(self)
            else None
        )

    def __len__(self) -> int:
        return len(self.tape.order) if self.tape is not None else 0

    @property
    def keeps(self) -> bool:
        """Return whether the engine keeps a graph."""
        return self._client is not None

    @property
    def shows(self) -> bool:
        """Return whether there are steps to be shown: of a graph that is kept, or was left."""
        return self.keeps or self.state == LEFT

    def result(self) -> PassResult:
        return PassResult(tuple(self.records))

    def record_of(self, node: int) -> StepRecord | None:
        """Return the record of a node that has run."""
        step = self.tape.steps.get(node) if self.tape is not None else None
        return self.records[step] if step is not None and step < self.position else None

    def conceal(self, names: frozenset[str]) -> None:
        """Hide the gradients of these names until they are predicted."""
        if names != self.concealed:
            self.concealed = names
            self.changed.emit()

    def is_concealed(self, node: int) -> bool:
        """Return whether what arrives at a node is hidden, as is what goes on to the parameter through views alone."""
        if not self.concealed or self.tape is None:
            return False
        leaf = self.tape.leaf_behind(node)
        return leaf is not None and not self.concealed.isdisjoint(
            self.tape.nodes[leaf].parameters
        )

    def set_tape(
        self,
        tape: Tape | None,
        batch: AnyCapture | None = None,
        engine: Engine | None = None,
    ) -> None:
        """Set the tape to play, the graph of `batch` in an engine (None for the shared one), and release the last."""
        self.release()
        self.batch, self._engine = batch, engine
        self._set_tape(tape)
        self._set_state(READY if tape is not None else EMPTY)

    def _set_tape(self, tape: Tape | None) -> None:
        before, self.tape = self.tape, tape
        self.held = held_by_step(tape) if tape is not None else [0]
        self.norms, self.last = {}, None
        if tape is None or before is None or tape.order != before.order:
            self.breaks = frozenset()
        self.tape_changed.emit()

    # -- going ---------------------------------------------------------------------------------------------------------

    def play(self) -> None:
        """Play to the end or to a breakpoint."""
        if self._begin(PLAYING):
            assert self._client is not None
            breaks = Breaks(self.norm_above, self.non_finite, self.breaks)
            self._target = None
            self._turn = self._client.send(
                Play(breaks, again=self.position >= len(self) > 0)
            )

    def pause(self) -> None:
        if self._client is not None:
            self._client.pause()

    def toggle(self) -> None:
        """Play, or pause what plays."""
        if self.state == PLAYING:
            self.pause()
        else:
            self.play()

    def seek(self, position: int) -> None:
        """Go to where `position` nodes have run."""
        position = max(0, min(position, len(self)))
        if self.tape is None or (not self.keeps and position == 0):
            return
        if self._begin(PLAYING):
            assert self._client is not None
            self._target = position
            self._turn = self._client.send(Seek(position))

    def step(self) -> None:
        """Run one more node; of several requests in a row each counts, before the first is answered."""
        self.seek(self._aim + 1)

    def back(self) -> None:
        """Take one step back, see `step`."""
        self.seek(self._aim - 1)

    @property
    def _aim(self) -> int:
        return self.position if self._target is None else self._target

    def run_to(self, node: int) -> None:
        """Go to where `node` runs next, or to a breakpoint on the way there."""
        if self.tape is None or node not in self.tape.steps:
            return
        if self.tape.steps[node] <= self.position:
            self.seek(self.tape.steps[node])
        elif self._begin(PLAYING):
            assert self._client is not None
            self._target = None
            self._turn = self._client.send(
                Play(
                    Breaks(self.norm_above, self.non_finite, self.breaks | {node}),
                    quick=True,
                )
            )

    def set_speed(self, speed: float | None) -> None:
        """Set the speed in steps a second, None for unlimited."""
        self._speed = speed
        if self._client is not None:
            self._client.set_speed(speed)

    @property
    def speed(self) -> float | None:
        return self._speed

    def toggle_break(self, node: int) -> None:
        """Add or remove a breakpoint before this node."""
        self.breaks = self.breaks ^ {node}
        self.changed.emit()

    # -- looking and changing ------------------------------------------------------------------------------------------

    def request_stats(
        self, node: int, output_nr: int = 0, at: tuple[int, ...] = ()
    ) -> None:
        """Request statistics of a gradient; `looked` carries the result."""
        if self._client is not None:
            self._client.send(InspectGradient(node, output_nr, at))

    def edit(self, edit: Edit) -> None:
        if self._client is not None:
            self._client.send(edit)

    def undo_edit(self) -> None:
        if self._client is not None:
            self._client.send(UndoEdit())

    # -- the playback --------------------------------------------------------------------------------------------------

    def _begin(self, state: str) -> bool:
        """Ensure that the engine holds a graph or is loading it; return False without a tape."""
        if self.tape is None or self.batch is None:
            return False
        if self._client is None:
            request = PlaybackRequest(self.batch, self.tape, self._speed)
            self._client = client = PlaybackClient(
                self._engine or shared(), request, self
            )
            client.event_received.connect(self._handle_event)
            client.ended.connect(self._ended)
            client.start()
            self._alive = 0
            self._set_state(LOADING)
        elif self.state != LOADING:
            self._set_state(state)
        self._timer.start()
        return True

    def leave(self) -> None:
        """Release the graph for good; the records of its playback can still be inspected."""
        client, self._client, self._target = self._client, None, None
        self._drain_from(client)
        if client is not None:
            self._leaving.append(client)
            client.leave()
        self._timer.stop()
        self.batch, self.kept = None, 0
        self._set_state(LEFT if self.records else EMPTY)
        self.changed.emit()

    def release(self) -> None:
        """Release the graph, and drop the records of its playback."""
        client, self._client, self._target = self._client, None, None
        if client is not None:
            self._leaving.append(client)
            client.leave()
        self._timer.stop()
        before, self.records = self.position, []
        self.arriving, self.fan_ins, self.edits, self.kept, self.norms, self.last = (
            (),
            (),
            (),
            0,
            {},
            None,
        )
        if before:
            self.moved.emit(before, 0)
        if client is not None:
            self._set_state(READY if self.tape is not None else EMPTY)
            self.changed.emit()

    @Slot()
    def _ended(self) -> None:
        client = self.sender()
        if client in self._leaving:
            self._leaving.remove(client)
        if client is self._client:  # it failed to start or to continue
            self._client = None
            if isinstance(self.batch, HeldStep):  # the script has continued by itself
                self.leave()
            else:
                self.release()
                self._set_state(READY if self.tape is not None else EMPTY)
            self.changed.emit()
            self.graph_released.emit(self._alive)
        if client is not None:
            client.deleteLater()

    def _drain(self) -> None:
        """Handle the steps played since the last poll."""
        self._drain_from(self._client)

    def _drain_from(self, client: PlaybackClient | None) -> None:
        if client is None:
            return
        before, least = self.position, self.position
        for event in client.drain():
            if isinstance(event, Back):
                del self.records[event.position :]
                least = min(least, event.position)
            else:
                self.records.append(event)
                for edge in event.leaving:
                    if edge.stats is not None:
                        self.norms[edge.source, edge.slot] = edge.stats.unscaled
        if least < before:
            self.moved.emit(before, least)
        if self.position != least:
            self.moved.emit(least, self.position)

    @Slot(object)
    def _handle_event(self, event: object) -> None:
        if isinstance(event, GraphFreed):
            self._alive = event.alive
            self.graph_released.emit(event.alive)
        if self.sender() is not self._client:
            return
        self._drain()
        if isinstance(event, GraphHeld):
            if not event.same:
                assert event.tape is not None
                self._set_tape(event.tape)
                self.replaced.emit(event.tape)
            else:
                self.tape = event.tape or self.tape
                self.changed.emit()
            self._set_state(PLAYING)
        elif isinstance(event, MovementEnded):
            self._show_stop(event)
        elif isinstance(event, GradientInspected):
            self.looked.emit(event)
        elif isinstance(event, Trouble):
            self.troubled.emit(event)

    def _show_stop(self, movement_end: MovementEnded) -> None:
        if movement_end.edits != self.edits:  # norms after the edit are outdated
            steps = self.tape.steps if self.tape is not None else {}
            self.norms = {
                key: norm
                for key, norm in self.norms.items()
                if steps.get(key[0], 0) < self.position
            }
        self.arriving, self.fan_ins, self.edits, self.kept = (
            movement_end.arriving,
            movement_end.fan_ins,
            movement_end.edits,
            movement_end.kept,
        )
        if movement_end.stop.reason == "edited":
            self.changed.emit()
            return
        self.last = movement_end.stop
        if movement_end.turn == self._turn:
            self._target = None
            self._timer.stop()
            self._set_state(STANDING)
        self.stood.emit(movement_end.stop)

    def _set_state(self, state: str) -> None:
        if state != self.state:
            self.state = state
            self.state_changed.emit(state)
