"""Capture a step of a watched script without a window: the script is paused while its graph is described and played."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from app.autograd.playback.steps import PassResult
from app.engine.protocol import Handle
from app.engine.remote_control import RemoteRunError
from app.engine.requests.capture import CapturedStep, HeldStep
from app.engine.requests.playback import RecordRequest
from app.engine.watched.frame_types import script_of
from app.engine.watched.script_engine import ScriptEngine
from app.engine.watched.script_link import ScriptLink

HELD_HANDLE = 1  # the number of what the script's engine holds
BEGINS = 60.0  # seconds in which a script has begun its frames
LOOK_EVERY = 0.05  # seconds


class HeadlessStep(Struct, frozen=True):
    """A captured step, and its playback if requested. `stopped` says why the playback ended early."""

    step: int
    script: str
    captured: CapturedStep
    played: PassResult | None = None
    stopped: str = ""


@contextmanager
def held_step(frames: Path, step: int, play: bool) -> Iterator[HeadlessStep]:
    """Hold a script before the first backward of a step, from 1, for as long as the `with` block lasts.

    Raises RemoteRunError if the script ends before, has passed that step, or cannot describe it; OSError if it cannot
    be reached.
    """
    _wait_for_script(frames)
    link = ScriptLink(frames.parent)
    ended = threading.Event()
    polling = threading.Thread(
        target=_poll, args=(link, ended), name="answers of a script", daemon=True
    )
    polling.start()
    engine: ScriptEngine | None = None
    try:
        answer = link.send("capture", step=step).result()
        paused_step = HeldStep(
            Handle(HELD_HANDLE, 1), str(answer["script"]), int(answer["step"])
        )
        engine = ScriptEngine(frames.parent)
        captured = engine.ask(paused_step).result()
        if play:
            passed = engine.ask(RecordRequest(paused_step)).result()
            played, stopped = PassResult(passed.steps.records), passed.stopped
            yield HeadlessStep(
                paused_step.step, paused_step.script, captured, played, stopped
            )
        else:
            yield HeadlessStep(paused_step.step, paused_step.script, captured)
    finally:
        if engine is not None:
            engine.close()  # which resumes the script
        ended.set()
        polling.join()
        link.close()


def _poll(link: ScriptLink, ended: threading.Event) -> None:
    """Read the answers of a script, and ping it: without pings it resumes."""
    while not ended.wait(LOOK_EVERY):
        link.poll()


def _wait_for_script(frames: Path) -> None:
    """Wait for the first frame of a script, which may just be starting. Raises RemoteRunError."""
    until = time.monotonic() + BEGINS
    while time.monotonic() < until:
        if script_of(frames) is not None:
            return
        time.sleep(LOOK_EVERY)
    raise RemoteRunError("The script did not start.")
