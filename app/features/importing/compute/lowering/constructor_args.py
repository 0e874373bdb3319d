"""Constructor arguments of modules: recorded while a user's file runs, and written as Python.

They are recorded only in a short-lived process, since classes defined meanwhile keep the wrapped constructor.
"""

from __future__ import annotations

import argparse
import builtins
import contextlib
import dataclasses
import enum
import functools
import inspect
import sys
import types
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

import torch
from msgspec import Struct
from torch import nn

from app.builder.literals import DType
from app.features.importing.compute.lowering.binding import BindingError, literal_of
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


_LONGEST = 20_000  # characters of one argument
_DEEPEST = 16
_MOST_NUMBERS = 64  # of a tensor
_ROOMS = (
    "torch",
    "torch.nn.functional",
    "math",
    "operator",
)  # where builtins are that do not know their module


class ArgumentCode:
    """Writes values as expressions, and collects the modules that those need in `imports`. `barred` says why a module
    cannot be imported, "" if it can; `made_with` tells how a module was constructed. What is defined in `home` goes by
    its plain name."""

    def __init__(
        self,
        barred: Callable[[str], str],
        made_with: Callable[[nn.Module], Any],
        home: str = "",
    ) -> None:
        self.imports: set[str] = set()
        self._barred, self._made_with, self._home = barred, made_with, home

    def text(self, value: Any) -> str:
        """Return an expression that makes an equal value. Raises BindingError if there is none."""
        text = self._text(value, 0)
        if len(text) > _LONGEST:
            raise BindingError(
                f"a {type(value).__name__} takes more than {_LONGEST:,} characters"
            )
        return text

    def _text(self, value: Any, depth: int) -> str:
        if depth > _DEEPEST:
            raise BindingError(f"a {type(value).__name__} is nested too deep")
        inner = functools.partial(self._text, depth=depth + 1)
        if value is None or value is Ellipsis or type(value) in (bool, int, str):
            return "..." if value is Ellipsis else repr(value)
        if type(value) is float:
            return repr(value) if value - value == 0 else f'float("{value}")'
        if isinstance(value, torch.dtype | torch.device):
            return (
                str(value)
                if isinstance(value, torch.dtype)
                else f'torch.device("{value}")'
            )
        if isinstance(value, DType):
            return f"torch.{value.name}"
        if isinstance(value, enum.Enum):
            return f"{self._named(type(value))}.{value.name}"
        if inspect.isclass(value) or inspect.isroutine(value):
            return self._named(value)
        if isinstance(value, tuple | list | dict | set | frozenset):
            return self._collection(value, inner)
        if isinstance(value, functools.partial):
            self.imports.add("functools")
            arguments = [inner(value.func), *map(inner, value.args)]
            return f"functools.partial({', '.join([*arguments, *_keywords(value.keywords, inner)])})"
        return self._instance(value, inner)

    def _collection(self, value: Any, inner: Callable[[Any], str]) -> str:
        kind, items = (
            type(value),
            [] if isinstance(value, dict) else list(map(inner, value)),
        )
        if kind is tuple or kind is torch.Size:
            return f"({', '.join(items)}{',' if len(items) == 1 else ''})"
        if kind is list:
            return f"[{', '.join(items)}]"
        if kind in (set, frozenset):
            return f"{kind.__name__}([{', '.join(sorted(items))}])"
        if kind in (dict, OrderedDict):
            text = (
                "{"
                + ", ".join(
                    f"{inner(key)}: {inner(item)}" for key, item in value.items()
                )
                + "}"
            )
            if kind is dict:
                return text
            self.imports.add("collections")
            return f"collections.OrderedDict({text})"
        raise BindingError(f"a {kind.__name__} cannot be written as Python")

    def _instance(self, value: Any, inner: Callable[[Any], str]) -> str:
        kind = type(value)
        if isinstance(value, nn.Module):
            construction = self._made_with(value)
            if construction is None:
                raise BindingError(f"how a {kind.__name__} was made is unknown")
            arguments = [
                *(
                    inner(getattr(argument, "value", argument))
                    for argument in construction.args
                )
            ]
            named = {
                name: getattr(keyword_argument, "value", keyword_argument)
                for name, keyword_argument in construction.kwargs.items()
            }
            return f"{self._named(kind)}({', '.join([*arguments, *_keywords(named, inner)])})"
        if (
            isinstance(value, torch.Tensor)
            and type(value) is torch.Tensor
            and value.numel() <= _MOST_NUMBERS
        ):
            return f"torch.tensor({value.tolist()}, dtype={value.dtype})"
        if (facts := _configuration(value)) is not None:
            return f"{self._named(kind)}.from_dict({inner(facts)})"
        if kind in (types.SimpleNamespace, argparse.Namespace):
            return f"{self._named(kind)}({', '.join(_keywords(vars(value), inner))})"
        if dataclasses.is_dataclass(value):
            named = {
                field.name: getattr(value, field.name)
                for field in dataclasses.fields(value)
                if field.init
            }
            return f"{self._named(kind)}({', '.join(_keywords(named, inner))})"
        raise BindingError(f"a {kind.__name__} cannot be written as Python")

    def _named(self, value: Any) -> str:
        """Return a class or function by its qualified name."""
        room, name = (
            getattr(value, "__module__", None),
            getattr(value, "__qualname__", ""),
        )
        rooms = [room] if room and not room.startswith("torch._C") else list(_ROOMS)
        if room == "builtins" and value in vars(builtins).values():
            return str(name)
        if str(room).startswith("torch.nn.modules."):
            rooms = ["torch.nn", *rooms]
        for module_name in rooms:
            attribute: Any = sys.modules.get(module_name)
            for segment in name.split("."):
                attribute = getattr(attribute, segment, None)
            if attribute is value and module_name == self._home:
                return str(name)
            if attribute is value and module_name != "__main__":
                if why := self._barred(module_name):
                    raise BindingError(f"{name} {why}")
                self.imports.add(module_name)
                return f"{module_name}.{name}"
        raise BindingError(
            f"{name or type(value).__name__} cannot be imported by its name"
        )


def _keywords(named: dict[str, Any], inner: Callable[[Any], str]) -> list[str]:
    return [f"{name}={inner(value)}" for name, value in named.items()]


def _configuration(value: Any) -> dict[str, Any] | None:
    """Return the arguments that rebuild an equal configuration; None for other objects."""
    if not callable(getattr(type(value), "from_dict", None)):
        return None
    for name in ("to_diff_dict", "to_dict"):
        if callable(getattr(value, name, None)):
            facts = getattr(value, name)()
            chosen = getattr(
                value, "_attn_implementation", None
            )  # by the model, and in no dict
            facts = {
                name: fact
                for name, fact in facts.items()
                if name != "transformers_version"
            }
            return facts if chosen is None else {**facts, "attn_implementation": chosen}
    return None
