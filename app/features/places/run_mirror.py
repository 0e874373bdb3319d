"""Carries out a run of the project at a place: starts its script, copies its frames, and fetches its checkpoints.

A process of its own, `python -m app.features.places.run_mirror`: the first line of its stdin is a `RunAtPlace`. It
ends with the run, or with its stdin, and what runs there goes on. The window follows the frames here; those of the
script know of no epochs, so that what `train.py --json` prints of them is put in between.

At a queue the script is a job, which may be ended and started again, and then goes on from its newest checkpoint.
"""

from __future__ import annotations

import json
import re
import shlex
import sys
import threading
from collections import deque
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec

from app import __version__
from app.features.places.line import Line
from app.features.places.mirror import Mirror, end_with_stdin
from app.features.places.results import fetch
from app.features.places.values import (
    CHECKPOINTS,
    SCRIPT,
    PlaceError,
    RunAtPlace,
    checkpoint_of,
    named,
)
from app.util import atomic
from tapedeck import frames
from tapedeck.commands import Client

FRAMES, OUTPUT = 1, 2  # channels; those of clients come after them
ARGUMENTS = ("--json", "--device", "auto", "--checkpoints", CHECKPOINTS)
# What a script prints that its frames do not say, or say with a time of their own.
_PRINTED = ("epoch", "losses")
_STEP = re.compile(rb'"epoch": 1, "steps?": (\d{1,15})\b')
CURE = "Correct it there, or run on this machine."
CANCELLED = "Its job in the queue was cancelled."
_QUEUED = ("PENDING", "REQUEUED")  # states of a job that waits


class RunMirror(Mirror):
    """The frames of a run that is started at a place. Raises PlaceError, OSError."""

    def __init__(self, run: RunAtPlace) -> None:
        self._run, self._there, self._checked = run, run.there, False
        self._printed_offset, self._printed_rest = 0, b""
        self._script_start: dict[str, Any] = {}
        self._introduced = self._stops = False
        self._cancels = 0  # the number of the request that cancels the job
        self._batches = 0  # of an epoch, 0 if unknown
        self._early: deque[bytes] = deque()  # frames before the script's own start
        # Lines that train.py prints of epochs, by step and event: those to write, and those written. After a resume
        # from an earlier step they are printed again.
        self._epochs: dict[tuple[int, str], bytes] = {}
        self._told: dict[tuple[int, str], bytes] = {}
        self._ending = b""
        self._last_text = ""
        self._place = named(run.place)
        super().__init__(self._place, PurePosixPath(), Path(run.folder))
        self._channels = OUTPUT

    def _begin(self, line: Line) -> None:
        """Start the script, once, and ask for what has not come of its output. Raises PlaceError."""
        self._cancels = 0
        if self._there:
            self._check(line)
        else:
            answer = line.ask(
                "start",
                version=__version__,
                title=self._run.title,
                cwd="",
                module=False,
                script=SCRIPT,
                arguments=[*ARGUMENTS, *self._resuming],
                environment=_environment(self._run),
                files=self._run.files,
                **self._place.request(),
            )
            self._there = str(answer["folder"])
            self._note()
        self._path = PurePosixPath(self._there, frames.FRAMES)
        if self._place.slurm and not self._offset:
            # The job may be pending for days: with this event the window takes Stop until the script starts.
            script = frames.Script([SCRIPT], 0, commands=True)
            self._write(frames.line_of(script).encode() + b"\n")
        super()._begin(line)
        path, offset = f"{self._there}/output.txt", self._printed_offset
        line.request("follow", channel=OUTPUT, path=path, offset=offset)

    @property
    def _resuming(self) -> list[str]:
        """The arguments that resume from the newest checkpoint, at each start of the script."""
        resumes = self._place.slurm or checkpoint_of(self._run.step) in self._run.files
        return ["--resume", CHECKPOINTS] if resumes else []

    def _introduce(self) -> None:
        """Write a notice, once, that closing the window does not end the run."""
        if self._introduced:
            return
        self._introduced = True
        address = shlex.quote(f"{self._run.place}:{self._path}")
        self._say(
            f"It runs at {self._run.place}, and goes on without this window: tapedeck {address} watches it too."
        )

    def _check(self, line: Line) -> None:
        """See that a run that was left is there still. Raises PlaceError."""
        if not self._checked and not line.ask("list", folder=self._there)["files"]:
            self._run.note.unlink(missing_ok=True)
            raise PlaceError(
                f"There is no {self._there} any more at {self._run.place}."
            )
        self._checked = True

    def _note(self) -> None:
        """Leave where the run goes on, for a window that comes later."""
        if self._run.results:
            left = msgspec.structs.replace(self._run, files={}, there=self._there)
            atomic.write_bytes(left.note, msgspec.json.encode(left))

    def _copy(self, lines: bytes) -> None:
        """Write frames of the script, its end excepted, which is told when all has come."""
        for line in lines.splitlines(keepends=True):
            event = _fields(line).get("event")
            if event in ("finished", "failed"):
                self._ending = line
            elif event == "script":
                self._ending = b""
                self._write(line)
                self._introduce()
            else:
                self._early.append(line)
                self._tell_early()
        self._tell_epochs()

    def _command(self, client: Client, command: dict[str, Any]) -> None:
        """Have a script that is stopped leave a checkpoint behind."""
        if command.get("do") == "interrupt":
            self._stops = command["saves"] = True
        super()._command(client, command)

    def _take_other(self, channel: int, data: bytes) -> None:
        """Read what the script prints."""
        if channel != OUTPUT:
            return
        self._printed_offset += len(data)
        *lines, self._printed_rest = (self._printed_rest + data).split(b"\n")
        for line in lines:
            fields = _fields(line)
            event = fields.get("event")
            if event == "started":
                self._script_start = fields
                self._tell_early()
            elif event in _PRINTED:
                key = int(fields.get("step", 0)), str(event)
                if key not in self._told:
                    self._epochs[key] = line + b"\n"
                self._tell_epochs()
            elif not event and line.strip():
                self._last_text = line.decode("utf-8", "replace").strip()

    def _tell_early(self) -> None:
        """Write the frames that waited for the script's start, with the epochs that their steps are of."""
        while self._early and self._script_start:
            line = self._early.popleft()
            start = _fields(line)
            if start.get("event") == "started":
                self._tell_start(start)
            else:
                self._write(self._at_epoch(line))

    def _tell_start(self, hook_start: dict[str, Any]) -> None:
        """Write the event `started`, merged from that of the hooks and that of train.py.

        Epochs after the step that it resumes from are written again.
        """
        step = hook_start.get("resumed_at", 0)
        start = {**hook_start, **self._script_start, "resumed_at": step}
        size, count = start.get("batch_size"), start.get("train_count")
        self._batches = -(-count // size) if size and count else 0
        self._write(json.dumps(start).encode() + b"\n")
        again = {key: line for key, line in self._told.items() if key[0] > step}
        self._told = {key: line for key, line in self._told.items() if key[0] <= step}
        self._epochs = {**again, **self._epochs}

    def _tell_epochs(self, all_of_them: bool = False) -> None:
        """Tell of the epochs whose steps have been told."""
        while self._epochs and self._script_start:
            key = next(iter(self._epochs))
            if key[0] > self._step and not all_of_them:
                return
            self._told[key] = self._epochs.pop(key)
            self._write(self._told[key])

    def _heed(self, message: dict[str, Any]) -> None:
        channel = message.get("closed")
        if self._cancels and message.get("id") == self._cancels:
            self._cancels = 0
            if "error" in message:
                self._say(f"Its job was not cancelled: {message['error']}")
            return
        if message.get("job", {}).get("state") in _QUEUED and self._stops:
            self._cancel()
        if channel in self._joined and self._joined[channel].raw is None:
            if self._place.slurm:
                self._wait(channel)
            if "error" in message and self._stops:
                self._cancel()
            return  # it is closed after the end is told: without a script, its end is not waited for
        if channel != OUTPUT:
            super()._heed(message)
            return
        self._ended = True
        self._fetch()
        self._run.note.unlink(missing_ok=True)
        self._tell_epochs(all_of_them=True)
        self._write(self._last_frame(message.get("status")))

    def _cancel(self) -> None:
        """Have the queue cancel the job, whose script has not begun, or waits to go on."""
        if not self._cancels:
            self._cancels = self._kept.line.request("cancel", folder=self._there)

    def _over(self) -> None:
        """Leave the end of a job to that of its output."""

    def _fetch(self) -> None:
        """Bring what the frames lack and the checkpoints; what stands in the way is said, and ends nothing."""
        rest, results = self.folder / "rest.jsonl", self._run.results

        def target(name: str) -> Path | None:
            path = PurePosixPath(name)
            if name == frames.FRAMES:
                return rest
            wanted = path.parent.name == CHECKPOINTS and path.suffix == ".pt"
            made_there = name != checkpoint_of(self._run.step)
            return (
                Path(results, path.name) if wanted and made_there and results else None
            )

        try:
            fetched = fetch(self._kept.line.place, self._there, target)
        except (PlaceError, OSError) as error:
            self._say(f"What the run left in {self._there} was not fetched: {error}")
            return
        if fetched.pop(frames.FRAMES, None) is not None:
            self._append(rest.read_bytes()[self._offset :])
            rest.unlink()
        for path in sorted(fetched.values()):
            saved = frames.Saved(self._step, str(path), "")
            self._write(frames.line_of(saved).encode() + b"\n")

    def _at_epoch(self, line: bytes) -> bytes:
        """Return a frame of a script with the epoch of its step: a script knows of one."""
        step = _STEP.search(line)
        if not step or not self._batches:
            return line
        epoch = (max(int(step[1]), 1) - 1) // self._batches + 1
        return line.replace(b'"epoch": 1', b'"epoch": %d' % epoch, 1)

    def _last_frame(self, status: int | None) -> bytes:
        """Return the frame by which the run ends; that it was stopped from here needs no reason."""
        ending = _fields(self._ending)
        if self._stops and status == frames.TRY_AGAIN and ending:
            ending["note"] = ""
            self._ending = json.dumps(ending).encode() + b"\n"
        elif self._place.slurm and not ending and self._is_stopped(status):
            note = "" if self._stops and status else CANCELLED
            stopped = frames.Finished("stopped", 1, self._step, note)
            self._ending = frames.line_of(stopped).encode() + b"\n"
        return self._at_epoch(self._ending) or self._failure(status)

    def _is_stopped(self, status: int | None) -> bool:
        """Return whether a job is over that has saved a checkpoint, or was cancelled from here before it did."""
        return status == frames.TRY_AGAIN or (self._stops and status is None)

    def _failure(self, status: int | None) -> bytes:
        """Return the frame of a script that has ended without a word."""
        reason = self._last_text or self._state or "it has left no exit status"
        ended = "ended" if status is None else f"ended with {status}"
        message = f"The script at {self._run.place} {ended}: {reason}"
        epoch = min(self._step, 1)
        failed = frames.Failed("data", message, CURE, None, epoch, self._step)
        return frames.line_of(failed).encode() + b"\n"


def _environment(run: RunAtPlace) -> dict[str, str]:
    """Return what the script's frames have to know of the steps before it."""
    return {frames.RESUMED: f"{run.step} {run.seconds}"} if run.step else {}


def _fail(run: RunAtPlace, reason: str, step: int) -> None:
    """Tell who watches why there is nothing more. Raises OSError."""
    frame = frames.Failed("data", reason, CURE, None, min(step, 1), step)
    with Path(run.folder, frames.FRAMES).open("ab") as file:
        file.write(frames.line_of(frame).encode() + b"\n")


def _fields(line: bytes) -> dict[str, Any]:
    """Return the JSON object that a line is, nothing of any other line."""
    if not line.startswith(b"{"):
        return {}
    try:
        return msgspec.json.decode(line, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return {}


def main() -> int:
    """Carry out the run that stdin names."""
    run = msgspec.json.decode(sys.stdin.buffer.readline(), type=RunAtPlace)
    threading.Thread(target=end_with_stdin, daemon=True).start()
    mirror: RunMirror | None = None
    try:
        mirror = RunMirror(run)
        mirror.run()
    except (PlaceError, OSError) as error:
        with suppress(OSError):
            _fail(run, str(error), mirror.step if mirror else 0)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
