"""The two modes that one model is compared in: precision, device, train or eval, eager or compiled."""

from __future__ import annotations

from msgspec import Struct

from app.util.errors import CodedError

PRECISIONS = ("float64", "float32", "bfloat16", "float16")
DEVICES = ("cpu", "cuda", "mps")
KINDS = (PRECISIONS, DEVICES, ("eval", "train"), ("eager", "compiled"))
KNOWN = tuple(name for kind in KINDS for name in kind)


class ModeError(CodedError, ValueError):
    """Modes that do not exist, or are not of one kind."""

    exit_code = 2


class Modes(Struct, frozen=True):
    """The modes of A and of B, both of one of `KINDS`."""

    a: str
    b: str


def parse_modes(a: str, b: str) -> Modes:
    """Return two modes by their names. Raises ModeError.

    >>> parse_modes("float32", "bfloat16")
    Modes(a='float32', b='bfloat16')
    """
    for name in (a, b):
        if name not in KNOWN:
            raise ModeError(f"there is no mode {name}; there are {', '.join(KNOWN)}")
    if a == b or not any(a in kind and b in kind for kind in KINDS):
        pairs = "; ".join(" or ".join(kind) for kind in KINDS)
        raise ModeError(f"{a} and {b} are not two modes of one kind: {pairs}")
    return Modes(a, b)
