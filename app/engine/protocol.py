"""Messages between a window and an engine. A body is the plain data of `values.Codec`, and `generation` is its own.

The window sends Begin once, then Ask, Send, Cancel, Release, Trust and Renew; the engine answers Hello once, then
Progress, and one Answer or Failure for each Ask.
"""

from __future__ import annotations

from typing import Any, ClassVar, Generic, TypeVar

import msgspec

from app.util.errors import CodedError
from app.util.late_dataclass import dataclass

VERSION = 1
MAIN = "main"

A = TypeVar("A")


@dataclass(frozen=True)
class Request(Generic[A]):
    """A question to an engine, answered with an `A` by the handler in `app.engine.tasks` of the same module name.

    Requests of one `lane` are answered one after another, those of different lanes side by side; those of MAIN on the
    main thread. `left_alone` is for how many seconds it may go on when nobody listens any more, to end in good order.
    """

    lane: ClassVar[str] = "work"
    left_alone: ClassVar[float] = 0.0
    overtaken: ClassVar[bool] = False  # once it is cancelled, the next of its lane need not wait for its end


@dataclass(frozen=True)
class Handle:
    """Something that stays alive in the engine `engine` until it is released: a captured graph, a playback."""

    number: int
    engine: int


class EngineError(CodedError, RuntimeError):
    """An engine could not answer; the text says why."""


class EngineDiedError(EngineError):
    """The engine's process ended while it was asked; the text says how."""


class HandleLostError(EngineError):
    """What a handle named was in an engine that has ended."""


class Message(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """One message; `number` is that of the question."""


class Begin(Message, frozen=True):
    """The first message: what the window speaks, and the number that handles of this engine bear."""

    version: int
    engine: int


class Hello(Message, frozen=True):
    """The engine is there and speaks this version."""

    version: int
    pid: int


class Ask(Message, frozen=True):
    """A question: the plain data of a Request."""

    number: int
    lane: str
    generation: int
    body: Any


class Send(Message, frozen=True):
    """Something for the inbox of a question under way."""

    number: int
    generation: int
    body: Any


class Cancel(Message, frozen=True):
    """Nobody waits for the answer any more, nor will release what it names; it may have been given already."""

    number: int


class Release(Message, frozen=True):
    """Nobody needs what this handle names any more."""

    handle: int


class Trust(Message, frozen=True):
    """The SHA-256 of every layer file that may run, in place of those of before; `tried` have run to their end, and
    `reasons` say by module why others are not there."""

    allowed: tuple[str, ...]
    tried: tuple[str, ...] = ()
    reasons: dict[str, str] = {}


class Renew(Message, frozen=True):
    """Reset the table of shared objects on both ends."""

    generation: int


class Progress(Message, frozen=True):
    """Something that a question says before its answer."""

    number: int
    generation: int
    body: Any


class Answer(Message, frozen=True):
    """What a question came to. `handles` is how many things the engine keeps now."""

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
