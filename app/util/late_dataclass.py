"""`dataclass` of the standard library, with methods that are compiled on first use.

Compiling takes about half a millisecond per class; the window imports two hundred at start-up and uses a quarter of
them.
"""

from __future__ import annotations

import dataclasses
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls=None, /, **options):
        """Take the class and the options that `dataclasses.dataclass` takes."""
        return _late(cls, options) if cls is not None else lambda cls: _late(cls, options)


_ALWAYS = ("__init__", "__repr__", "__match_args__", "__dataclass_fields__", "__dataclass_params__")
_ORDER = ("__lt__", "__le__", "__gt__", "__ge__")
_EACH_TYPE_HAS = frozenset(("__dict__", "__weakref__"))

_lock = threading.RLock()  # two threads may be the first users of a class
_waiting: dict[type, tuple[dict[str, Any], dict[str, Any]]] = {}  # class: what it defines, options


class _Missing:
    """Placeholder of an attribute that is not compiled yet; any lookup replaces it by the real one."""

    __slots__ = ("_cls", "_name")

    def __init__(self, cls: type, name: str) -> None:
        self._cls, self._name = cls, name

    def __get__(self, instance: object, kind: type | None = None) -> Any:
        _complete(self._cls)
        value = self._cls.__dict__[self._name]
        return value.__get__(instance, kind) if hasattr(value, "__get__") else value


def _late(cls: type, options: dict[str, Any]) -> type:
    if type(cls) is not type or options.get("slots") or not options.keys() <= {"frozen", "eq", "order"}:
        return dataclasses.dataclass(**options)(cls)
    names = list(_ALWAYS)
    if options.get("eq", True):
        names += ("__eq__", "__hash__")
    if options.get("order"):
        names += _ORDER
    if options.get("frozen"):
        names += ("__setattr__", "__delattr__")
    with _lock:
        _waiting[cls] = dict(cls.__dict__), options
        for name in names:
            if cls.__dict__.get(name) is None:  # Python puts None for the hash of a class that defines equality
                setattr(cls, name, _Missing(cls, name))
    return cls


def complete_all() -> None:
    """Compile the postponed classes on a background thread."""
    for cls in list(_waiting):
        _complete(cls)


def _complete(cls: type) -> None:
    """Add the methods of `dataclass` to a class atomically: no thread sees it without a method."""
    with _lock:
        if cls not in _waiting:
            return
        defined, options = _waiting[cls]
        namespace = {name: value for name, value in defined.items() if name not in _EACH_TYPE_HAS}
        like = type(cls.__name__, cls.__bases__, namespace)
        like.__qualname__ = cls.__qualname__
        dataclasses.dataclass(**options)(like)
        made = {name: value for name, value in vars(like).items() if name not in _EACH_TYPE_HAS}
        new = {name: value for name, value in made.items() if name not in namespace or namespace[name] is not value}
        for name, value in new.items():
            for cell in getattr(value, "__closure__", None) or ():
                if cell.cell_contents is like:
                    cell.cell_contents = cls
            setattr(cls, name, value)
        for name in namespace.keys() - made.keys():
            delattr(cls, name)  # `field()` without a default
        del _waiting[cls]
