"""Connection to a watched script: commands over the socket that it listens on, answered between two of its steps."""

from __future__ import annotations

import json
import os
import socket
import stat
import struct
import threading
from concurrent.futures import Future
from pathlib import Path
from time import monotonic
from typing import Any

from app.engine.remote_control import RemoteRunError
from app.util import regular_files
from tapedeck import frames

PING_EVERY = 2.0  # seconds; a paused script resumes if it gets no ping for longer
CONNECTS = 2.0  # seconds
LONGEST = 1 << 20  # bytes of an answer
PORT_FILE = 70  # bytes: five digits, a blank and the secret


class ScriptLink:
    """Connected to the script whose frames lie in `folder`. Raises OSError.

    `send` may be called on any thread, `poll` on one. `ended` becomes True when the script is gone.
    """

    def __init__(self, folder: Path) -> None:
        self.ended = False
        self._lock = threading.Lock()
        self._count = 0
        self._waiting: dict[int, Future[dict[str, Any]]] = {}
        self._rest = b""
        self._pinged = monotonic()
        self._socket = connected(folder)
        self._ping = self.send("ping")

    def send(self, do: str, **fields: Any) -> Future[dict[str, Any]]:
        """Send a command; the future gets its answer, or RemoteRunError."""
        future: Future[dict[str, Any]] = Future()
        with self._lock:
            self._count += 1
            self._waiting[self._count] = future
            line = json.dumps({"do": do, "id": self._count} | fields).encode() + b"\n"
            try:
                self._socket.sendall(line)
                return future
            except BlockingIOError:  # the script has not read for hours
                del self._waiting[self._count]
                future.set_exception(
                    RemoteRunError("The script is busy, and reads no commands.")
                )
                return future
            except OSError:
                pass
        self._end()
        return future

    def poll(self) -> None:
        """Read pending answers, and send a ping."""
        if self.ended:
            return
        self._read()  # first: a ping that cannot be sent ends it, with the last answers unread
        if (
            not self.ended
            and self._ping.done()
            and monotonic() - self._pinged > PING_EVERY
        ):
            self._pinged = monotonic()
            self._ping = self.send("ping")

    def _read(self) -> None:
        try:
            while data := self._socket.recv(1 << 16):
                self._take(data)
                if len(self._rest) > LONGEST:
                    break
            self._end()
        except BlockingIOError:
            pass
        except OSError:
            self._end()

    def _take(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            try:
                answer = json.loads(line)
                future = self._waiting.pop(answer["id"], None)
            except (ValueError, TypeError, KeyError):
                continue
            if future is not None and future.set_running_or_notify_cancel():
                if "error" in answer:
                    future.set_exception(RemoteRunError(str(answer["error"])))
                else:
                    future.set_result(answer)

    def close(self) -> None:
        """Disconnect: the script continues if it was paused from here."""
        self._end()

    def _end(self) -> None:
        self.ended = True
        with self._lock:
            waiting, self._waiting = list(self._waiting.values()), {}
        self._socket.close()
        for future in waiting:
            if future.set_running_or_notify_cancel():
                future.set_exception(RemoteRunError("The script has ended."))


def connected(folder: Path) -> socket.socket:
    """Connect to the script whose frames lie in a folder, without waiting from then on. Raises OSError.

    It listens on a socket of this user in that folder, whatever its frames say; where there are no Unix sockets, on the
    port of this machine that a private file there names.
    """
    if hasattr(socket, "AF_UNIX"):
        connection = _connected_socket(frames.socket_path(folder))
    else:
        port, _, secret = regular_files.read_private(
            folder / frames.PORT, PORT_FILE + 1
        ).partition(b" ")
        if len(port) + 1 + len(secret) != PORT_FILE or not port.isdigit():
            raise ConnectionError(f"{folder / frames.PORT} does not name a port")
        connection = socket.create_connection(("127.0.0.1", int(port)), CONNECTS)
        connection.sendall(secret + b"\n")
    connection.setblocking(False)
    return connection


def _connected_socket(path: Path) -> socket.socket:
    """Connect to a Unix socket behind which a process of the same user is. Raises OSError."""
    status = os.lstat(path)
    if (
        not stat.S_ISSOCK(status.st_mode)
        or status.st_uid != os.geteuid()
        or stat.S_IMODE(status.st_mode) & 0o077
    ):
        raise PermissionError(f"{path} is no private socket of yours")
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(CONNECTS)
    try:
        connection.connect(str(path))
        if hasattr(socket, "SO_PEERCRED"):  # it may have been replaced by a link
            _pid, user, _group = struct.unpack(
                "3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
            )
            if user != os.geteuid():
                raise PermissionError(f"{path} belongs to another user")
    except OSError:
        connection.close()
        raise
    return connection
