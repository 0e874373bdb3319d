"""What comparing two models finds, as frozen plain data: structure, numbers layer by layer, weights."""

from __future__ import annotations

import math
from typing import Literal

import msgspec
from msgspec import Struct

Pass = Literal["forward", "backward"]


class Setting(msgspec.Struct, frozen=True, array_like=True):
    """A setting that differs between two matched modules, as text; "" where one has none."""

    name: str
    a: str
    b: str

    @property
    def text(self) -> str:
        """
        >>> Setting("eps", "1e-05", "1e-06").text, Setting("bias", "8", "").text
        ('eps 1e-05 → 1e-06', 'bias 8 → none')
        """
        return f"{self.name} {self.a or 'none'} → {self.b or 'none'}"


class Changed(msgspec.Struct, frozen=True, array_like=True):
    """Two matched modules whose settings differ."""

    a: str
    b: str
    settings: tuple[Setting, ...]


class Alone(msgspec.Struct, frozen=True, array_like=True):
    """A module that only one of the models has; `kind` is its class."""

    path: str
    kind: str


class Moved(msgspec.Struct, frozen=True, array_like=True):
    """Two matched modules of different paths; those in them moved along and are not listed."""

    a: str
    b: str
    kind: str


class Structure(Struct, frozen=True):
    """How the modules of two models match: `pairs` are the paths in A and in B, in the order of A."""

    pairs: tuple[tuple[str, str], ...] = ()
    added: tuple[Alone, ...] = ()
    removed: tuple[Alone, ...] = ()
    moved: tuple[Moved, ...] = ()
    changed: tuple[Changed, ...] = ()

    @property
    def same(self) -> bool:
        """Return whether every module of one matches one of the other with the same settings."""
        return not (self.added or self.removed or self.changed)


class Apart(msgspec.Struct, frozen=True, array_like=True):
    """How far the tensors of a layer in B are from those in A, both models run on their own.

    `relative` is ‖b−a‖₂ / ‖a‖₂ and infinite where shapes differ or one has no gradient; `cosine` is that of the angle
    between them; `ulp` the largest distance of two elements in representable numbers between them.
    """

    relative: float = 0.0
    cosine: float = 1.0
    ulp: float = 0.0


class Added(msgspec.Struct, frozen=True, array_like=True):
    """What a layer of B adds to the error when it gets exactly what that of A got: the relative error, the largest one
    that rounding explains, and what differs, as text."""

    error: float = 0.0
    bound: float = 0.0
    what: str = ""

    @property
    def exceeds(self) -> bool:
        """Return whether rounding does not explain it."""
        return not self.error <= self.bound


class Layer(msgspec.Struct, frozen=True, array_like=True):
    """A call of two matched modules. `forward` compares its outputs, `backward` their gradients and those of its
    parameters; None where there are none."""

    a: str
    b: str
    kind: str
    call: int = 1
    file_a: str = ""
    line_a: int = 0
    file_b: str = ""
    line_b: int = 0
    forward: Apart | None = None
    added: Added | None = None
    backward: Apart | None = None
    backward_added: Added | None = None


class Distance(msgspec.Struct, frozen=True, array_like=True):
    """How far the parameters of a matched module are apart: ‖b−a‖₂, the same relative to ‖a‖₂, and how many numbers
    differ of how many."""

    a: str
    b: str
    distance: float
    relative: float
    differing: int
    count: int


class First(Struct, frozen=True):
    """The first layer that adds more than rounding can explain: paths, lines, and why. `operation_a` and `operation_b`
    are the operations that differ in it, "" where none was found or the other one has none."""

    a: str
    b: str
    direction: Pass
    mode: str
    why: str
    file_a: str = ""
    line_a: int = 0
    file_b: str = ""
    line_b: int = 0
    operation_a: str = ""
    operation_b: str = ""


class Difference(Struct, frozen=True):
    """What comparing model A with model B found. `layers` are in the order of the calls in A, and empty where nothing
    was run; `mode` says in which mode they ran. `settings` are those of runs or environments, side by side."""

    name_a: str
    name_b: str
    first: First | None = None
    layers: tuple[Layer, ...] = ()
    structure: Structure = Structure()
    distances: tuple[Distance, ...] = ()
    settings: tuple[Setting, ...] = ()
    remarks: tuple[str, ...] = ()
    mode: str = ""
    ran: bool = True

    @property
    def differs(self) -> bool:
        """Return whether something differs beyond rounding; of what was not run, whether anything does."""
        if self.ran:
            return self.first is not None
        return not self.structure.same or any(
            not one.distance == 0 for one in self.distances
        )


def finite(value: float) -> float | None:
    """Return a number for JSON; None for infinity or NaN."""
    return value if math.isfinite(value) else None
