"""How modules were made: the arguments of their constructors, written down while a person's file runs.

Only a process that ends when the model is read does this: classes made meanwhile keep a longer constructor.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from app.builder.importer.lowering.binding import Unbound, literal_of

# Where it stands in a module; what is copied takes it along.
MADE_WITH = "_made_with"
_RECORDS = "_records_arguments"


@dataclass(frozen=True)
class NoLiteral:
    """An argument that no project can keep; `words` say what it is, `value` is a class or a function."""

    words: str
    value: Any = None


@dataclass(frozen=True)
class MadeWith:
    """The arguments of one call of a constructor: literals, and NoLiteral for what is none."""

    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)


@contextlib.contextmanager
def recording() -> Iterator[None]:
    """Every class of modules that is defined in here writes down what it is made with, then and later."""

    def defined(cls: type[nn.Module], **options: Any) -> None:
        super(nn.Module, cls).__init_subclass__(**options)
        if "__init__" in vars(cls) or not _recorded(cls.__init__):
            setattr(cls, "__init__", _noting(cls.__init__))  # noqa: B010

    nn.Module.__init_subclass__ = classmethod(defined)  # type: ignore[assignment]
    try:
        yield
    finally:
        del nn.Module.__init_subclass__


def made_with(module: nn.Module) -> MadeWith | None:
    """What a module was made with, None if nobody saw it."""
    found: MadeWith | None = module.__dict__.get(MADE_WITH)
    return MadeWith() if found is None and type(module).__init__ is nn.Module.__init__ else found


def _recorded(constructor: Callable[..., None]) -> bool:
    """Whether an inherited constructor needs no wrapper: `nn.Module` takes no arguments, and others may have one.

    TorchScript compiles every method that stands in an interface class, so a class gets none that it did not write.
    """
    return constructor is nn.Module.__init__ or hasattr(constructor, _RECORDS)


def _noting(constructor: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(constructor)
    def noted(self: nn.Module, *args: Any, **kwargs: Any) -> None:
        if MADE_WITH not in self.__dict__:  # of a class and its bases the class is called first
            kept = {name: _kept(value) for name, value in kwargs.items()}
            self.__dict__[MADE_WITH] = MadeWith(tuple(map(_kept, args)), kept)
        constructor(self, *args, **kwargs)

    setattr(noted, _RECORDS, True)
    return noted


def _kept(value: Any) -> Any:
    try:
        return literal_of(value)
    except Unbound:
        if inspect.isclass(value) or inspect.isroutine(value):
            return NoLiteral(str(getattr(value, "__name__", value)), value)
        return NoLiteral(f"a {type(value).__name__}")
