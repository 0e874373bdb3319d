"""The main program of an engine: requests in, answers out. Each lane has a thread that answers one after another."""

from __future__ import annotations

import faulthandler
import itertools
import os
import queue
import sys
import threading
import time
import traceback
from collections.abc import Callable
from importlib import import_module
from typing import Any, TypeVar, cast

from app.builder.catalog import custom
from app.engine import protocol
from app.engine.channel import Channel, ChannelError, take_standard_streams
from app.engine.protocol import Handle, Request, ToEngine
from app.engine.values import Codec, NotAValueError
from app.source import layer_files
from app.util import gc_pause, processors

R = TypeVar("R", bound=Request[Any])

_HANDLERS: dict[type, Callable[[Any, Context], Any]] = {}


def handles(
    kind: type[R],
) -> Callable[[Callable[[R, Context], Any]], Callable[[R, Context], Any]]:
    """Decorate the function of `app.engine.tasks` that answers requests of a class."""

    def register(function: Callable[[R, Context], Any]) -> Callable[[R, Context], Any]:
        _HANDLERS[kind] = function
        return function

    return register


class Context:
    """The interface of a handler to its client. `inbox` receives messages of a running request."""

    def __init__(self, server: Server, number: int, left_alone: float = 0.0) -> None:
        self._server, self._number, self.left_alone = server, number, left_alone
        self.inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._cancelled = threading.Event()
        self.overtakes, self.overtaken = (
            "",
            False,
        )  # the lane that may continue without it, and whether it did

    def progress(self, value: Any) -> None:
        """Report progress before the answer; from any thread."""
        if not self._cancelled.is_set():
            self._server.send(protocol.Progress, self._number, value)

    def cancelled(self) -> bool:
        """Return whether the request was cancelled."""
        return self._cancelled.is_set()

    def cancel(self) -> None:
        """Cancel the request; a handler that waits for its inbox gets None."""
        self._cancelled.set()
        self.inbox.put(None)

    @property
    def count(self) -> int:
        """Return the number of kept objects."""
        return self._server.count

    def keep(self, thing: Any) -> Handle:
        """Keep something alive under a handle until the window releases it."""
        return self._server.keep(thing, self._number)

    def object_of(self, handle: Handle) -> Any:
        """Return the object of a handle. Raises HandleLostError."""
        return self._server.object_of(handle)


class Server:
    """Answers requests from a channel until the other end closes it, with a thread for each lane but one."""

    def __init__(self, channel: Channel[Any]) -> None:
        self._channel, self._engine = channel, 0
        self._codec = Codec(1)
        self._lanes: dict[str, queue.SimpleQueue[Any]] = {}
        self._open: dict[int, Context] = {}
        self._things: dict[int, Any] = {}
        self._changing = threading.Lock()  # guards which thread serves a lane
        self._keepers: dict[int, int] = {}  # which question keeps each of them
        self._counter = itertools.count(1)
        self._load = processors.Load()

    def run(self) -> None:
        """Run requests of the main lane on this thread; exits the process when the client is gone."""
        lane = self._lanes[protocol.MAIN] = queue.SimpleQueue()
        self._greet()
        self._work(lane)

    def _greet(self) -> None:
        """Say hello, and listen on a thread."""
        self._channel.send(protocol.Hello(protocol.VERSION, os.getpid()))
        threading.Thread(target=self._listen, name="messages", daemon=True).start()

    def _listen(self) -> None:
        status = 0
        try:
            for message in self._channel.messages():
                self._receive(message)
        except (OSError, ChannelError, NotAValueError) as error:
            self._complain(error)
            status = 2
        left = tuple(self._open.values())
        for context in left:
            context.cancel()
        self._client_gone(
            max((context.left_alone for context in left), default=0.0), status
        )

    def _complain(self, error: Exception) -> None:
        """Report a message that cannot be read."""
        print(f"engine: {error}", file=sys.stderr)
        sys.stderr.flush()

    def _client_gone(self, patience: float, status: int) -> None:
        """End the process. Handlers that end within `patience` seconds find no client, and end it themselves."""
        time.sleep(patience)
        os._exit(status)  # lanes that still compute are not waited for

    def _receive(self, message: Any) -> None:
        if isinstance(message, protocol.Ask):
            request = None
            gc_pause.begin()  # until the answer is sent, if it is prompt
            try:
                request = self._codec.decode(message.generation, message.body)
            finally:
                if request is None or not request.prompt:
                    gc_pause.end()
            context = self._open[message.number] = Context(
                self, message.number, request.left_alone
            )
            self._lane(message.lane).put((message.number, request, context))
        elif isinstance(message, protocol.Send):
            value = self._codec.decode(message.generation, message.body)
            if (running := self._open.get(message.number)) is not None:
                running.inbox.put(value)
        elif isinstance(message, protocol.Cancel):
            if (running := self._open.get(message.number)) is not None:
                running.cancel()
                self._overtake(message.number, running)
            self._forget(message.number)
        elif isinstance(message, protocol.Release):
            self._things.pop(message.handle, None)
            self._keepers.pop(message.handle, None)
        elif isinstance(message, protocol.Begin):
            self._engine = message.engine
        elif isinstance(message, protocol.Trust):
            layer_files.trust_only(message.allowed, message.tried)
            custom.set_reasons(message.reasons)
        elif isinstance(message, protocol.Renew):
            self._codec.renewed(message.generation)

    def _lane(self, name: str) -> queue.SimpleQueue[Any]:
        """Return the queue of a lane, with a thread that works through it."""
        if name not in self._lanes:
            self._lanes[name] = queue.SimpleQueue()
            self._begin(name)
        return self._lanes[name]

    def _begin(self, lane: str) -> None:
        threading.Thread(
            target=self._work, args=(self._lanes[lane],), name=lane, daemon=True
        ).start()

    def _overtake(self, number: int, context: Context) -> None:
        """Let another thread take over a lane whose thread is busy with a cancelled request."""
        with self._changing:
            if context.overtakes and not context.overtaken and number in self._open:
                context.overtaken = True
                self._begin(context.overtakes)

    def _work(self, lane: queue.SimpleQueue[Any]) -> None:
        while True:
            queued = lane.get()
            if queued is None:
                return
            number, request, context = queued
            with self._changing:
                pending = not context.cancelled()
                context.overtakes = (
                    request.lane if pending and request.overtaken else ""
                )
            if pending:
                self._answer(number, request, context)
            with self._changing:
                self._open.pop(number, None)
            if context.cancelled():
                self._forget(number)
            overtaken = context.overtaken
            if request.prompt:
                gc_pause.end()
            del queued, request, context
            self._rest()
            if overtaken:
                return

    def _rest(self) -> None:
        """Tidy up after a request."""
        gc_pause.freeze_new_modules()

    def _leave_processors(self) -> None:
        """Have torch's operations on this thread share the processors that nobody else keeps busy."""
        torch = sys.modules.get("torch")
        count = processors.free_threads(self._load)
        if torch is not None and torch.get_num_threads() != count:
            torch.set_num_threads(count)

    def _answer(self, number: int, request: Request[Any], context: Context) -> None:
        try:
            self._leave_processors()
            answer = _handler(type(request))(request, context)
            self.send(protocol.Answer, number, answer, len(self._things))
        except BaseException as error:  # raised in the client
            if self._is_on_main(request) and not isinstance(error, Exception):
                raise  # user code has ended this process; the client sees the status
            trace = (
                traceback.format_exc()
                .encode("utf-8", "backslashreplace")
                .decode("utf-8")
            )
            self.send(protocol.Failure, number, error, trace, len(self._things))

    def send(
        self, kind: Callable[..., protocol.Message], number: int, value: Any, *rest: Any
    ) -> None:
        with self._codec.lock:
            generation, body = self._codec.encode(value)
            try:
                self._channel.send(kind(number, generation, body, *rest))
            except ChannelError:
                self._codec.take_back()
                raise
            except (OSError, ValueError):
                self._unheard()

    def _is_on_main(self, request: Request[Any]) -> bool:
        return type(request).lane == protocol.MAIN

    def _unheard(self) -> None:
        """Handle that the client is gone."""
        os._exit(0)

    @property
    def count(self) -> int:
        return len(self._things)

    def keep(self, thing: Any, question: int) -> Handle:
        number = next(self._counter)
        self._things[number], self._keepers[number] = thing, question
        return Handle(number, self._engine)

    def _forget(self, question: int) -> None:
        """Release the objects that a cancelled request kept, also if its answer was sent already."""
        for number, keeper in tuple(self._keepers.items()):
            if keeper == question:
                self._things.pop(number, None)
                self._keepers.pop(number, None)

    def object_of(self, handle: Handle) -> Any:
        try:
            return self._things[handle.number]
        except KeyError:
            raise protocol.HandleLostError(
                "The requested object was released."
            ) from None


def _handler(kind: type) -> Callable[[Any, Context], Any]:
    if kind not in _HANDLERS:
        import_module(_task_of(kind.__module__))
    return _HANDLERS[kind]


def _task_of(module: str) -> str:
    """Return the name of the module that answers the requests of a module.

    >>> _task_of("app.engine.requests.shapes"), _task_of("app.features.gradcheck.values")
    ('app.engine.tasks.shapes', 'app.features.gradcheck.task')
    """
    if module.endswith(".values"):
        return f"{module.removesuffix('.values')}.task"
    return module.replace(".requests.", ".tasks.", 1)


def main() -> None:
    """Answer on stdin and stdout until they are closed."""
    processors.limit_this_process()
    channel: Channel[Any] = take_standard_streams(cast("type[Any]", ToEngine))
    faulthandler.enable()
    Server(channel).run()
