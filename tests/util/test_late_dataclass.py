"""A dataclass that is completed at its first use is one in all that a user of it can see."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import sys
import threading
from dataclasses import FrozenInstanceError, InitVar, dataclass, field, fields, is_dataclass, replace
from typing import Any, ClassVar, Generic, TypeVar

import pytest

from app.util import late_dataclass

T = TypeVar("T")


def made(dataclass: Any) -> dict[str, Any]:
    """The same classes by either decorator."""

    @dataclass(frozen=True, order=True)
    class Point:
        """A place."""

        x: int
        y: int = 2
        names: tuple[str, ...] = field(default=("a",), compare=False, repr=False)
        kinds: ClassVar[int] = 3

        @property
        def sum(self) -> int:
            return self.x + self.y

    @dataclass(frozen=True)
    class Named(Point, Generic[T]):
        name: str = "n"
        given: T | None = None

        def __repr__(self) -> str:
            return f"{super().__repr__()} {self.name}"

    @dataclass
    class Open:
        items: list[int] = field(default_factory=list)
        start: InitVar[int] = 4

        def __post_init__(self, start: int) -> None:
            self.items.append(start)

    @dataclass(frozen=True, eq=False)
    class Itself:
        a: int

    @dataclass(frozen=True)
    class Nothing:
        pass

    @dataclass
    class Counted:
        of: object = None
        count: int = field(default=3, init=False)
        made: list[int] = field(default_factory=lambda: [1], init=False)
        later: int = field(init=False, compare=False, repr=False)

    class Below(Point):
        def __init__(self, x: int) -> None:
            super().__init__(x, 7)

    return {kind.__name__: kind for kind in (Point, Named, Open, Itself, Nothing, Counted, Below)}


USES: dict[str, Any] = {
    "text": lambda of: (repr(of["Point"](1)), repr(of["Named"](1)), repr(of["Open"]()), of["Point"].__doc__),
    "doc": lambda of: [inspect.signature(kind) for kind in of.values()],
    "equal": lambda of: (of["Point"](1) == of["Point"](1, names=()), of["Itself"](1) == of["Itself"](1)),
    "sorted": lambda of: [p.x for p in sorted(of["Point"](x) for x in (3, 1, 2))],
    "hash": lambda of: (len({of["Point"](1), of["Point"](1)}), of["Open"].__hash__, len({of["Itself"](1)})),
    "changed": lambda of: (replace(of["Named"](1), y=5, name="m").sum, replace(of["Open"](), items=[], start=1).items),
    "fields of a class": lambda of: [[f.name for f in fields(kind)] for kind in of.values()],
    "fields of another class": lambda of: [f.name for f in fields(of["Below"])],
    "values": lambda of: (dataclasses.asdict(of["Point"](1)), of["Named"][int](1, given=2).given, of["Point"].y),
    "matched": lambda of: _matched(of["Point"]),
    "known as one": lambda of: [is_dataclass(kind) for kind in of.values()],
    "copied": lambda of: (copy.deepcopy(of["Named"](1)) == of["Named"](1), copy.copy(of["Open"]()).items),
    "frozen": lambda of: [_refused(of, name, "x") for name in ("Point", "Named", "Below")],
    "open": lambda of: _refused(of, "Below", "z"),
    "below": lambda of: (of["Below"](1).y, of["Below"](1) == of["Below"](1)),
    "made without its maker": lambda of: _unpickled(of["Point"]),
    "without fields": lambda of: (repr(of["Nothing"]()), of["Nothing"]() == of["Nothing"](), hash(of["Nothing"]())),
    "fields that are not given": lambda of: _counted(of["Counted"]),
    "in itself": lambda of: repr(_in_itself(of["Counted"])),
    "compared with others": lambda of: _compared(of["Point"], of["Named"]),
    "deleted": lambda of: [_kept(of[name](1), "x") for name in ("Point", "Named", "Below")],
    "annotations": lambda of: {name: kind.__init__.__annotations__ for name, kind in of.items()},
    "arguments": lambda of: [list(inspect.signature(kind).parameters) for kind in of.values()],
    "wrongly made": lambda of: _wrong(of["Point"]),
}  # fmt: skip


def _matched(kind: Any) -> object:
    match kind(1):
        case kind(x, y):
            return x, y


def _refused(of: dict[str, Any], name: str, attribute: str) -> str:
    try:
        setattr(of[name](1), attribute, 1)
    except FrozenInstanceError as error:
        return str(error)
    return "set"


def _counted(kind: Any) -> tuple[object, ...]:
    one, other = kind(), kind()
    one.later, one.count = 5, 4
    other.made.append(2)
    with pytest.raises(TypeError) as refused:
        kind(count=3)
    return repr(one), repr(other), one == other, kind() == kind(), str(refused.value)


def _in_itself(kind: Any) -> object:
    one = kind()
    one.of = [one]
    return one


def _compared(kind: Any, below: Any) -> tuple[object, ...]:
    return (
        kind(1) == below(1),
        kind(1) != below(1),
        kind(1).__eq__(1),
        kind(1).__lt__(below(2)),
        kind(1) <= kind(1),
        kind(2, 1) > kind(1, 5),
        kind(1) >= kind(2),
    )


def _kept(one: Any, attribute: str) -> str:
    try:
        delattr(one, attribute)
    except FrozenInstanceError as error:
        return str(error)
    return "deleted"


def _unpickled(kind: Any) -> tuple[object, ...]:
    one, other = kind.__new__(kind), kind.__new__(kind)
    one.__dict__.update(x=1, y=2), other.__dict__.update(x=1, y=2)
    return (
        one == other,
        hash(one) == hash(other),
        repr(one) == repr(other),
        _refused({"one": lambda _: one}, "one", "x"),
    )


def _wrong(kind: Any) -> str:
    with pytest.raises(TypeError) as refused:
        kind()
    return str(refused.value)


@pytest.mark.parametrize("use", USES)
def test_its_first_use_finds_a_dataclass(use: str):
    """Whatever that use is: each has classes of its own."""
    here, there = USES[use](made(late_dataclass.dataclass)), USES[use](made(dataclass))
    assert str(here).replace("late_dataclass.", "") == str(there) and here == there or use == "doc"


def test_all_are_completed_before_anybody_waits_for_them():
    kind = made(late_dataclass.dataclass)["Named"]
    late_dataclass.complete_all()
    assert not late_dataclass._waiting and "__init__" in vars(kind) and inspect.isfunction(vars(kind)["__init__"])
    assert kind(1, name="x") == kind(1, name="x")


def test_threads_that_make_the_first_one_together_all_get_one():
    """As a worker and the window do: no thread finds a class that has lost its stand-ins and lacks its methods."""
    switch = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(30):
            kind, found, start = made(late_dataclass.dataclass)["Named"], [], threading.Barrier(4)

            def use(kind: Any = kind, found: list[Any] = found, start: threading.Barrier = start) -> None:
                start.wait()
                found.append(kind(1, name="x"))

            threads = [threading.Thread(target=use) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert len(found) == 4 and len(set(found)) == 1
    finally:
        sys.setswitchinterval(switch)
