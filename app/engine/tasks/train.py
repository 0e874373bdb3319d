"""Run training, and prepare it on several processes: handlers of `app.engine.requests.train`."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any

from app.engine.mark import Mark
from app.engine.requests.train import (
    Answered,
    Order,
    ResumeHint,
    RunCommand,
    SetWatchPoints,
    Train,
    Trained,
    WriteWeights,
)
from app.engine.server import Context, handles
from app.engine.values import NotAValueError
from app.telemetry.ring import Ring
from app.training import loop
from app.training.checkpoints import checkpoint
from app.training.control import Control, RunEndedError
from app.training.events import (
    Cut,
    Event,
    Failed,
    Finished,
    Paused,
    Resumed,
    Started,
    StepDone,
)
from app.training.monitoring.live_model import LiveRun
from app.training.monitoring.watcher import Watcher
from app.training.ranks import Ranks
from app.util import processors, tensor_files

EVERY, BUSY = (
    0.05,
    0.5,
)  # seconds between two lists of events; the longer if the run uses every core
_AT_ONCE = (
    Started,
    Paused,
    Resumed,
    Cut,
    Finished,
    Failed,
)  # the user may wait for these


@handles(Train)
def train(request: Train, context: Context) -> Trained:
    control, mark = Control(), Mark(request.scratch / "mark")
    for command in request.said:
        _do(command, control, context)
    threading.Thread(
        target=_listen, args=(control, context), name="hands", daemon=True
    ).start()
    threads = (
        request.job.training.threads or request.threads or processors.usual_threads()
    )
    outbox = _Outbox(
        context.progress, EVERY if threads < processors.available() else BUSY
    )
    put, kind = outbox.put, StepDone
    own = request.ranks
    ranks = Ranks(own.rank, own.count, own.store) if own is not None else None
    follows = own is not None and own.rank > 0
    events = loop.train(
        request.job,
        control,
        threads=request.threads,
        folder=request.folder,
        resume=request.resume,
        watch=partial(Watcher, hash_share=request.hash_share),
        ranks=ranks,
    )
    for event in events:
        if follows and not isinstance(event, Failed):
            continue  # the first process tells the same
        put(event)
        if type(event) is kind:
            mark.set(event.epoch, event.step)
        elif isinstance(event, _AT_ONCE):
            outbox.hurry()
    outbox.close()
    result = control.result
    assert result is not None
    weights: Path | None = None
    if result.state_dict is not None and not follows:
        weights = request.scratch / "weights.pt"
        tensor_files.save(result.state_dict, weights)
    return Trained(result.ending, result.epoch, result.step, weights)


def _listen(control: Control, context: Context) -> None:
    """Execute commands from the inbox until it is closed."""
    while (command := context.inbox.get()) is not None:
        _do(command, control, context)
    control.stop()


def _do(
    command: RunCommand | SetWatchPoints | Order, control: Control, context: Context
) -> None:
    match command:
        case RunCommand():
            getattr(control, command.value)()
        case SetWatchPoints():
            control.pause_at(command.points)
        case Order():
            order = (
                partial(_write_weights, command.what.path)
                if isinstance(command.what, WriteWeights)
                else command.what
            )
            control.call(order).add_done_callback(
                partial(_answer, context, command.number)
            )


def _write_weights(path: Path, live: LiveRun) -> None:
    tensor_files.save(live.weights(), path)


def _answer(context: Context, number: int, done: Future[Any]) -> None:
    error = done.exception()
    if error is not None:
        sent_error = (
            error
            if isinstance(error, RunEndedError)
            else RuntimeError(str(error) or type(error).__name__)
        )
        context.progress(Answered(number, None, sent_error))
        return
    try:
        context.progress(Answered(number, done.result()))
    except NotAValueError as refused:  # otherwise the caller would wait forever
        context.progress(Answered(number, None, refused))


class _Outbox:
    """Sends events in batches from its own thread, so that the training loop only appends to a queue.

    Sends every `every` seconds: each list costs both processes a change of threads.
    """

    def __init__(self, tell: Callable[[list[Event]], None], every: float) -> None:
        self._tell, self._every = tell, every
        self._ring: Ring[Event] = Ring()
        self._wake = threading.Event()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="events", daemon=True)
        self._thread.start()
        self.put = self._ring.append

    def _run(self) -> None:
        while not self._closing:
            self._wake.wait(self._every)
            self._wake.clear()
            self._send()
        self._send()

    def _send(self) -> None:
        events = self._ring.drain()
        if events:
            self._tell(events)  # a list, so that neither end remembers it

    def hurry(self) -> None:
        """Send the events so far without waiting for the next time."""
        self._wake.set()

    def close(self) -> None:
        """Send the remaining events."""
        self._closing = True
        self._wake.set()
        self._thread.join()


@handles(ResumeHint)
def resume_hint(request: ResumeHint, _context: Context) -> str:
    return checkpoint.resume_hint(request.folder, request.resumed)
