"""`tapedeck run --on PLACE`, and the window on `PLACE:path/frames.jsonl`."""

from __future__ import annotations

import argparse
import json
import os
import queue
import secrets
import shlex
import subprocess
import sys
import threading
import time
from pathlib import Path, PurePosixPath
from typing import Any

from app import __version__
from app.cli import console
from app.cli.run_command import open_window
from app.features.places import values
from app.features.places.line import KeptLine, Line, parsed, state_of
from app.features.places.values import Place, PlaceError
from app.util import interrupts
from app.util.resources import PROGRAM, python_path
from tapedeck import frames

OUTPUT, COMMANDS, ERRORS = 1, 2, 3  # channels
FILES = {OUTPUT: "output.txt", ERRORS: "errors.txt"}
EVERY = 0.05  # seconds between two looks at what is typed
PINGS = 2.0  # seconds; a script that is held goes on without them
STEERING = "pause, resume, step, lr 0.01, save, stop"
CANCEL = "cancel"  # the job of a queue
SIGNALLED = (
    128  # a shell's exit status of a process that a signal ended, and its number
)
_mirrors: list[subprocess.Popen[str]] = []  # they end with this process


def run(options: argparse.Namespace) -> int:
    """Run a script at a place with this terminal as its own; return its exit status."""
    if options.capture is not None or options.python != sys.executable:
        raise console.CommandError(
            "--on PLACE takes neither --capture nor --python: the place has its own Python, and the window captures"
        )
    name, folder = values.split(options.on)
    place = values.named(name)
    name_there = (
        options.script if options.module else PurePosixPath(options.script).stem
    )
    request = {
        "title": title_of(name_there),
        "cwd": folder if place.ssh else os.path.abspath(folder),
        "module": options.module,
        "script": options.script,
        "arguments": options.arguments,
    }
    return Terminal(place, request, options.window, options.quiet).run()


def title_of(name: str) -> str:
    """Return the name of the folder of one script, which no other has."""
    return frames.folder_title(name) + secrets.token_hex(4)


def frames_here(text: str) -> str:
    """Return the file here that the frames of PLACE:path are copied into, as long as this process lives; any other text
    as it is. Raises PlaceError.
    """
    name, path = values.split(text)
    if len(name) < 2 or not path or Path(text).exists():
        return text
    place = values.named(name)
    mirror = subprocess.Popen(
        [sys.executable, "-m", f"{PROGRAM}.features.places.mirror", place.name, path],
        env={**os.environ, "PYTHONPATH": python_path()},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    _mirrors.append(mirror)
    assert mirror.stdout is not None
    message = parsed(mirror.stdout.readline().encode() or b"{}")
    if "frames" not in message:
        raise PlaceError(str(message.get("error", "the line has ended")))
    return str(message["frames"])


class Terminal:
    """Shows what a script at a place prints, and sends there what is typed. `folder` has its frames there."""

    def __init__(
        self, place: Place, request: dict[str, Any], window: bool, quiet: bool
    ) -> None:
        self._place, self._window, self._quiet = place, window, quiet
        self._request = {"version": __version__, **place.request(), **request}
        self._steering = f"{STEERING}, {CANCEL}" if place.slurm else STEERING
        self._state = ""  # of its job, in a sentence
        self.folder = ""
        self.ended = False
        watched = request.get("watched", True)
        self._offsets = dict.fromkeys([OUTPUT] if watched else FILES, 0)
        self._going_on = set(self._offsets)
        self._ending: dict[str, Any] = {}
        self._joined = self._holds = False
        self._typed: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._pinged = 0.0

    def run(self) -> int:
        """Follow the script until it ends. Raises PlaceError."""
        connection = KeptLine(self._place, self._begin, console.warn)
        try:
            self._introduce()
            while True:
                self._steer(connection.line)
                for channel, data in connection.messages(EVERY):
                    if channel in self._offsets:
                        self._show(channel, data)
                    elif channel == COMMANDS:
                        self._report(data)
                    elif (message := parsed(data)).get("closed") in self._offsets:
                        self._close(message)
                    else:
                        self._heed(message)
                if not self._going_on:
                    return self._ended(self._ending)
        except KeyboardInterrupt:
            console.warn(f"the script goes on; tapedeck {self._frames} watches it")
            return interrupts.STATUS
        finally:
            connection.close()

    @property
    def _frames(self) -> str:
        path = f"{self._place.name}:{self.folder}/{frames.FRAMES}"
        return shlex.quote(path)

    def _begin(self, line: Line) -> None:
        """Start the script, once, and ask for what has not come of its output."""
        if not self.folder:
            self.folder = str(line.ask("start", **self._request)["folder"])
        self._going_on = set(self._offsets)
        for channel, offset in self._offsets.items():
            path = f"{self.folder}/{FILES[channel]}"
            line.request("follow", channel=channel, path=path, offset=offset)
        self._joined = False
        if self._holds:
            self._send(line, {"do": "pause"})

    def _show(self, channel: int, data: bytes) -> None:
        """Print what the script has printed."""
        self._offsets[channel] += len(data)
        stream = (sys.stdout if channel == OUTPUT else sys.stderr).buffer
        stream.write(data)
        stream.flush()

    def _close(self, message: dict[str, Any]) -> None:
        """Note that nothing comes on a channel any more."""
        self._going_on.discard(message["closed"])
        if message["closed"] == OUTPUT:
            self._ending = message

    def _introduce(self) -> None:
        if self._window:
            open_window(f"{self._place.name}:{self.folder}/{frames.FRAMES}")
        watched = self._request.get("watched", True)
        typed = watched and sys.stdin is not None and sys.stdin.isatty()
        if typed:
            threading.Thread(target=self._read, daemon=True, name="typed").start()
        if not self._quiet:
            console.warn(f"watched in {self._frames}")
            if typed:
                console.warn(f"type {self._steering}; Ctrl+C leaves it, and it goes on")

    def _read(self) -> None:
        for text in sys.stdin:
            self._typed.put(text.strip())

    def _steer(self, line: Line) -> None:
        """Send what was typed."""
        while not self._typed.empty():
            if text := self._typed.get():
                command = command_of(text)
                if text == CANCEL and self._place.slurm:
                    line.request("cancel", folder=self.folder)
                elif command is None:
                    console.warn(f"{text} is no command; there are {self._steering}")
                else:
                    self._holds = command["do"] in ("pause", "step")
                    self._send(line, {"id": text, **command})
        if self._joined and time.monotonic() - self._pinged > PINGS:
            self._pinged = time.monotonic()
            self._send(line, {"do": "ping"})

    def _send(self, line: Line, command: dict[str, Any]) -> None:
        if not self._joined:
            self._joined = True
            line.request("join", channel=COMMANDS, folder=self.folder)
        line.send(COMMANDS, json.dumps(command).encode() + b"\n")

    def _heed(self, message: dict[str, Any]) -> None:
        """Say what the far end says of the job, and of what it could not do."""
        if (job := message.get("job")) and (state := state_of(job)) != self._state:
            self._state = state
            console.warn(state)
        if message.get("closed") == COMMANDS:
            self._joined = self._holds = False
        if error := message.get("error"):
            console.warn(str(error))

    def _report(self, data: bytes) -> None:
        """Print what became of what was typed."""
        for answer in map(parsed, data.splitlines()):
            if text := answer.get("id"):
                step = f"at step {answer['step']}" if "step" in answer else "done"
                console.warn(
                    f"{text}: {answer.get('error') or answer.get('path') or step}"
                )

    def _ended(self, message: dict[str, Any]) -> int:
        """Return the exit status of the script. Raises PlaceError."""
        self.ended = True
        status = message.get("status")
        if status is None:
            reason = message.get("error") or self._state
            reason = reason or "was the machine started again?"
            raise PlaceError(f"The script has left no exit status: {reason}")
        if int(status) > SIGNALLED:
            console.warn(f"the script was ended by signal {int(status) - SIGNALLED}")
        return int(status)


def command_of(text: str) -> dict[str, Any] | None:
    """Return the command to a script that a line of text is, None of any other text.

    >>> command_of("lr 0.01"), command_of("stop"), command_of("lr fast")
    ({'do': 'rate', 'rate': 0.01}, {'do': 'interrupt'}, None)
    """
    match text.split():
        case ["pause" | "resume" | "step" | "save" as do]:
            return {"do": do}
        case ["stop"]:
            return {"do": "interrupt"}
        case ["lr", rate]:
            try:
                return {"do": "rate", "rate": float(rate)}
            except ValueError:
                return None
    return None
