"""Copies the frames of a script at a place into a folder here, and takes there what is commanded here.

A process of its own, `python -m app.features.places.mirror PLACE PATH`: it says on stdout, as one line of JSON, which
file of frames it writes, or why there is none, and ends with its stdin. The window follows that file and commands the
script through the socket beside it, as it does with every script of this machine.
"""

from __future__ import annotations

import json
import os
import re
import socket
import sys
import threading
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any

from app.features.places.line import KeptLine, Line, parsed, state_of
from app.features.places.values import Place, PlaceError, named
from tapedeck import frames
from tapedeck.commands import Client, CommandSocket

FRAMES = 1  # the channel of the frames; those of clients come after it
EVERY = 0.05  # seconds between two looks at what is commanded
LONGEST = 1 << 26  # bytes of a line
_STEP = re.compile(rb'"step": (\d{1,15})\b')
_PAUSED, _RESUMED = b'{"event": "paused"', b'{"event": "resumed"'
_ENDS = b'{"event": "finished"', b'{"event": "failed"'
_WAITS = "The script takes no commands now: its job waits in the queue, or has ended."
STARTS_PAUSED = "It pauses after its first step."
HOLDS, RELEASES = {"pause", "step"}, {"resume", "interrupt", "release", "capture"}


class _Joined:
    """A client here, joined to the script there by a channel."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.waiting: dict[Any, str] = {}  # commands without an answer, by number
        self.holds = False
        self.rest = b""
        self.raw: socket.socket | None = None  # since it is one to the script's engine


class Mirror:
    """The frames of `path` at a place, in a folder here. Raises PlaceError, OSError."""

    def __init__(self, place: Place, path: PurePosixPath, folder: Path) -> None:
        self._path = path
        self.folder = folder
        self.frames = self.folder / frames.FRAMES
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_BINARY", 0)
        self._file = os.open(self.frames, flags, 0o600)
        self._socket = CommandSocket(self.folder)
        self._offset, self._rest, self._step, self._paused = 0, b"", 0, False
        self._joined: dict[int, _Joined] = {}
        self._channels = FRAMES
        self._ended = False
        self._finished = False
        self._state = ""  # of the job that the script is, "" of any other script
        self._kept = KeptLine(place, self._begin, self._say)

    def run(self) -> None:
        """Copy until the line is refused for good. Raises PlaceError, OSError."""
        while not self._ended:
            for client, command in self._socket.poll():
                self._command(client, command)
            self._drop_gone()
            for channel, data in self._kept.messages(EVERY):
                if channel == 0:
                    self._heed(parsed(data))
                elif channel == FRAMES:
                    self._append(data)
                elif channel in self._joined:
                    self._answer(self._joined[channel], data)
                else:
                    self._take_other(channel, data)
                if self._ended:
                    return  # what a queue says of the job's end comes later

    @property
    def step(self) -> int:
        """The newest step that was copied."""
        return self._step

    def _begin(self, line: Line) -> None:
        """Ask a new line for what has not come, and join the clients again; what they paused stays so."""
        path = str(self._path)
        line.request("follow", channel=FRAMES, path=path, offset=self._offset)
        for channel, joined in list(self._joined.items()):
            if joined.raw is not None:
                self._leave(channel)
                continue
            joined.rest = b""
            for number in joined.waiting:
                cut = (
                    "The line was cut before the script answered; it may have done it."
                )
                joined.client.answer(number, error=cut)
            joined.waiting.clear()
            self._join(line, channel)
            if joined.holds and self._paused:
                line.send(channel, b'{"do": "pause"}\n')

    def _join(self, line: Line, channel: int) -> None:
        line.request("join", channel=channel, folder=str(self._path.parent))

    def _append(self, data: bytes) -> None:
        """Write the lines that are complete. Raises OSError."""
        self._offset += len(data)
        complete, end, self._rest = (self._rest + data).rpartition(b"\n")
        if len(self._rest) > LONGEST:
            raise PlaceError(
                f"{self._path} has a line of more than {LONGEST >> 20} MiB"
            )
        if end:
            steps = _STEP.findall(complete[-4096:])
            self._step = int(steps[-1]) if steps else self._step
            paused, resumed = (complete.rfind(event) for event in (_PAUSED, _RESUMED))
            self._paused = paused > resumed or (self._paused and paused == resumed)
            self._finished = complete[complete.rfind(b"\n") + 1 :].startswith(_ENDS)
            self._copy(complete + end)

    def _copy(self, lines: bytes) -> None:
        """Write complete lines of the script's frames. Raises OSError."""
        self._write(lines)

    def _take_other(self, channel: int, data: bytes) -> None:
        """Handle what comes on another channel; what was sent to a client that has left is dropped."""

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._file, view) :]

    def _say(self, sentence: str) -> None:
        """Tell who watches, by a frame of our own between those of the script."""
        self._write(frames.line_of(frames.Said(self._step, sentence)).encode() + b"\n")

    def fail(self, reason: str) -> None:
        """Tell who watches why there is nothing more. Raises OSError."""
        cure = "The script goes on if it has not ended; open its frames again."
        epoch = min(self._step, 1)
        frame = frames.Failed("data", reason, cure, None, epoch, self._step)
        self._write(frames.line_of(frame).encode() + b"\n")

    def _drop_gone(self) -> None:
        """Leave the script for clients that have left: what they paused goes on."""
        for channel, joined in list(self._joined.items()):
            if not joined.client.open and joined.raw is None:
                del self._joined[channel]
                self._kept.line.send(channel, b"")

    def _command(self, client: Client, command: dict[str, Any]) -> None:
        """Send a command of a client here to the script there."""
        line = self._kept.line
        channel = next((k for k, j in self._joined.items() if j.client is client), 0)
        if not channel:
            channel = self._channels = self._channels + 1
            self._joined[channel] = _Joined(client)
            self._join(line, channel)
        joined, do = self._joined[channel], command.get("do")
        joined.holds = do in HOLDS or (joined.holds and do not in RELEASES)
        if do == "engine":
            joined.raw = self._socket.detach(client)
            copying = (joined.raw, line, channel)
            threading.Thread(target=_forward, args=copying, daemon=True).start()
        else:
            joined.waiting[command.get("id")] = str(do)
        line.send(channel, json.dumps(command).encode() + b"\n")

    def _answer(self, joined: _Joined, data: bytes) -> None:
        """Give a client here what the script there answers."""
        if joined.raw is not None:
            try:
                joined.raw.sendall(data)
            except OSError:
                pass  # it is gone, which its thread says
            return
        *lines, joined.rest = (joined.rest + data).split(b"\n")
        if len(joined.rest) > LONGEST:
            raise PlaceError("an answer of the script is too long")
        for line in lines:
            answer = parsed(line)
            number = answer.pop("id", None)
            if number in joined.waiting:
                del joined.waiting[number]
                joined.client.answer(number, **answer)

    def _heed(self, message: dict[str, Any]) -> None:
        """Read what the far end says of itself, and of a job. Raises PlaceError."""
        channel = message.get("closed")
        if (job := message.get("job")) and (state := state_of(job)) != self._state:
            self._state = state
            self._say(state)
        if channel == FRAMES and "error" not in message:
            self._over()
        elif channel == FRAMES or (channel is None and "error" in message):
            raise PlaceError(str(message.get("error")))
        elif channel is not None and self._state and not self._finished:
            self._wait(channel)
        elif channel is not None:
            self._leave(channel)

    def _over(self) -> None:
        """End with a job that is over. Raises PlaceError if the script did not say so."""
        for channel in list(self._joined):
            self._leave(channel)
        if not self._finished:
            raise PlaceError(f"{self._state} Its script has not said how it ended.")

    def _wait(self, channel: int) -> None:
        """Keep a client of a script whose job may be started again; its commands are refused until then."""
        joined = self._joined.get(channel)
        if joined is None or joined.raw is not None:
            self._leave(channel)
            return
        for number, do in joined.waiting.items():
            if do in HOLDS:
                self._hold()
                joined.client.answer(number, ok=True)
            else:
                joined.client.answer(number, error=_WAITS)
        joined.waiting.clear()
        del self._joined[channel]  # its next command joins it again

    def _hold(self) -> None:
        """Have a job begin paused; who asked for it pauses it again, once it has begun."""
        self._kept.line.request("hold", folder=str(self._path.parent))
        self._say(f"{self._state} {STARTS_PAUSED}".strip())

    def _leave(self, channel: int) -> None:
        """Close a client's connection: the script there is gone, or has closed it."""
        joined = self._joined.pop(channel, None)
        if joined is None:
            return
        joined.client.open = False  # which the next poll drops
        if joined.raw is not None:
            try:
                joined.raw.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # the client has closed it


def _forward(connection: socket.socket, line: Line, channel: int) -> None:
    """Send what a connection says on a channel, and an empty message at its end."""
    try:
        while data := connection.recv(1 << 16):
            line.send(channel, data)
    except OSError:
        pass  # closed by the other thread
    line.send(channel, b"")
    connection.close()


def end_with_stdin() -> None:
    """End this process once its stdin does."""
    while os.read(0, 1 << 10):
        pass
    os._exit(0)


def main(name: str, path: str) -> int:
    """Mirror a file of frames until stdin ends."""
    threading.Thread(target=end_with_stdin, daemon=True).start()
    try:
        script = PurePosixPath(path)
        folder = frames.new_folder(f"{frames.script_of(script)}-{name}")
        mirror = Mirror(named(name), script, folder)
        print(json.dumps({"frames": str(mirror.frames)}), flush=True)
    except (PlaceError, OSError) as error:
        print(json.dumps({"error": str(error)}), flush=True)
        return 1
    try:
        mirror.run()
    except (PlaceError, OSError) as error:
        with suppress(OSError):
            mirror.fail(str(error))
    return 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
