"""Client of the engine in a watched script, while the script is paused before the captured backward."""

from __future__ import annotations

import io
import json
import socket
import subprocess
import threading
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from app.engine.own_engine import OwnEngine
from app.engine.watched.script_link import LONGEST, connected

ANSWERS = 10.0  # seconds in which the script opens its engine
WENT_ON = "went on"


class _Connection:
    """A connection in the place of a process: `kill` closes it, and nothing else."""

    def __init__(self, folder: Path) -> None:
        self.pid = 0  # of no process that is to be measured or ended from here
        self.returncode: int | None = None
        self._ended = threading.Event()
        self._socket = connected(folder)
        self._socket.settimeout(ANSWERS)
        try:
            self._socket.sendall(b'{"do": "engine", "id": 0}\n')
            answer = json.loads(self._line())
        except (OSError, ValueError) as error:
            self._socket.close()
            raise ConnectionError(f"the script does not answer: {error}") from error
        if "error" in answer:
            self._socket.close()
            raise ConnectionError(str(answer["error"]))
        self._socket.settimeout(None)
        self._writes = self._socket.makefile("wb")
        self._reads = self._socket.makefile("rb")
        self.stdin: IO[bytes] | None = self._writes
        self.stdout: IO[bytes] | None = _Reader(self._reads, self._close)  # type: ignore[assignment]
        self.stderr: IO[bytes] | None = io.BytesIO()

    def _line(self) -> bytes:
        """Read one line, without reading ahead."""
        line = b""
        while not line.endswith(b"\n"):
            byte = self._socket.recv(1)
            if not byte or len(line) > LONGEST:
                raise ConnectionError("the connection was closed")
            line += byte
        return line

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if not self._ended.wait(timeout):
            raise subprocess.TimeoutExpired("the script", timeout or 0.0)
        return 0

    def kill(self) -> None:
        """Close the connection, which resumes the script."""
        self._close()

    def _close(self) -> None:
        self.returncode = 0
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # the script has closed it
        self._socket.close()
        for file in (self._reads, self._writes):  # the socket is open for as long
            with suppress(OSError):  # what was not sent is not waited for
                file.close()
        self._ended.set()


class _Reader:
    """Reads the file of a socket, and reports its end."""

    def __init__(self, file: IO[bytes], ended: Any) -> None:
        self._file, self._end = file, ended

    def read(self, count: int) -> bytes:
        try:
            data = self._file.read(count)
        except (OSError, ValueError):  # another thread has closed it
            data = b""
        if len(data) < count:
            self._end()
        return data


class ScriptEngine(OwnEngine):
    """Requests about the step at which the script whose frames lie in `folder` is paused.

    Raises OSError if it is unreachable.

    It ends when the script resumes; closing it resumes the script.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(lambda: _Connection(folder))

    def how_it_ended(self) -> str:
        return WENT_ON

    def close(self) -> None:
        """Close the connection."""
        self.kill()
        self._closed = True
        self._outbox.put(None)
        self._writer.join(10.0)

    def _death_message(self, how: str) -> str:
        return "The script has continued or ended."
