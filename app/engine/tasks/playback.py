"""Play the backward pass of a held graph on one thread: commands in, events out.

The graph never leaves the thread. Events are sent in order, steps in batches.
"""

from __future__ import annotations

import gc
import threading
import time
import traceback
import weakref
from collections import deque
from collections.abc import Callable
from threading import Condition
from typing import TYPE_CHECKING, Any

from app.autograd.playback.gradient_edits import GradEdit
from app.autograd.playback.playback import Playback, StepError, play_through
from app.autograd.playback.steps import StepRecord, Stop
from app.autograd.tape import same_graph
from app.engine.requests.playback import (
    Back,
    Command,
    Edit,
    Event,
    GradientInspected,
    GraphFreed,
    GraphHeld,
    InspectGradient,
    Leave,
    MovementEnded,
    Pause,
    Play,
    PlaybackRequest,
    RecordedPass,
    RecordRequest,
    Seek,
    SetSpeed,
    Steps,
    Trouble,
    UndoEdit,
)
from app.engine.server import Context, handles
from app.engine.tasks.capture import graph_of
from app.util import module_tree

if TYPE_CHECKING:
    from app.autograd.playback.kept_graph import LiveGraph

EVERY = 0.03  # seconds between two messages of steps while a pass is played


@handles(PlaybackRequest)
def play(request: PlaybackRequest, context: Context) -> None:
    """Play a batch until the client leaves."""
    session = PlaybackSession(
        request, context.progress, lambda: graph_of(request.batch, context)
    )
    threading.Thread(
        target=_commands,
        args=(session, context),
        name="commands of a playback",
        daemon=True,
    ).start()
    session.run()
    context.inbox.put(None)  # ends the thread that waits for commands


def _commands(session: PlaybackSession, context: Context) -> None:
    while (command := context.inbox.get()) is not None:
        session.submit(command)
    session.submit(Leave())  # the request was cancelled, or has ended


@handles(RecordRequest)
def record(request: RecordRequest, context: Context) -> RecordedPass:
    """Run a batch forward and backward, every step recorded; the graph is freed. Raises as `graph_of`."""
    with graph_of(request.batch, context) as graph:
        tape = graph.tape
        passed, stopped = play_through(graph)
        return RecordedPass(tape, Steps.from_records(passed.records), stopped)


class Outbox:
    """Sends events in order from its own thread: steps are collected for `EVERY` seconds, all else is sent at once.
    `send` is never called by two threads at a time."""

    def __init__(self, send: Callable[[Event], None]) -> None:
        self._send = send
        self._wake = Condition()
        self._waiting: list[Event | StepRecord] = []
        self._urgent = self._closing = False
        self._thread = threading.Thread(
            target=self._run, name="events of a playback", daemon=True
        )
        self._thread.start()

    def put(self, event: Event) -> None:
        with self._wake:
            self._waiting.append(event)
            self._urgent = True
            self._wake.notify()

    def step(self, record: StepRecord) -> None:
        with self._wake:
            self._waiting.append(record)
            if len(self._waiting) == 1:
                self._wake.notify()

    def close(self) -> None:
        """Send the remaining events, and end."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        self._thread.join()

    def _run(self) -> None:
        while not self._closing or self._waiting:
            with self._wake:
                self._wake.wait_for(lambda: self._waiting or self._closing)
                waiting, self._waiting = self._waiting, []
                self._urgent = False
            self._send_all(waiting)
            with self._wake:
                self._wake.wait_for(lambda: self._urgent or self._closing, EVERY)

    def _send_all(self, waiting: list[Event | StepRecord]) -> None:
        steps: list[StepRecord] = []
        for event in waiting:
            if isinstance(event, StepRecord):
                steps.append(event)
                continue
            self._send_steps(steps)
            self._send(event)
        self._send_steps(steps)

    def _send_steps(self, steps: list[StepRecord]) -> None:
        if steps:
            self._send(Steps.from_records(steps))
            steps.clear()


class PlaybackSession:
    """Plays the graph that `hold` returns. `send` receives the events, from GraphHeld to GraphFreed.

    A newer movement (Seek, Play) ends the current one; everything else is done in order, between two steps if need be.
    """

    def __init__(
        self,
        request: PlaybackRequest,
        send: Callable[[Event], None],
        hold: Callable[[], LiveGraph],
    ) -> None:
        self._request, self._hold = request, hold
        self.speed = request.speed
        self._outbox = Outbox(send)
        self._wake = Condition()
        self._waiting: deque[tuple[Any, int]] = deque()
        self._turn = (
            0  # of the newest movement: an older one ends when it sees a newer number
        )
        self._leaving = False

    # -- from any thread -----------------------------------------------------------------------------------------------

    def submit(self, command: Command) -> None:
        """Queue a command; returns at once."""
        with self._wake:
            if isinstance(command, SetSpeed):
                self.speed = command.speed
                return
            if isinstance(command, Pause | Leave):
                self._turn += 1
                self._leaving = self._leaving or isinstance(command, Leave)
            else:
                if isinstance(command, Seek | Play):
                    self._drop(Seek, Play)
                    self._turn += 1
                elif isinstance(command, InspectGradient):
                    self._drop(InspectGradient)
                self._waiting.append((command, self._turn))
            self._wake.notify()

    def _drop(self, *kinds: type) -> None:
        self._waiting = deque(
            entry for entry in self._waiting if not isinstance(entry[0], kinds)
        )

    # -- on its own ----------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Play until `Leave`."""
        try:
            self._run()
        finally:
            self._outbox.close()

    def _run(self) -> None:
        try:
            graph = self._hold()
        except Exception as error:  # any error is reported to the client
            self._outbox.put(Trouble("Forward pass failed", f"{error}"))
            return
        # A borrowed graph is kept alive by its script.
        watched = (
            [(weakref.ref(tensor), tensor.nbytes) for tensor in _tensors(graph)]
            if not graph.lent
            else []
        )
        saved_bytes, nodes = graph.tape.held_bytes, len(graph.nodes)
        self._play_all(graph)
        del graph
        if nodes > 1000:
            gc.collect(0)
        alive = sum(size for tensor, size in watched if tensor() is not None)
        self._outbox.put(GraphFreed(alive + (saved_bytes if alive else 0)))

    def _play_all(self, graph: LiveGraph) -> None:
        playback = None
        try:
            playback = Playback(graph)
            shown = self._request.expected
            tape = graph.tape if graph.tape != shown else None
            self._outbox.put(GraphHeld(tape, same_graph(graph.tape, shown)))
            while (waiting := self._next()) is not None:
                request, turn = waiting
                self._do(playback, request, turn)
        except (
            Exception
        ) as error:  # unexpected: errors of torch and the net are handled in `_do`
            reason, trace = f"{type(error).__name__}: {error}", traceback.format_exc()
            self._outbox.put(
                Trouble("The backward pass cannot be played", reason, traceback=trace)
            )
        finally:
            if playback is not None:
                playback.release()
            graph.release()

    def _next(self) -> tuple[Any, int] | None:
        with self._wake:
            self._wake.wait_for(lambda: self._waiting or self._leaving)
            return None if self._leaving else self._waiting.popleft()

    def _do(self, playback: Playback, request: Any, turn: int) -> None:
        trouble = None
        try:
            if isinstance(request, Play):
                self._play(playback, request, turn)
            elif isinstance(request, Seek):
                self._seek(playback, request.position, turn)
            else:
                self._handle_command(playback, request)
        except StepError as failed:
            trouble = Trouble("This node failed", str(failed), failed.node)
        except ValueError as error:
            trouble = Trouble("The gradient was not changed", str(error))
        if trouble is not None:
            self._outbox.put(trouble)
            self._report_stop(
                playback, Stop("failed", playback.position, playback.next_node), turn
            )

    def _play(self, playback: Playback, play: Play, turn: int) -> None:
        if self._turn != turn:  # it was ended before it began
            self._report_stop(
                playback, Stop("cancelled", playback.position, playback.next_node), turn
            )
            return
        if play.again:
            playback.seek(0)
            self._outbox.put(Back(0))
        stop = playback.run(
            play.breaks, lambda record: self._played(playback, record, turn, play.quick)
        )
        self._report_stop(playback, stop, turn)

    def _played(
        self, playback: Playback, record: StepRecord, turn: int, quick: bool
    ) -> bool:
        """Wait after a step as the speed requires, handling commands meanwhile. False ends the movement."""
        self._outbox.step(record)
        return self._turn == turn and (quick or self._rest(playback, turn))

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
            self._outbox.put(Back(playback.position))
        while playback.position < position and self._turn == turn:
            record = playback.step()
            if record is None:
                break
            self._outbox.step(record)
        reason = (
            "end"
            if playback.next_node is None
            else "node"
            if playback.position == position
            else "cancelled"
        )
        self._report_stop(
            playback, Stop(reason, playback.position, playback.next_node), turn
        )

    def _report_stop(self, playback: Playback, stop: Stop, turn: int) -> None:
        arriving, fan_ins = playback.waiting()
        self._outbox.put(
            MovementEnded(
                stop, turn, playback.stored_bytes, playback.edits, arriving, fan_ins
            )
        )

    def _handle_command(self, playback: Playback, request: Any) -> None:
        """Handle a command that does not move the position."""
        if isinstance(request, InspectGradient):
            self._outbox.put(
                GradientInspected(
                    request,
                    playback.inspect(request.node, request.output_nr, request.at),
                )
            )
            return
        if isinstance(request, UndoEdit):
            playback.undo_edit()
        else:
            playback.edit(request.node, request.output_nr, _change(playback, request))
        self._report_stop(
            playback, Stop("edited", playback.position, playback.next_node), -1
        )


def _change(playback: Playback, request: Edit) -> Any:
    """Apply an edit; return it, or the gradient with one value replaced."""
    if request.kind != "value":
        return GradEdit(request.kind, request.amount, seed=playback.position)
    gradient = playback.gradient(request.node, request.output_nr)
    if gradient is None:
        raise ValueError(
            f"No gradient has arrived at node {request.node} yet. Step to a position just before it."
        )
    changed = gradient.to_dense().clone()
    changed[request.index if request.index else ...] = request.amount
    return changed


def _tensors(graph: LiveGraph) -> list[Any]:
    """List tensors that must be freed with the graph."""
    model = graph.model
    return [
        *graph.ends,
        *(module_tree.parameters(model) if model is not None else ()),
        *(module_tree.buffers(model) if model else ()),
    ]
