"""Carries out a run of the project at a place: starts its script, copies its frames, and fetches its checkpoints.

A process of its own, `python -m app.features.places.run_mirror`: the first line of its stdin is a `RunAtPlace`. It
ends with the run, or with its stdin, and what runs there goes on. The window follows the frames here; those of the
script know of no epochs, so that what `train.py --json` prints of them is put in between.
"""

from __future__ import annotations

import json
import re
import shlex
import sys
import threading
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec

from app import __version__
from app.features.places.line import Line
from app.features.places.mirror import Mirror, end_with_stdin
from app.features.places.results import fetch
from app.features.places.values import RESUMED, SCRIPT, PlaceError, RunAtPlace, named
from app.util import atomic
from tapedeck import frames
from tapedeck.commands import Client

FRAMES, OUTPUT = 1, 2  # channels; those of clients come after them
CHECKPOINTS = "checkpoints"
ARGUMENTS = ("--json", "--device", "auto", "--checkpoints", CHECKPOINTS)
# What a script prints that its frames do not say, or say with a time of their own.
_PRINTED = ("epoch", "losses")
_STEP = re.compile(rb'"epoch": 1, "steps?": (\d{1,15})\b')
CURE = "Correct it there, or run on this machine."


class RunMirror(Mirror):
    """The frames of a run that is started at a place. Raises PlaceError, OSError."""

    def __init__(self, run: RunAtPlace) -> None:
        self._run, self._there, self._checked = run, run.there, False
        self._printed_offset, self._printed_rest = 0, b""
        self._hook_start: dict[str, Any] = {}
        self._script_start: dict[str, Any] = {}
        self._started = self._stops = False
        self._batches = 0  # of an epoch, 0 if unknown
        self._early: list[bytes] = []  # frames before the run's start is told whole
        self._epochs: list[tuple[int, bytes]] = []  # with the steps that they end with
        self._ending = b""
        self._last_text = ""
        super().__init__(named(run.place), PurePosixPath(), Path(run.folder))
        self._channels = OUTPUT

    def _begin(self, line: Line) -> None:
        """Start the script, once, and ask for what has not come of its output. Raises PlaceError."""
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
                arguments=[*ARGUMENTS, *_resuming(self._run)],
                environment=_environment(self._run),
                files=self._run.files,
            )
            self._there = str(answer["folder"])
            self._note()
        self._path = PurePosixPath(self._there, frames.FRAMES)
        super()._begin(line)
        path, offset = f"{self._there}/output.txt", self._printed_offset
        line.request("follow", channel=OUTPUT, path=path, offset=offset)

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
            if event == "started":
                self._hook_start = _fields(line)
                self._tell_start()
            elif event in ("finished", "failed"):
                self._ending = line
            elif event == "script":
                self._write(line)
                self._say(
                    f"It runs at {self._run.place}, and goes on without this window: tapedeck "
                    f"{shlex.quote(f'{self._run.place}:{self._path}')} watches it too."
                )
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
                self._tell_start()
            elif event in _PRINTED:
                self._epochs.append((int(fields.get("step", 0)), line + b"\n"))
                self._tell_epochs()
            elif not event and line.strip():
                self._last_text = line.decode("utf-8", "replace").strip()

    def _tell_start(self) -> None:
        """Tell how the run starts once the script and its hooks have both said it."""
        if self._started or not self._hook_start or not self._script_start:
            return
        self._started = True
        start = {**self._hook_start, **self._script_start}
        size, count = start.get("batch_size"), start.get("train_count")
        self._batches = -(-count // size) if size and count else 0
        self._write(json.dumps(start).encode() + b"\n")
        self._tell_early()

    def _tell_early(self) -> None:
        """Write the frames that waited for the start, with the epochs that their steps are of."""
        while self._early and self._started:
            self._write(self._at_epoch(self._early.pop(0)))

    def _tell_epochs(self, all_of_them: bool = False) -> None:
        """Tell of the epochs whose steps have been told."""
        while self._epochs and self._started:
            step, line = self._epochs[0]
            if step > self._step and not all_of_them:
                return
            self._write(line)
            del self._epochs[0]

    def _heed(self, message: dict[str, Any]) -> None:
        channel = message.get("closed")
        if channel in self._joined and self._joined[channel].raw is None:
            return  # it is closed after the end is told: without a script, its end is not waited for
        if channel != OUTPUT:
            super()._heed(message)
            return
        self._ended = True
        self._fetch()
        self._run.note.unlink(missing_ok=True)
        self._tell_epochs(all_of_them=True)
        self._write(self._last_frame(message.get("status")))

    def _fetch(self) -> None:
        """Bring what the frames lack and the checkpoints; what stands in the way is said, and ends nothing."""
        rest, results = self.folder / "rest.jsonl", self._run.results

        def target(name: str) -> Path | None:
            path = PurePosixPath(name)
            if name == frames.FRAMES:
                return rest
            wanted = path.parent.name == CHECKPOINTS and path.suffix == ".pt"
            return Path(results, path.name) if wanted and results else None

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
        return self._at_epoch(self._ending) or self._failure(status)

    def _failure(self, status: int | None) -> bytes:
        """Return the frame of a script that has ended without a word."""
        reason = self._last_text or "it has left no exit status"
        message = f"The script at {self._run.place} ended with {status}: {reason}"
        epoch = min(self._step, 1)
        failed = frames.Failed("data", message, CURE, None, epoch, self._step)
        return frames.line_of(failed).encode() + b"\n"


def _resuming(run: RunAtPlace) -> list[str]:
    """Return the arguments by which a script goes on from its checkpoint."""
    return ["--resume", RESUMED] if RESUMED in run.files else []


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
