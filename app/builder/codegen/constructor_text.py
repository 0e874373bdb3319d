"""Line wrapping of constructor calls: one line, or one item per line if that is too long."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from msgspec import Struct
from msgspec.structs import replace

from app.builder.codegen.call_code import WIDTH

# A node of the class being written, `("n1",)`, or one in an inlined block: `(("n1", 0), "n2")`, where the number is the
# repetition.
Owner = tuple[str | tuple[str, int], ...]


class Line(Struct, frozen=True):
    """One line of a class, and the nodes that it was written for."""

    text: str
    owners: tuple[Owner, ...] = ()

    @classmethod
    def of_nodes(cls, text: str, *nodes: str) -> Line:
        """Make a line for nodes of the class itself."""
        return cls(text, tuple((node,) for node in nodes))


class Made(Struct, frozen=True, dict=True):
    """A call, or a list, of `items` between `head` and `tail`.

    With `rows`, items are on a line each if the whole is too long for one; others are laid out as by
    `call_code.wrapped`. `times` is the comprehension clause that repeats the only item.

    >>> conv = Made("nn.Conv2d(", ("1", "8", "3"), ")")
    >>> conv.flat, Made("nn.Sequential(", (conv,), ")", rows=True).framed("self.a = ", "").flat
    ('nn.Conv2d(1, 8, 3)', 'self.a = nn.Sequential(nn.Conv2d(1, 8, 3))')
    """

    head: str
    items: tuple[Made | str, ...] = ()
    tail: str = ")"
    owners: tuple[Owner, ...] = ()
    rows: bool = False
    times: str = ""

    @cached_property
    def flat(self) -> str:
        """All of it on one line."""
        return f"{self.head}{', '.join(map(_flat, self.items))}{self.times and ' '}{self.times}{self.tail}"

    def framed(self, before: str, after: str) -> Made:
        """With more text at both ends."""
        return replace(self, head=before + self.head, tail=self.tail + after)

    def owned(self, *owners: Owner) -> Made:
        """Written for these too."""
        return replace(self, owners=(*self.owners, *owners))

    def lines(self, margin: str, end: str = "") -> Iterator[Line]:
        """Yield its lines, with `end` after the last."""
        flat = f"{margin}{self.flat}{end}"
        if not self.items or len(flat) <= WIDTH:
            yield Line(flat, tuple(self._all_owners()))
            return
        yield Line(margin + self.head, self.owners)
        inner = margin + "    "
        only = self.items[0] if len(self.items) == 1 else None
        if isinstance(only, Made) and (self.times or only.head in ("[", "{")):
            for line in only.lines(
                inner
            ):  # a single list argument takes no trailing comma
                yield Line(line.text, (*self.owners, *line.owners))
            if self.times:
                yield Line(inner + self.times, self.owners)
            yield Line(f"{margin}{self.tail}{end}", self.owners)
            return
        together = f"{inner}{', '.join(map(_flat, self.items))}"
        if not self.rows and len(together) <= WIDTH:
            yield Line(together, tuple(self._all_owners()))
        else:
            for item in self.items:
                lines = (
                    item.lines(inner, ",")
                    if isinstance(item, Made)
                    else (Line(f"{inner}{item},"),)
                )
                for line in lines:
                    yield Line(line.text, (*self.owners, *line.owners))
        yield Line(f"{margin}{self.tail}{end}", self.owners)

    def _all_owners(self) -> Iterator[Owner]:
        yield from self.owners
        for item in self.items:
            if isinstance(item, Made):
                yield from item._all_owners()


def repeated(
    constructors: list[Made], least: int = 2, anywhere: bool = False
) -> list[Made]:
    """Collapse runs of at least `least` equal modules into a comprehension: at the end, or anywhere."""
    collapsed: list[Made] = []
    start = 0
    while start < len(constructors):
        end = start + 1
        while (
            end < len(constructors)
            and constructors[end].flat == constructors[start].flat
        ):
            end += 1
        run = constructors[start:end]
        if len(run) >= least and (anywhere or end == len(constructors)):
            owners = tuple(
                dict.fromkeys(
                    owner for constructor in run for owner in constructor.owners
                )
            )
            inner = replace(run[0], owners=owners)
            collapsed.append(
                Made(
                    "*[",
                    (inner,),
                    "]",
                    owners,
                    run[0].rows,
                    f"for _ in range({len(run)})",
                )
            )
        else:
            collapsed += run
        start = end
    return collapsed


def _flat(item: Made | str) -> str:
    return item.flat if isinstance(item, Made) else item
