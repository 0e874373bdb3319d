"""A kept graph and its backward pass, played on a thread of its own: requests in, what happened out.

What is played never leaves the thread. Steps come out through a ring that the window polls, as plain data; a signal is
sent for a change of state only. The thread begins with the forward pass and ends by letting go of the graph.
"""

from __future__ import annotations

import gc
import time
import traceback
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from threading import Condition
from typing import TYPE_CHECKING, Any

from PySide6.QtCore import QObject, QThread, Signal

from app.autograd.playback.steps import Breaks, FanIn, GradStats, StepRecord, Stop
from app.autograd.tape import Tape
from app.telemetry.ring import Ring
from app.util import openmp

if TYPE_CHECKING:
    from app.autograd.playback.gradient_stats import GradientLook
    from app.autograd.playback.kept_graph import LiveGraph
    from app.autograd.playback.playback import Playback


# -- what is asked ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Seek:
    """Go to where `position` nodes have run."""

    position: int


@dataclass(frozen=True)
class Play:
    """Go on to the end or to a break, from the start where `again`."""

    breaks: Breaks
    again: bool = False


@dataclass(frozen=True)
class Look:
    """Look at what has arrived before an output of a node; `at` chooses the sample. Answered by a `Looked`."""

    node: int
    output_nr: int
    at: tuple[int, ...] = ()


@dataclass(frozen=True)
class Edit:
    """Change what has arrived before an output of a node. `kind` is one of `edits.KINDS`, or "value": `amount` for the
    one element at `index`, or for all of them without one."""

    node: int
    output_nr: int
    kind: str
    amount: float = 1.0
    index: tuple[int, ...] = ()


@dataclass(frozen=True)
class UndoEdit:
    """Undo the last edit made at this position."""


# -- what is told -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kept:
    """The graph is there. `same` says whether it is the one that was expected; `tape` describes it."""

    tape: Tape
    same: bool


@dataclass(frozen=True)
class Back:
    """Records from `position` on are no longer true."""

    position: int


@dataclass(frozen=True)
class Stood:
    """A movement has ended; `kept` are about the bytes that playing keeps alive, `edits` as a Playback has them.

    `arriving` and `fan_ins` are of the node that runs next. `turn` is what `ask` answered for the movement.
    """

    stop: Stop
    turn: int
    kept: int
    edits: tuple[tuple[int, int, int], ...] = ()
    arriving: tuple[GradStats | None, ...] = ()
    fan_ins: tuple[FanIn, ...] = ()


@dataclass(frozen=True)
class Looked:
    """The answer to a `Look`; `look` is None where no gradient has arrived or it is no longer kept."""

    asked: Look
    look: GradientLook | None


@dataclass(frozen=True)
class Trouble:
    """Something could not be done; `node` is the backward node that raised, if one did.

    `traceback` is there where the fault is the program's own.
    """

    title: str
    reason: str
    node: int | None = None
    traceback: str = ""


@dataclass(frozen=True)
class LetGo:
    """The graph was let go of; `alive` are the bytes of its loss, weights and activations that are still there."""

    alive: int


class PlaybackThread(QThread):
    """Runs `hold()` and plays what it gives. `told` carries Kept, Stood, Looked, Trouble and at last LetGo.

    Of movements (Seek, Play) the newest ends the others; everything else is done in turn, between two steps if need be.
    `expected` is the tape that the window shows. Connect `told` to a bound method of a QObject: it arrives queued.
    """

    told = Signal(object)
    # How many steps a second a `Play` takes, None for as many as it can; may be changed while it plays.
    speed: float | None = None

    def __init__(self, hold: Callable[[], LiveGraph], expected: Tape | None, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._hold, self._expected = hold, expected
        self._wake = Condition()
        self._waiting: deque[tuple[Any, int]] = deque()
        self._turn = 0  # of the newest movement: an older one ends when it sees a newer number
        self._leaving = False
        self.steps: Ring[StepRecord | Back] = Ring()

    # -- from the window's thread --------------------------------------------------------------------------------------

    def ask(self, request: Seek | Play | Look | Edit | UndoEdit) -> int:
        """Have something done; returns at once, with the number of the newest movement."""
        with self._wake:
            if isinstance(request, Seek | Play):
                self._drop(Seek, Play)
                self._turn += 1
            elif isinstance(request, Look):
                self._drop(Look)
            self._waiting.append((request, self._turn))
            self._wake.notify()
            return self._turn

    def _drop(self, *kinds: type) -> None:
        self._waiting = deque(one for one in self._waiting if not isinstance(one[0], kinds))

    def pause(self) -> None:
        """End the movement under way after the step that it is at."""
        with self._wake:
            self._turn += 1
            self._wake.notify()

    def leave(self) -> None:
        """Let go of the graph and end; what is under way ends after its step."""
        with self._wake:
            self._leaving = True
            self._turn += 1
            self._wake.notify()

    # -- on its own ----------------------------------------------------------------------------------------------------

    def run(self) -> None:
        try:
            graph = self._hold()
        except Exception as error:  # whatever it is, the person who asked is told
            self.told.emit(Trouble("Forward pass failed", f"{error}"))
            return
        watched = [(weakref.ref(tensor), tensor.nbytes) for tensor in _tensors(graph)]
        held, nodes = graph.tape.held, len(graph.nodes)
        self._play_all(graph)
        del graph
        if nodes > 1000:
            gc.collect(0)
        alive = sum(size for tensor, size in watched if tensor() is not None)
        self.told.emit(LetGo(alive + (held if alive else 0)))

    def _play_all(self, graph: LiveGraph) -> None:
        from app.autograd.playback.playback import Playback

        playback = None
        try:
            playback = Playback(graph)
            self.told.emit(Kept(graph.tape, drawn_alike(graph.tape, self._expected)))
            while (waiting := self._next()) is not None:
                request, turn = waiting
                self._do(playback, request, turn)
        except Exception as error:  # nobody foresaw it: what torch and the net may raise is told by `_do`
            reason, trace = f"{type(error).__name__}: {error}", traceback.format_exc()
            self.told.emit(Trouble("The backward pass cannot be played", reason, traceback=trace))
        finally:
            if playback is not None:
                playback.release()
            graph.release()

    def _next(self) -> tuple[Any, int] | None:
        openmp.let_go()  # a run that goes on meanwhile would pay for it
        with self._wake:
            self._wake.wait_for(lambda: self._waiting or self._leaving)
            return None if self._leaving else self._waiting.popleft()

    def _do(self, playback: Playback, request: Any, turn: int) -> None:
        from app.autograd.playback.playback import StepFailed

        trouble = None
        try:
            if isinstance(request, Play):
                self._play(playback, request, turn)
            elif isinstance(request, Seek):
                self._seek(playback, request.position, turn)
            else:
                self._aside(playback, request)
        except StepFailed as failed:
            trouble = Trouble("This node failed", str(failed), failed.node)
        except ValueError as error:
            trouble = Trouble("The gradient was not changed", str(error))
        if trouble is not None:
            self.told.emit(trouble)
            self._stood(playback, Stop("failed", playback.position, playback.next_node), turn)

    def _play(self, playback: Playback, play: Play, turn: int) -> None:
        if self._turn != turn:  # it was ended before it began
            self._stood(playback, Stop("cancelled", playback.position, playback.next_node), turn)
            return
        if play.again:
            playback.seek(0)
            self.steps.append(Back(0))
        stop = playback.run(play.breaks, lambda record: self._played(playback, record, turn))
        self._stood(playback, stop, turn)

    def _played(self, playback: Playback, record: StepRecord, turn: int) -> bool:
        """After a step: wait as the speed asks for, and do meanwhile what else is asked. False ends the movement."""
        self.steps.append(record)
        return self._turn == turn and self._rest(playback, turn)

    def _rest(self, playback: Playback, turn: int) -> bool:
        speed = self.speed
        if speed is None:
            return True
        until = time.monotonic() + 1 / speed
        while (left := until - time.monotonic()) > 0:
            with self._wake:
                self._wake.wait_for(lambda: self._turn != turn or self._waiting, left)
                if self._turn != turn:
                    return False
                waiting = self._waiting.popleft() if self._waiting else None
            if waiting is not None:
                self._do(playback, *waiting)
        return self._turn == turn

    def _seek(self, playback: Playback, position: int, turn: int) -> None:
        if position < playback.position:
            playback.seek(position)
            self.steps.append(Back(playback.position))
        while playback.position < position and self._turn == turn:
            record = playback.step()
            if record is None:
                break
            self.steps.append(record)
        reason = "end" if playback.next_node is None else "node" if playback.position == position else "cancelled"
        self._stood(playback, Stop(reason, playback.position, playback.next_node), turn)

    def _stood(self, playback: Playback, stop: Stop, turn: int) -> None:
        arriving, fan_ins = playback.waiting()
        self.told.emit(Stood(stop, turn, playback.kept, playback.edits, arriving, fan_ins))

    def _aside(self, playback: Playback, request: Any) -> None:
        """What is done without moving."""
        if isinstance(request, Look):
            self.told.emit(Looked(request, playback.look(request.node, request.output_nr, request.at)))
            return
        if isinstance(request, UndoEdit):
            playback.undo_edit()
        else:
            playback.edit(request.node, request.output_nr, _change(playback, request))
        self._stood(playback, Stop("edited", playback.position, playback.next_node), -1)


def _change(playback: Playback, request: Edit) -> Any:
    """The edit, or the gradient with one value typed into it."""
    from app.autograd.playback.gradient_edits import GradEdit

    if request.kind != "value":
        return GradEdit(request.kind, request.amount, seed=playback.position)
    gradient = playback.gradient(request.node, request.output_nr)
    if gradient is None:
        raise ValueError(f"No gradient has arrived at node {request.node} yet. Go on to a step before it.")
    changed = gradient.to_dense().clone()
    changed[request.index if request.index else ...] = request.amount
    return changed


def drawn_alike(tape: Tape, expected: Tape | None) -> bool:
    """Whether two tapes are drawn alike, so that numbers of the one belong to the other."""
    return expected is not None and (tape.nodes, tape.edges, tape.order) == (
        expected.nodes, expected.edges, expected.order,
    )  # fmt: skip


def _tensors(graph: LiveGraph) -> list[Any]:
    """Tensors that must be gone once the graph is."""
    model = graph.model
    return [*graph.ends, *(model.parameters() if model is not None else ()), *(model.buffers() if model else ())]
