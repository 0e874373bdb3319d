"""Engine in a watched script: answers requests on the thread that is paused before its backward."""

from __future__ import annotations

import queue
import socket
from typing import Any, cast

from app.engine import protocol
from app.engine.channel import Channel
from app.engine.protocol import Request, ToEngine
from app.engine.server import Context, Server

HANDLE = 1  # the id of the captured graph


class StepServer(Server):
    """Answers requests about `held` over a connection, on the thread that calls `serve`."""

    def __init__(self, connection: socket.socket, held: Any) -> None:
        self._connection = connection
        reads, writes = connection.makefile("rb"), connection.makefile("wb")
        super().__init__(Channel(reads, writes, cast("type[Any]", ToEngine)))
        self._asked: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._lanes[protocol.MAIN] = self._asked
        self._things[HANDLE], self._keepers[HANDLE] = held, 0

    def serve(self) -> None:
        """Answer until the other end closes, or `leave` is called."""
        try:
            self._greet()
            self._work(self._asked)
        except OSError:
            return  # the other end closed it before it was greeted
        finally:
            self.leave()

    def leave(self) -> None:
        """Cancel the running request after its step, and close the connection. Thread-safe."""
        try:
            self._connection.shutdown(
                socket.SHUT_RDWR
            )  # which the thread that listens notices
        except OSError:
            pass  # the other end has closed it
        self._connection.close()

    def _complain(self, error: Exception) -> None:
        """Keep silent: the terminal is the script's."""

    def _client_gone(self, _patience: float, _status: int) -> None:
        self._asked.put(None)

    def _unheard(self) -> None:
        """Say nothing: the thread that listens notices too."""

    def _lane(self, name: str) -> queue.SimpleQueue[Any]:
        return self._asked

    def _overtake(self, number: int, context: Context) -> None:
        """Leave it: the graph belongs to one thread."""

    def _is_on_main(self, request: Request[Any]) -> bool:
        return True  # Ctrl+C in the script's terminal is the script's

    def _rest(self) -> None:
        """Leave the collector and the threads as the script has them."""
