"""Recorded constructor arguments of modules that are created while a user's file runs.

Used only in a short-lived process, since classes defined meanwhile keep the wrapped constructor.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any

from msgspec import Struct
from torch import nn

from app.builder.importer.lowering.binding import BindingError, literal_of
from app.util.frozen import equal_in

# Attribute with the record; copies of the module share it.
CONSTRUCTOR_ARGS = "_made_with"
_RECORDS = "_records_arguments"


class NoLiteral(Struct, frozen=True):
    """An argument that a project cannot store: `words` describe it. Copies of a module share its `value`."""

    words: str
    value: Any = None

    def __eq__(self, other: object) -> bool:
        return equal_in(("words",), self, other)

    def __hash__(self) -> int:
        return hash(self.words)

    def __deepcopy__(self, _known: Any) -> NoLiteral:
        return self


class ConstructorArgs:
    """Arguments of one constructor call: literals, or NoLiteral.

    No Struct: torch.jit would compile that with the module that has it, into an archive that cannot be loaded.
    """

    def __init__(
        self, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> None:
        self.args, self.kwargs = args, kwargs or {}

    def __eq__(self, other: object) -> bool:
        return equal_in(("args", "kwargs"), self, other)

    __hash__ = None  # type: ignore[assignment]


@contextlib.contextmanager
def recording() -> Iterator[None]:
    """Patch nn.Module so that classes defined inside record their constructor arguments, then and later."""

    def defined(cls: type[nn.Module], **options: Any) -> None:
        super(nn.Module, cls).__init_subclass__(**options)
        if "__init__" in vars(cls) or not _recorded(cls.__init__):
            setattr(cls, "__init__", _noting(cls.__init__))  # noqa: B010

    nn.Module.__init_subclass__ = classmethod(defined)  # type: ignore[assignment]
    try:
        yield
    finally:
        del nn.Module.__init_subclass__


def constructor_args_of(module: nn.Module) -> ConstructorArgs | None:
    """Return the constructor arguments of a module, None if they were not recorded."""
    recorded: ConstructorArgs | None = module.__dict__.get(CONSTRUCTOR_ARGS)
    return (
        ConstructorArgs()
        if recorded is None and type(module).__init__ is nn.Module.__init__
        else recorded
    )


def _recorded(constructor: Callable[..., None]) -> bool:
    """Return whether an inherited constructor needs no wrapper: nn.Module takes no arguments, others may be wrapped.

    TorchScript compiles every method of an interface class, so a class must not gain one.
    """
    return constructor is nn.Module.__init__ or hasattr(constructor, _RECORDS)


def _noting(constructor: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(constructor)
    def noted(self: nn.Module, *args: Any, **kwargs: Any) -> None:
        if (
            CONSTRUCTOR_ARGS not in self.__dict__
        ):  # of a class and its bases the class is called first
            keyword_arguments = {
                name: recordable(value) for name, value in kwargs.items()
            }
            self.__dict__[CONSTRUCTOR_ARGS] = ConstructorArgs(
                tuple(map(recordable, args)), keyword_arguments
            )
        constructor(self, *args, **kwargs)

    setattr(noted, _RECORDS, True)
    return noted


def recordable(value: Any) -> Any:
    """Return a value as a literal, or NoLiteral."""
    try:
        return literal_of(value)
    except BindingError:
        if inspect.isclass(value) or inspect.isroutine(value):
            return NoLiteral(str(getattr(value, "__name__", value)), value)
        return NoLiteral(f"a {type(value).__name__}", value)
