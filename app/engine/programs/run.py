"""The process of a run, an entry of `app.engine.entries`. A job comes in by stdin; events go out by stdout."""

from __future__ import annotations

import faulthandler
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.engine.codec import decode, encode
from app.engine.frames import Broken, Mark, Pipe, packed
from app.telemetry.ring import Ring
from app.training.control import Control, RunEnded
from app.training.events import Event, StepDone
from app.util import tensor_files

if TYPE_CHECKING:
    from app.training.monitoring.live_model import Live

EVERY = 0.05  # seconds between two batches of events
LEFT_ALONE = 10.0  # seconds that a run may take to end when nobody listens any more


def main() -> None:
    pipe = _take_pipes()
    faulthandler.enable()
    frames = pipe.frames()
    first = next(frames, None)
    if first is None:  # nobody wants a run any more
        return
    _, raw, options = first
    job = decode(raw)

    from app.source import layer_files

    for sha256 in options["trusted"]:
        layer_files.allow(sha256, tried=True)
    control, ready = Control(), threading.Event()
    listener = threading.Thread(target=_listen, args=(frames, control, pipe, ready), name="commands", daemon=True)
    listener.start()
    ready.wait()  # what was said before there was anybody to hear it, such as "step", holds from the first batch on
    outbox, mark = _Outbox(pipe), Mark(Path(options["mark"]))

    from app.training.loop import train

    folder, resume = (Path(path) if path else None for path in (options["folder"], options["resume"]))
    for event in train(job, control, threads=options["threads"], folder=folder, resume=resume):
        outbox.put(event)
        if type(event) is StepDone:
            mark.set(event.epoch, event.step)
    outbox.close()
    result = control.result
    assert result is not None
    path = options["weights"] if result.state_dict is not None else ""
    if result.state_dict is not None:
        tensor_files.save(result.state_dict, Path(path))
    pipe.send("result", result.ending, result.epoch, result.step, path)
    # Threads of a layer of a person's own, and destructors of native code, are not waited for.
    sys.stderr.flush()
    os._exit(0)


def _take_pipes() -> Pipe:
    """stdin and stdout for ourselves; whatever a layer prints goes to stderr."""
    reads, writes = os.dup(0), os.dup(1)
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.dup2(2, 1)
    return Pipe(os.fdopen(reads, "rb"), os.fdopen(writes, "wb"))


def _listen(frames: Any, control: Control, pipe: Pipe, ready: threading.Event) -> None:
    """Do what is asked for, until there is nobody who could ask."""
    plain: dict[str, Callable[[], None]] = {
        "pause": control.pause, "resume": control.resume, "step": control.step, "stop": control.stop,
        "ready": ready.set,
    }  # fmt: skip
    try:
        for kind, *values in frames:
            if kind in plain:
                plain[kind]()
            elif kind == "watch":
                control.watch = decode(values[0])
            else:
                number, what = values
                order = _WriteWeights(what) if kind == "weights" else decode(what)
                control.call(order).add_done_callback(partial(_answer, pipe, number))
    except (OSError, Broken):
        pass
    control.stop()
    ready.set()
    timer = threading.Timer(LEFT_ALONE, os._exit, (1,))
    timer.daemon = True
    timer.start()


@dataclass(frozen=True)
class _WriteWeights:
    """Leave a copy of the weights in a file."""

    path: str

    def __call__(self, live: Live) -> None:
        tensor_files.save(live.weights(), Path(self.path))


def _answer(pipe: Pipe, number: int, done: Future[Any]) -> None:
    error = done.exception()
    value = None
    if error is None:
        try:
            value = encode(done.result())
        except ValueError as raised:  # who asked would wait for ever
            error = raised
    problem = "" if error is None else str(error) or type(error).__name__
    pipe.send("answer", number, value, problem, isinstance(error, RunEnded))


class _Outbox:
    """Sends what the loop tells, in batches on a thread of its own: the loop appends to a queue and goes on."""

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe
        self._ring: Ring[Event] = Ring()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="events", daemon=True)
        self._thread.start()
        self.put = self._ring.append

    def _run(self) -> None:
        while not self._closing.wait(EVERY):
            self._send()
        self._send()

    def _send(self) -> None:
        events = self._ring.drain()
        if events:
            self._pipe.send("events", packed(events))

    def close(self) -> None:
        """Send the rest."""
        self._closing.set()
        self._thread.join()
