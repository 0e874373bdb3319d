"""A line to a place: the system's ssh, with `tapedeck.place` at its far end; taken up again when it is cut.

To the queue of this machine it is a shell in the place of ssh.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import queue
import shlex
import signal
import struct
import subprocess
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, Any
from uuid import uuid4

import msgspec

import tapedeck
from app.features.places.values import Place, PlaceError

PYTHON = (3, 11)  # the oldest that runs the package
HEAD = struct.Struct(">II")  # a channel and a length
MOST = 1 << 20  # bytes of a message
GREETS = 30.0  # seconds in which a Python there says its version
ANSWERS = 180.0  # seconds in which a request is answered; torch may be imported first
PINGS = 10.0  # seconds between two signs of life, without which the far end ends
AT_ONCE = 64  # messages
RETRIES = (0.2, 2.0)  # seconds between two tries, at first and at most
MOST_SAID = 1 << 13  # bytes of what ssh says

# For any Python, and for any shell: no ' and no !.
_STUB = (
    "import sys;i=getattr(sys.stdin,'buffer',sys.stdin);o=getattr(sys.stdout,'buffer',sys.stdout);"
    "o.write(('\\n%s %d.%d\\n'%((sys.argv[1],)+tuple(sys.version_info[:2]))).encode());o.flush();"
    "n=i.readline();n and exec(i.read(int(n)))"
).replace("'", '"')

_CURES = (
    (
        "Could not resolve hostname",
        "{ssh} is neither a Host of ~/.ssh/config nor a name that resolves. Correct it: tapedeck places add {name} "
        "--ssh ALIAS",
        False,
    ),
    (
        "REMOTE HOST IDENTIFICATION HAS CHANGED",
        "The key of {ssh} is another than before: it was set up again, or somebody is in between. Ask who runs it, "
        "then remove the old key: ssh-keygen -R HOST",
        True,
    ),
    (
        "Host key verification failed",
        "The key of {ssh} is not known here. Run ssh {ssh} once in a terminal, and compare the key that it shows",
        True,
    ),
    (
        "Permission denied",
        "{ssh} asks for a passphrase or a password, or does not know your key. Load the key first (ssh-add), or bring "
        "it there (ssh-copy-id {ssh})",
        True,
    ),
    (
        "Too many authentication failures",
        "{ssh} was offered too many keys. Name its own in ~/.ssh/config: IdentityFile, IdentitiesOnly yes",
        True,
    ),
    (
        "",
        "{ssh} cannot be reached: {said}. Is it up, and does ssh {ssh} work in a terminal?",
        False,
    ),
)
# Exit statuses: of ssh, of a shell there without the command, of one whose command was killed, from this number on.
SSH_FAILED, NOT_FOUND, KILLED = 255, (126, 127), 128


def ssh_command(place: Place, remote: str) -> list[str]:
    """Return the command that runs `remote`, text for the shell there, with its stdin and stdout as the line.

    What a person's config says holds, but for what would stand in the way of the line: a terminal, a command of its
    own, forwarded ports (which the first of several connections has), questions.
    """
    if not place.ssh:
        return ["/bin/sh", "-c", remote]
    options = (
        "BatchMode=yes",
        "RequestTTY=no",
        "RemoteCommand=none",
        "ClearAllForwardings=yes",
        "LogLevel=ERROR",
        "ConnectTimeout=10",
        "ServerAliveInterval=5",
        "ServerAliveCountMax=3",
    )
    pairs = [part for option in options for part in ("-o", option)]
    return ["ssh", "-T", *pairs, "--", place.ssh, remote]


def remote_command(place: Place, marker: str) -> str:
    """Return the text for the shell there: the place's Python, which prints the marker and then waits for its code."""
    return f"{place.python} -c {shlex.quote(_STUB)} {marker}"


def package() -> tuple[str, bytes]:
    """Return the package `tapedeck` as a zip file, and a digest of it; without the program that a wheel has inside."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(Path(tapedeck.__file__).parent.glob("*.py")):
            name = zipfile.ZipInfo(f"tapedeck/{file.name}")
            archive.writestr(name, file.read_bytes(), zipfile.ZIP_DEFLATED)
    data = packed.getvalue()
    return hashlib.sha256(data).hexdigest()[:32], data


class Line:
    """A connection to a place. `arrived` has messages, each a channel and its data, then None at the end.

    Raises PlaceError if there is none. `send` may be called on any thread.
    """

    def __init__(self, place: Place) -> None:
        self.place = place
        self.arrived: queue.SimpleQueue[tuple[int, bytes] | None] = queue.SimpleQueue()
        self._sending, self._number = threading.Lock(), 0
        self._pinged = time.monotonic()
        self._marker, self._said, self._foreign = uuid4().hex, b"", ""
        command = ssh_command(place, remote_command(place, self._marker))
        try:
            # In a session of its own: Ctrl+C in this terminal is not for it.
            self._ssh = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            message = f"{command[0]} cannot be run here: {error.strerror or error}. Install an OpenSSH client."
            raise PlaceError(message) from error
        assert self._ssh.stdin and self._ssh.stdout and self._ssh.stderr
        self._writes: IO[bytes] = self._ssh.stdin
        self._threads = [
            threading.Thread(target=target, args=(pipe,), daemon=True, name="a line")
            for target, pipe in (
                (self._read, self._ssh.stdout),
                (self._listen, self._ssh.stderr),
            )
        ]
        for thread in self._threads:
            thread.start()
        try:
            self._greet()
        except BaseException:
            self.close()
            raise

    def _greet(self) -> None:
        """Have the package unpacked there and serve. Raises PlaceError."""
        version = tuple(map(int, self._next(GREETS)[1].split(b".")))
        if version < PYTHON:
            name, needed = ".".join(map(str, version)), ".".join(map(str, PYTHON))
            raise PlaceError(
                f"Python {name} at {self.place.name} is too old; name one of {needed} or later: "
                f"tapedeck places add {self.place.name} {self.place.options} --python COMMAND"
            )
        digest, data = package()
        code = Path(tapedeck.__file__).with_name("bootstrap.py").read_bytes()
        code += f"\nbegin({digest!r}, {len(data)})\n".encode()
        self._write(b"%d\n" % len(code) + code + data)
        self._checked(parsed(self._next(ANSWERS)[1]))

    def request(self, do: str, **fields: Any) -> int:
        """Send a request; return the number that its answer has."""
        self._number += 1
        self.send(0, json.dumps({"id": self._number, "do": do, **fields}).encode())
        return self._number

    def ask(self, do: str, **fields: Any) -> dict[str, Any]:
        """Send a request before all others, and return its answer. Raises PlaceError."""
        self.request(do, **fields)
        return self._checked(parsed(self._next(ANSWERS)[1]))

    def keep_alive(self) -> None:
        """Send a sign of life if one is due, in between whatever arrives."""
        if time.monotonic() - self._pinged > PINGS:
            self._pinged = time.monotonic()
            self.request("ping")

    def send(self, channel: int, data: bytes) -> None:
        """Send a message; one that is sent as the line is cut is lost."""
        self._write(HEAD.pack(channel, len(data)) + data)

    def close(self) -> None:
        """End ssh, and with it the far end."""
        self._kill()
        for thread in self._threads:
            thread.join()
        with self._sending:
            try:
                self._writes.close()
            except OSError:
                pass  # what had not been sent is lost with the line
        self._ssh.wait()

    def _kill(self) -> None:
        """End ssh; of a line without it, the shell and all that it began."""
        if self.place.ssh:
            self._ssh.kill()
            return
        with suppress(ProcessLookupError):
            os.killpg(self._ssh.pid, signal.SIGKILL)

    def _write(self, data: bytes) -> None:
        with self._sending:
            try:
                self._writes.write(data)
                self._writes.flush()
            except (OSError, ValueError):
                self._kill()  # the end of the line is read where messages are

    def _checked(self, answer: dict[str, Any]) -> dict[str, Any]:
        """Return an answer. Raises PlaceError for a refusal."""
        if "error" not in answer:
            return answer
        message = f"{self.place.name}: {answer['error']}"
        if answer.get("errno") in (28, 122):  # ENOSPC, EDQUOT
            message += ". The disk there is full: make room, or set XDG_CACHE_HOME and XDG_STATE_HOME there"
        raise PlaceError(message)

    def _next(self, seconds: float) -> tuple[int, bytes]:
        """Return the next message. Raises PlaceError."""
        try:
            message = self.arrived.get(timeout=seconds)
        except queue.Empty:
            raise PlaceError(
                f"{self.place.name} has not answered for {seconds:.0f} s. Does {self.place.python} begin a Python "
                "there, and does ssh work in a terminal?",
                final=False,
            ) from None
        if message is None:
            raise self.reason()
        return message

    def reason(self) -> PlaceError:
        """Return why the line has ended."""
        self._ssh.wait()
        self._threads[1].join()
        place, status = self.place, self._ssh.returncode
        said = self._said.decode("utf-8", "replace")
        line = next(filter(None, reversed(said.strip().splitlines())), "").strip()
        if self._foreign:
            return PlaceError(f"{place.name} sends {self._foreign}")
        if status in NOT_FOUND:
            return PlaceError(
                f"No Python at {place.name}: {line or place.python}. Name one: tapedeck places add {place.name} "
                f"{place.options} --python COMMAND"
            )
        if status != SSH_FAILED or not place.ssh:
            return PlaceError(
                f"{place.python} at {place.name} has ended with {status}: {line or 'it says nothing'}",
                final=0 < status < KILLED,
            )
        cure, final = next(
            (cure, final) for sign, cure, final in _CURES if sign in said
        )
        return PlaceError(
            cure.format(name=place.name, ssh=place.ssh, said=line or "no answer"), final
        )

    def _listen(self, pipe: IO[bytes]) -> None:
        while data := pipe.read1():  # type: ignore[attr-defined]
            self._said = (self._said + data)[-MOST_SAID:]
        pipe.close()

    def _read(self, pipe: IO[bytes]) -> None:
        """Read messages, the first of which is the version of the Python there."""
        try:
            version = self._past_the_marker(pipe)
            if version is None:
                return
            self.arrived.put((0, version))
            while len(head := pipe.read(HEAD.size)) == HEAD.size:
                channel, length = HEAD.unpack(head)
                if length > MOST:
                    self._foreign = (
                        f"a message of {length:,} bytes, which nothing of Tapedeck does"
                    )
                    self._kill()
                    return
                data = pipe.read(length)
                if len(data) < length:
                    return
                self.arrived.put((channel, data))
        finally:
            self.arrived.put(None)
            pipe.close()

    def _past_the_marker(self, pipe: IO[bytes]) -> bytes | None:
        """Skip what a shell prints as it begins; return the version after the marker, None where there is no marker."""
        marker = self._marker.encode() + b" "
        skipped = 0
        while (line := pipe.readline(MOST)) and skipped < MOST:
            skipped += len(line)
            if line.startswith(marker):
                return line[len(marker) :].strip()
        return None


def state_of(message: dict[str, Any]) -> str:
    """Return a sentence on the state of a job of which a place tells, "" where it is not known.

    >>> state_of({"job": "7", "state": "PENDING", "reason": "Resources", "start": "N/A"})
    'Job 7 waits in the queue (PENDING, Resources).'
    >>> state_of({"job": "7", "state": "RUNNING", "nodes": "n1", "end": "2026-11-30T02:00:00"})
    'Job 7 runs on n1, until 2026-11-30T02:00:00 at most.'
    """
    job, state = f"Job {message.get('job')}", message.get("state", "")
    reason, start, end = (message.get(n, "") for n in ("reason", "start", "end"))
    if state == "RUNNING":
        limit = f", until {end} at most" if end[:1].isdigit() else ""
        return f"{job} runs on {message.get('nodes', '')}{limit}."
    if state in ("PENDING", "REQUEUED"):
        likely = f", to start at {start}" if start[:1].isdigit() else ""
        return f"{job} waits in the queue ({state}, {reason}){likely}."
    return f"{job} is {state}." if state else ""


def parsed(data: bytes) -> dict[str, Any]:
    """Return the JSON object that a message is. Raises PlaceError."""
    try:
        return msgspec.json.decode(data, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise PlaceError(f"What came is no message of Tapedeck: {error}") from error


class KeptLine:
    """A line that is taken up again whenever it is cut.

    `begin` is called with each new one; `say` with a sentence once it is cut, and once it is back. Raises PlaceError if
    the first cannot be had, or if a later one is refused for good.
    """

    def __init__(
        self, place: Place, begin: Callable[[Line], None], say: Callable[[str], None]
    ) -> None:
        self._place, self._begin, self._say = place, begin, say
        self._line = self._begun()

    def _begun(self) -> Line:
        """Return a new line that has begun. Raises PlaceError."""
        line = Line(self._place)
        try:
            self._begin(line)
        except BaseException:
            line.close()
            raise
        return line

    @property
    def line(self) -> Line:
        """The line of now; what is sent while it is cut is lost."""
        return self._line

    def messages(self, timeout: float) -> Iterator[tuple[int, bytes]]:
        """Yield what arrives within a time, and what came until then, AT_ONCE messages at most. Raises PlaceError."""
        self._line.keep_alive()
        for _ in range(AT_ONCE):
            try:
                message = self._line.arrived.get(timeout=timeout)
            except queue.Empty:
                return
            if message is None:
                self._take_up()
                return
            yield message
            timeout = 0.0

    def _take_up(self) -> None:
        """Connect again and again until it succeeds. Raises PlaceError."""
        cut, waits = self._line.reason(), RETRIES[0]
        self._line.close()
        self._say(
            f"The line to {self._place.name} is cut, and is taken up again; what runs there goes on."
        )
        while cut is not None and not cut.final:
            try:
                self._line = self._begun()
            except PlaceError as error:
                cut = error
                time.sleep(waits)
                waits = min(2 * waits, RETRIES[1])
            else:
                self._say(f"The line to {self._place.name} is back.")
                return
        raise cut

    def close(self) -> None:
        """End the line; what it has started goes on."""
        self._line.close()
