"""A proxy on loopback that passes a line on, and cuts it, halves what it carries, or holds it up."""

from __future__ import annotations

import socket
import struct
import threading
import time
from contextlib import suppress


class CutProxy:
    """Passes connections to `port` of loopback on to `target`, until it is told otherwise."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._lock = threading.Lock()
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._halves = threading.Event()
        self._late_until = 0.0
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Reset all connections, as a machine that forgets them."""
        with self._lock:
            pairs, self._pairs = self._pairs, []
        for pair in pairs:
            for end in pair:
                with suppress(OSError):
                    linger = struct.pack("ii", 1, 0)
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                    end.shutdown(socket.SHUT_RDWR)
                end.close()

    def halve(self) -> None:
        """Pass on half of what comes next, and cut the line there."""
        self._halves.set()

    def delay(self, seconds: float) -> None:
        """Hold everything up for some time."""
        self._late_until = time.monotonic() + seconds

    def close(self) -> None:
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
                far = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                return
            with self._lock:
                self._pairs.append((near, far))
            for reads, writes in ((near, far), (far, near)):
                threading.Thread(
                    target=self._pass_on, args=(reads, writes), daemon=True
                ).start()

    def _pass_on(self, reads: socket.socket, writes: socket.socket) -> None:
        with suppress(OSError):
            while data := reads.recv(1 << 14):
                while (late := self._late_until - time.monotonic()) > 0:
                    time.sleep(late)
                if self._halves.is_set() and len(data) > 1:
                    self._halves.clear()
                    writes.sendall(data[: len(data) // 2])
                    self.cut()
                    return
                writes.sendall(data)
            writes.shutdown(socket.SHUT_WR)
