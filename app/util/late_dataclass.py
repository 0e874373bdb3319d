"""`dataclass` of the standard library, with methods that are made on first use.

The standard library compiles six methods per class, which takes a millisecond; the window imports three hundred classes
at start-up and uses fifty of them. Here a class that is used has one compiled method, `__init__`; the others are
closures over the names of its fields. A dataclass that inherits from one of these is one of these, too.
"""

from __future__ import annotations

import dataclasses
import operator
import reprlib
import threading
from collections.abc import Callable
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
    """Placeholder of an attribute that is not made yet; any lookup replaces it by the real one."""

    __slots__ = ("_cls", "_name")

    def __init__(self, cls: type, name: str) -> None:
        self._cls, self._name = cls, name

    def __get__(self, instance: object, kind: type | None = None) -> Any:
        _complete(self._cls)
        value = self._cls.__dict__[self._name]
        return value.__get__(instance, kind) if hasattr(value, "__get__") else value


def _late(cls: type, options: dict[str, Any]) -> type:
    plain = type(cls) is type and options.keys() <= {"frozen", "eq", "order"}
    if not plain or any("InitVar" in str(kind) for kind in vars(cls).get("__annotations__", {}).values()):
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
    """Make the methods of the postponed classes, on a background thread."""
    for cls in list(_waiting):
        _complete(cls)


def _complete(cls: type) -> None:
    """Add the methods of `dataclass` to a class atomically: no thread sees it without a method."""
    with _lock:
        if cls not in _waiting:
            return
        defined, options = _waiting[cls]
        namespace = {name: value for name, value in defined.items() if name not in _EACH_TYPE_HAS}
        # The standard library collects the fields. It writes a docstring for a class without one, which takes long.
        like = type(cls.__name__, cls.__bases__, {**namespace, "__doc__": "none"})
        dataclasses.dataclass(init=False, repr=False, eq=False)(like)
        made = {name: value for name, value in vars(like).items() if name not in _EACH_TYPE_HAS and name != "__doc__"}
        new = {name: value for name, value in made.items() if name not in namespace or namespace[name] is not value}
        methods = _methods(cls, dataclasses.fields(like), options)
        new.update((name, method) for name, method in methods.items() if namespace.get(name) is None)
        for name, value in new.items():
            setattr(cls, name, value)
        for name in namespace.keys() - made.keys() - {"__doc__"}:
            delattr(cls, name)  # `field()` without a default
        del _waiting[cls]


def _methods(cls: type, fields: tuple[dataclasses.Field[Any], ...], options: dict[str, Any]) -> dict[str, Any]:
    """Return the methods that `dataclasses.dataclass` would add with the options."""
    names = [each.name for each in fields]
    frozen, eq = options.get("frozen", False), options.get("eq", True)
    methods: dict[str, Any] = {
        "__init__": _init(cls, fields, frozen),
        "__repr__": _repr([each.name for each in fields if each.repr]),
    }
    values = _values([each.name for each in fields if each.compare])
    if eq:
        methods["__eq__"] = _comparison(operator.eq, values)
        methods["__hash__"] = (lambda self: hash(values(self))) if frozen else None
    if options.get("order"):
        methods |= {name: _comparison(getattr(operator, name), values) for name in _ORDER}
    if frozen:
        methods |= _refusals(cls, frozenset(names))
    return methods


def _init(cls: type, fields: tuple[dataclasses.Field[Any], ...], frozen: bool) -> Callable[..., None]:
    scope: dict[str, Any] = {
        "__name__": cls.__module__,
        "_dataclass_set": object.__setattr__,
        "_dataclass_absent": _waiting,
    }
    arguments, body = ["self"], []
    for each in fields:
        name = value = each.name
        if each.default_factory is not dataclasses.MISSING:
            scope[f"_dataclass_make_{name}"] = each.default_factory
            value = f"_dataclass_make_{name}()"
            if each.init:
                arguments.append(f"{name}=_dataclass_absent")
                value = f"{value} if {name} is _dataclass_absent else {name}"
        elif not each.init:
            continue
        elif each.default is dataclasses.MISSING:
            arguments.append(name)
        else:
            scope[f"_dataclass_default_{name}"] = each.default
            arguments.append(f"{name}=_dataclass_default_{name}")
        body.append(f"_dataclass_set(self, {name!r}, {value})" if frozen else f"self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    exec(f"def __init__({', '.join(arguments)}):\n " + "\n ".join(body or ["pass"]), scope)
    init: Callable[..., None] = scope["__init__"]
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    init.__annotations__ = {each.name: each.type for each in fields if each.init} | {"return": None}
    return init


def _repr(names: list[str]) -> Callable[[object], str]:
    @reprlib.recursive_repr()
    def __repr__(self: object) -> str:
        return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

    return __repr__


def _values(names: list[str]) -> Callable[[object], tuple[Any, ...]]:
    if len(names) > 1:
        return operator.attrgetter(*names)
    return lambda self: tuple(getattr(self, name) for name in names)


def _comparison(compare: Callable[[Any, Any], Any], values: Callable[[object], tuple[Any, ...]]) -> Callable[..., Any]:
    return lambda self, other: (
        compare(values(self), values(other)) if other.__class__ is self.__class__ else NotImplemented
    )


def _refusals(cls: type, names: frozenset[str]) -> dict[str, Callable[..., None]]:
    """Return `__setattr__` and `__delattr__` of a frozen class; a subclass may set further attributes."""

    def __setattr__(self: object, name: str, value: object) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        object.__setattr__(self, name, value)

    def __delattr__(self: object, name: str) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
        object.__delattr__(self, name)

    return {"__setattr__": __setattr__, "__delattr__": __delattr__}
