"""Messages between a window and an engine. A body is the plain data of `values.Codec`, and `generation` is its own.

The window sends Begin once, then Ask, Send, Cancel, Release, Trust and Renew; the engine answers Hello once, then
Progress, and one Answer or Failure for each Ask.
"""

from __future__ import annotations

from typing import Any, ClassVar, Generic, TypeVar

from msgspec import Struct

from app.util.errors import CodedError

VERSION = 1
MAIN = "main"

A = TypeVar("A")


class Request(Struct, Generic[A], frozen=True):
    """A request to an engine, answered with an `A` by a handler, which is found beside it (see `app.engine`).

    Requests of one `lane` run one after another, those of different lanes concurrently; those of MAIN on the main
    thread. `left_alone` is the number of seconds it may run without a client, to end cleanly. Garbage is collected
    after the answer to a `prompt` request, not amid it.
    """

    lane: ClassVar[str] = "work"
    left_alone: ClassVar[float] = 0.0
    prompt: ClassVar[bool] = False
    overtaken: ClassVar[bool] = (
        False  # once it is cancelled, the next of its lane need not wait for its end
    )


class Handle(Struct, frozen=True):
    """An object kept alive in the engine `engine` until it is released: a captured graph, a playback."""

    number: int
    engine: int


class EngineError(CodedError, RuntimeError):
    """An engine could not answer; the message says why."""


class EngineDiedError(EngineError):
    """The engine's process ended during a request; the message says how."""


class HandleLostError(EngineError):
    """The object of a handle was in an engine that has ended."""


class Message(Struct, frozen=True, tag=True, array_like=True):
    """One message; `number` is that of the question."""


class Begin(Message, frozen=True):
    """The first message: the client's protocol version, and the number in handles of this engine."""

    version: int
    engine: int


class Hello(Message, frozen=True):
    """The engine has started and uses this protocol version."""

    version: int
    pid: int


class Ask(Message, frozen=True):
    """A question: the plain data of a Request."""

    number: int
    lane: str
    generation: int
    body: Any


class Send(Message, frozen=True):
    """A message for the inbox of a running request."""

    number: int
    generation: int
    body: Any


class Cancel(Message, frozen=True):
    """Cancel a request and release its handles, even if it has been answered already."""

    number: int


class Release(Message, frozen=True):
    """Release the object of a handle."""

    handle: int


class Trust(Message, frozen=True):
    """The SHA-256 of every layer file that may run, replacing earlier ones; `tried` passed their trial, and `reasons`
    say by module why others are missing."""

    allowed: tuple[str, ...]
    tried: tuple[str, ...] = ()
    reasons: dict[str, str] = {}


class Renew(Message, frozen=True):
    """Reset the table of shared objects on both ends."""

    generation: int


class Progress(Message, frozen=True):
    """Progress of a request before its answer."""

    number: int
    generation: int
    body: Any


class Answer(Message, frozen=True):
    """The answer to a request. `handles` is the number of objects the engine keeps now."""

    number: int
    generation: int
    body: Any
    handles: int = 0


class Failure(Message, frozen=True):
    """A question raised: the plain data of the exception, and its traceback."""

    number: int
    generation: int
    body: Any
    traceback: str
    handles: int = 0


ToEngine = Begin | Ask | Send | Cancel | Release | Trust | Renew
FromEngine = Hello | Progress | Answer | Failure
