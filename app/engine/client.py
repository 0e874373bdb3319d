"""Ask an engine from another process: questions as futures, progress, cancelling, and a new engine when one ends.

Knows neither Qt nor torch. Futures are resolved on the thread that reads; callbacks must not block it.
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import queue
import subprocess
import threading
import time
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, InvalidStateError
from functools import cache
from pathlib import Path
from typing import IO, Any, TypeVar, cast

from app.builder.catalog import custom
from app.engine import child_process, pool, protocol
from app.engine.channel import LONGEST, Channel, ChannelError
from app.engine.protocol import (
    EngineDiedError,
    FromEngine,
    Handle,
    HandleLostError,
    Request,
)
from app.engine.values import Codec, NotAValueError, RemoteError
from app.source import layer_files

A = TypeVar("A")

# Bytes by which the memory of an engine that keeps nothing may grow before another takes its place.
GROWTH = 1 << 30
STOPPED = 60.0  # seconds for which an engine may be stopped from outside (SIGSTOP) while it is asked something
CHECK_INTERVAL = 5.0  # seconds between two checks of a busy engine


class Question(Future[A]):
    """A pending answer. `progress` is called with what the handler reports before it."""

    def __init__(
        self,
        request: Request[A],
        progress: Callable[[Any], None] | None,
        say: Callable[[Any], None],
    ) -> None:
        super().__init__()
        self.request, self.progress = request, progress
        self._say = say
        self.number = 0
        self._sent = threading.Event()

    def note_sent(self) -> None:
        """Mark the request as sent."""
        self._sent.set()

    def wait_until_sent(self, seconds: float) -> bool:
        """Wait until the request is sent, releasing the GIL for the sending thread."""
        return self._sent.wait(seconds)

    def send(self, value: Any) -> None:
        """Put a value into the inbox of the handler."""
        self._say((self, value))

    def stop(self) -> None:
        """Cancel the request: the handler is notified, and this future is cancelled at once."""
        if not self.cancel() and not self.done():
            _fail(self, CancelledError())
            self._say((self, None))


class _Process:
    """One process of an engine, with everything sent to it."""

    def __init__(
        self,
        generation: int,
        start: Callable[[], Any],
        hear: Callable[[IO[bytes]], Any] = child_process.StderrReader,
        longest: int = LONGEST,
    ) -> None:
        self.generation = generation
        self.kills = child_process.memory_kills()
        self.child = start()
        assert (
            self.child.stdin is not None
            and self.child.stdout is not None
            and self.child.stderr is not None
        )
        self.stderr = hear(self.child.stderr)
        incoming = cast("type[Any]", FromEngine)
        self.channel: Channel[Any] = Channel(
            self.child.stdout, self.child.stdin, incoming, longest
        )
        self.codec = Codec(0)
        self.open: dict[int, Question[Any]] = {}
        self.handles = 0
        self.first_memory: int | None = None
        self.trusted: tuple[frozenset[str], frozenset[str], dict[str, str]] | None = (
            None
        )
        self.reason = ""
        self.renewing = False  # both ends are to clear their tables of sent values
        self.retired = False  # gets no further requests

    def fail_all(self, message: str) -> None:
        """Fail all pending requests."""
        while self.open:
            with contextlib.suppress(KeyError):
                _fail(self.open.popitem()[1], EngineDiedError(message))


class Engine:
    """An engine process, started with the first request and again after it has ended."""

    def __init__(self, start: Callable[[], Any] | None = None) -> None:
        self._start = start or start_process
        self._listeners: list[Callable[[str], object]] = []
        self._start_listeners: list[Callable[[], object]] = []
        self._numbers = itertools.count(1)
        self._generations = itertools.count(1)
        self._outbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._process: _Process | None = None
        self._closed = False
        self._writer = threading.Thread(
            target=self._write, name="questions", daemon=True
        )
        self._writer.start()

    # -- from any thread

    def warm(self) -> None:
        """Start the process now, so that torch is loaded before the first request."""
        self._outbox.put("warm")

    def ask(
        self, request: Request[A], progress: Callable[[Any], None] | None = None
    ) -> Question[A]:
        """Send a request; the future has its answer, or the exception that the handler raised, EngineDiedError if the
        process ended, or HandleLostError if it names a handle of an engine that has ended."""
        question = Question(request, progress, self._outbox.put)
        question.number = next(self._numbers)
        if self._closed:
            _fail(question, EngineDiedError("The engine was closed."))
        self._outbox.put(question)
        return question

    def release(self, handle: Handle) -> None:
        """Release the object of a handle, if it still exists."""
        self._outbox.put(handle)

    def listen(self, listener: Callable[[str], object]) -> None:
        """Register a callback for unexpected ends of a process; called with the reason, on a thread of this object."""
        self._listeners.append(listener)

    def unlisten(self, listener: Callable[[str], object]) -> None:
        if listener in self._listeners:
            self._listeners.remove(listener)

    def listen_to_starts(self, listener: Callable[[], object]) -> None:
        """Register a callback for the start of a process; called on a thread of this object."""
        self._start_listeners.append(listener)

    def unlisten_to_starts(self, listener: Callable[[], object]) -> None:
        if listener in self._start_listeners:
            self._start_listeners.remove(listener)

    @property
    def pid(self) -> int | None:
        """The process that answers at the moment."""
        process = self._process
        return (
            process.child.pid
            if process is not None and process.child.poll() is None
            else None
        )

    def close(self) -> None:
        """End the process; open questions are cancelled."""
        self._closed = True
        self._outbox.put(None)
        self._writer.join(10.0)

    # -- on the thread that writes

    def _write(self) -> None:
        while True:
            outgoing = self._outbox.get()
            if outgoing is None:
                break
            try:
                self._do(outgoing)
            except OSError as error:
                if isinstance(outgoing, Question):
                    _fail(
                        outgoing,
                        EngineDiedError(
                            f"The engine process could not be started: {error}"
                        ),
                    )
            except (
                Exception
            ) as error:  # the request cannot be encoded; others are unaffected
                question = outgoing[0] if isinstance(outgoing, tuple) else outgoing
                if isinstance(question, Question):
                    _fail(question, error)
        process, self._process = self._process, None
        if process is not None:
            self._end(process)

    def _do(self, outgoing: Any) -> None:
        if outgoing == "warm":
            self._current()
        elif isinstance(outgoing, Question):
            if outgoing.set_running_or_notify_cancel():
                self._ask(outgoing)
        elif isinstance(outgoing, _Process):
            with outgoing.codec.lock:
                outgoing.renewing = False
                self._send(outgoing, protocol.Renew(outgoing.codec.renewed()))
        elif isinstance(outgoing, Handle):
            process = self._process
            if process is not None and process.generation == outgoing.engine:
                self._send(process, protocol.Release(outgoing.number))
        else:
            question, value = cast("tuple[Question[Any], Any]", outgoing)
            process = self._process
            if process is None:
                return
            if (
                value is None
            ):  # also if it was answered meanwhile: its handles would leak
                process.open.pop(question.number, None)
                self._send(process, protocol.Cancel(question.number))
            elif process.open.get(question.number) is question:
                with process.codec.lock:
                    self._send(
                        process,
                        protocol.Send(question.number, *process.codec.encode(value)),
                    )

    def _ask(self, question: Question[Any]) -> None:
        lost = next(
            (
                handle
                for handle in _handles(question.request)
                if not self._alive(handle)
            ),
            None,
        )
        if lost is not None:
            _fail(
                question,
                HandleLostError(
                    "The requested object is gone: the process that kept it has ended."
                ),
            )
            return
        process = self._current()
        trusted = (*self._trusted(), custom.reasons())
        if process.trusted != trusted:
            process.trusted = trusted
            self._send(
                process,
                protocol.Trust(tuple(trusted[0]), tuple(trusted[1]), trusted[2]),
            )
        process.open[question.number] = question
        try:
            with (
                process.codec.lock
            ):  # values must be sent in the order in which they were encoded
                data = process.codec.encode(question.request)
                self._send(
                    process,
                    protocol.Ask(question.number, type(question.request).lane, *data),
                )
            question.note_sent()
            if (
                process.retired
            ):  # it ended just now, and the thread that read has gone already
                process.fail_all(process.reason)
        except (NotAValueError, ChannelError) as error:
            process.codec.take_back()
            process.open.pop(question.number, None)
            _fail(question, error)

    def _trusted(self) -> tuple[frozenset[str], frozenset[str]]:
        """Return the layer files that may run there, and those that need no trial first."""
        return layer_files.trusted()

    def _alive(self, handle: Handle) -> bool:
        process = self._process
        return (
            process is not None
            and process.generation == handle.engine
            and process.child.poll() is None
        )

    def _send(self, process: _Process, message: protocol.Message) -> None:
        try:
            process.channel.send(message)
        except (OSError, ValueError):
            # It has ended; the reading thread reports the reason.
            return

    def _current(self) -> _Process:
        """Return the process for the next request; replaces one that has ended, or has grown and holds no handles."""
        process = self._process
        if process is not None and not process.retired and process.child.poll() is None:
            if not self._grown(process):
                return process
            self._end(process)
        process = self._process = _Process(next(self._generations), self._start)
        self._begin(process)
        threading.Thread(
            target=self._watch, args=(process,), name="stopped engines", daemon=True
        ).start()
        return process

    def _begin(self, process: _Process) -> None:
        self._send(process, protocol.Begin(protocol.VERSION, process.generation))
        threading.Thread(
            target=self._read, args=(process,), name="answers", daemon=True
        ).start()

    def _grown(self, process: _Process) -> bool:
        if process.open or process.handles:
            return False
        memory = child_process.memory_of(process.child.pid)
        if memory is None or process.first_memory is None:
            return False
        return memory - process.first_memory > GROWTH

    def _end(self, process: _Process) -> None:
        """End an unneeded process without reporting it."""
        process.retired = True
        process.channel.close()
        process.fail_all("The engine was closed.")
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.child.wait(0.5)
        if process.child.poll() is None:
            process.child.kill()
            process.child.wait()

    def _watch(self, process: _Process) -> None:
        """Kill a process that stays stopped (SIGSTOP) while busy. Needs its own thread: the writing one may block on a
        pipe that a stopped process does not read."""
        since: float | None = None
        while not process.retired and process.child.poll() is None:
            time.sleep(min(CHECK_INTERVAL, STOPPED / 4))
            if not process.open or not _is_stopped(process.child.pid):
                since = None
                continue
            since = since or time.monotonic()
            if time.monotonic() - since >= STOPPED:
                process.reason = f"was stopped from outside (SIGSTOP) for {STOPPED:g} s and was ended"
                process.child.kill()
                return

    # -- on the thread that reads, one a process

    def _read(self, process: _Process) -> None:
        try:
            for message in process.channel.messages():
                self._receive(process, message)
        except (OSError, ValueError, ChannelError, NotAValueError) as error:
            if not process.retired:
                process.reason = f"sent an invalid message ({error}) and was ended"
            process.child.kill()
        code = process.child.wait()
        how = process.reason or child_process.describe_exit(code, process.kills)
        if process.retired or self._closed:
            return
        process.reason = self._death_message(how)
        process.retired = True
        process.fail_all(process.reason)
        for listener in tuple(self._listeners):
            listener(process.reason)

    def _death_message(self, how: str) -> str:
        return f"The engine, the process that computes for this window, {how}."

    def _receive(self, process: _Process, message: Any) -> None:
        if isinstance(message, protocol.Hello):
            if message.version != protocol.VERSION:
                raise ChannelError(
                    f"it speaks version {message.version}, this program version {protocol.VERSION}"
                )
            process.first_memory = child_process.memory_of(process.child.pid)
            for listener in tuple(self._start_listeners):
                listener()
            return
        value = process.codec.decode(
            message.generation, message.body
        )  # even if stale: it may define what follows
        if process.codec.full and not process.renewing:
            process.renewing = True
            self._outbox.put(process)
        if isinstance(message, protocol.Progress):
            question = process.open.get(message.number)
            if question is not None and question.progress is not None:
                question.progress(value)
            return
        process.handles = message.handles
        question = process.open.pop(message.number, None)
        if question is None:
            return
        if isinstance(message, protocol.Failure):
            value.__traceback_text__ = message.traceback
            if isinstance(
                value, RemoteError
            ):  # unexpected, so that its own traceback is printed with ours
                value.add_note(message.traceback)
            _fail(question, value)
        else:
            with contextlib.suppress(InvalidStateError):
                question.set_result(value)


@cache
def shared() -> Engine:
    """Return the engine of this process, closed at exit."""
    engine = Engine()
    atexit.register(engine.close)
    return engine


def start_process() -> Any:
    """Start the process of an engine. Raises OSError."""
    return pool.start("engine")


def traceback_of(error: BaseException) -> str:
    """Return the traceback of an exception raised in an engine, "" for any other."""
    return getattr(error, "__traceback_text__", "")


def _fail(question: Future[Any], error: BaseException) -> None:
    with contextlib.suppress(InvalidStateError):
        question.set_exception(error)


def _handles(request: Request[Any]) -> list[Handle]:
    values = (getattr(request, name) for name in request.__struct_fields__)
    return [value for value in values if isinstance(value, Handle)]


def _is_stopped(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()[
            0
        ] in ("T", "t")
    except (OSError, IndexError):
        return False
