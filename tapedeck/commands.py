"""Command server of a watched script: a Unix socket that only its owner can open, else loopback with a secret.

Nothing here waits, but in `wait`, and there is no thread: the script reads what has come between two of its steps. A
client sends lines of JSON, `{"do": "pause", "id": 1}`, and gets one line for each, `{"id": 1, "ok": true}`. One that
is silent for SILENCE seconds while it holds the script, or is gone, holds it no longer.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import os
import secrets
import selectors
import socket
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from time import monotonic
from typing import Any

from tapedeck import frames

SILENCE = 10.0  # seconds
LONGEST = 1 << 16  # bytes of a command, and of unread answers


class Client:
    """A connected client. `heard` is the time of its last message."""

    def __init__(self, connection: socket.socket, secret: str) -> None:
        self.socket, self.heard = connection, monotonic()
        self.open = True
        self.taken = False  # it is no longer one for commands
        self._secret = secret  # that it has to say first
        self._rest, self._unsent = b"", b""

    def lines(self) -> Iterator[bytes]:
        """Yield the complete received lines; none of a client without the secret."""
        try:
            while data := self.socket.recv(LONGEST):
                self._rest += data
                if len(self._rest) > LONGEST:
                    break
                self.heard = monotonic()
                *lines, self._rest = self._rest.split(b"\n")
                for line in lines:
                    if self._secret:
                        if not hmac.compare_digest(line, self._secret.encode()):
                            self.open = False
                            return
                        self._secret = ""
                    else:
                        yield line
                    if self.taken:
                        return
            self.open = False
        except BlockingIOError:
            pass
        except OSError:
            self.open = False

    def answer(self, number: Any, **fields: Any) -> None:
        """Send one line; a client that does not read is dropped."""
        self._unsent += json.dumps({"id": number} | fields).encode() + b"\n"
        self.send()

    def send(self) -> None:
        """Send pending bytes without blocking."""
        try:
            while self._unsent:
                self._unsent = self._unsent[self.socket.send(self._unsent) :]
        except BlockingIOError:
            self.open = self.open and len(self._unsent) <= LONGEST
        except OSError:
            self.open = False


class CommandSocket:
    """Listens for clients that know `folder`, that of the frames. Raises OSError."""

    def __init__(self, folder: Path) -> None:
        self.clients: list[Client] = []
        self._kept: list[tuple[Client, dict[str, Any]]] = []
        self._secret = ""
        self._file: Path  # the socket, or what says the port and the secret
        self._listener = self._bound(folder)
        self._listener.setblocking(False)
        self._listener.listen(4)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ, None)

    def _bound(self, folder: Path) -> socket.socket:
        if not hasattr(socket, "AF_UNIX"):
            return self._loopback(folder)
        self._file = path = frames.socket_path(folder)
        if path.parent != folder.resolve():
            path.parent.mkdir(mode=0o700, exist_ok=True)
            if not frames.is_private(path.parent):
                raise PermissionError(f"{path.parent} can be opened by another user")
        _remove_stale(path)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        before = os.umask(0o177)  # it is never open to others, not even until a chmod
        try:
            listener.bind(str(path))
        except OSError:
            listener.close()
            raise
        finally:
            os.umask(before)
        return listener

    def _loopback(self, folder: Path) -> socket.socket:
        self._secret = secrets.token_hex(32)
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.bind(("127.0.0.1", 0))
        self._file = folder / frames.PORT
        self._file.unlink(missing_ok=True)
        file = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        os.write(file, f"{listener.getsockname()[1]:05} {self._secret}".encode())
        os.close(file)
        return listener

    def poll(self, timeout: float = 0.0) -> Iterator[tuple[Client, dict[str, Any]]]:
        """Yield the commands received within `timeout` seconds, each with its client."""
        while self._kept:
            yield self._kept.pop(0)
        for key, _ in self._selector.select(timeout):
            client: Client | None = key.data or self._accepted()
            if client is None:
                continue
            for line in client.lines():
                try:
                    command = json.loads(line)
                except ValueError:
                    command = None
                if isinstance(command, dict):
                    yield client, command
                else:
                    client.answer(
                        None, error="A command must be a JSON object on one line."
                    )
        for client in [candidate for candidate in self.clients if not candidate.open]:
            self._drop(client)

    def keep(self, commands: Iterable[tuple[Client, dict[str, Any]]]) -> None:
        """Have the next `poll` yield commands again."""
        self._kept += commands

    def _accepted(self) -> Client | None:
        try:
            connection, _ = self._listener.accept()
        except OSError:
            return None
        if not _is_own(connection):
            connection.close()
            return None
        connection.setblocking(False)
        client = Client(connection, self._secret)
        self.clients.append(client)
        self._selector.register(connection, selectors.EVENT_READ, client)
        return client

    def detach(self, client: Client) -> socket.socket:
        """Detach the connection of a client, from which only lines were read."""
        client.taken = True
        self.clients.remove(client)
        self._selector.unregister(client.socket)
        client.socket.setblocking(True)
        return client.socket

    def _drop(self, client: Client) -> None:
        client.open = False
        self.clients.remove(client)
        with contextlib.suppress(OSError, KeyError, ValueError):
            self._selector.unregister(client.socket)
        client.socket.close()

    def close(self, remove: bool = True) -> None:
        """Close all connections; with `remove`, delete the socket's file too, which a forked process must not."""
        for client in list(self.clients):
            client.socket.close()
        self.clients.clear()
        with contextlib.suppress(OSError):
            self._selector.close()
        self._listener.close()
        if remove:
            with contextlib.suppress(OSError):
                os.unlink(self._file)
                if self._file.parent.parent == Path("/tmp"):
                    self._file.parent.rmdir()


def _remove_stale(path: Path) -> None:
    """Remove the socket of a process that was killed: nobody listens on it any more. Raises OSError."""
    if not path.is_socket():
        return
    with contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()


def _is_own(connection: socket.socket) -> bool:
    """Return whether the peer belongs to the same user, where the system reports it."""
    if not hasattr(socket, "SO_PEERCRED") or connection.family != getattr(
        socket, "AF_UNIX", None
    ):
        return True
    _pid, user, _group = struct.unpack(
        "3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    )
    return bool(user == os.geteuid())
