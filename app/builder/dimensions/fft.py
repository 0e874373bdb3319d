"""Explain the output sizes of Fourier transforms and of view_as_real and view_as_complex."""

from __future__ import annotations

from app.builder.dimensions.calls import SizeCall, SizeNote, set_by, unchanged
from app.builder.dimensions.formula import Formula, Symbol


def transformed(call: SizeCall) -> tuple[SizeNote, ...]:
    """Note the dimensions of an FFT: unchanged or set by a typed length; real ones halve or restore the last."""
    name, arrived = call.op.rpartition(".")[2], call.first
    rank = len(arrived.shape)
    several = name.endswith(("2", "n"))
    typed = call.params.get("s" if several else "n")
    lengths = typed if isinstance(typed, tuple) else () if typed is None else (typed,)
    dim = call.params.get(
        "dim", (-2, -1) if name.endswith("2") else None if several else -1
    )
    dims = (
        dim
        if isinstance(dim, tuple)
        else range(-len(lengths or arrived.shape), 0)
        if dim is None
        else (dim,)
    )
    places = [one % rank for one in dims]
    notes = [
        unchanged(arrived, i, "" if i in places else "It is not transformed.")
        for i in range(rank)
    ]
    for place, length in zip(places, lengths, strict=False):
        notes[place] = set_by(
            "s" if several else "n",
            length,
            "Cut, or filled up with zeros, before the transform.",
        )
    last = places[-1]
    if name.startswith("rfft"):
        size = lengths[-1] if lengths else arrived.shape[last]
        formula = Formula("n // 2 + 1", (Symbol("n", "length", size),))
        notes[last] = SizeNote(
            formula,
            "For real input the other half of the frequencies mirrors this one.",
        )
    elif name.startswith("irfft") and not lengths:
        formula = Formula(
            "2 * (n - 1)", (Symbol("n", "frequencies", arrived.shape[last]),)
        )
        notes[last] = SizeNote(
            formula, "Derived from the number of frequencies, as no length is set."
        )
    return tuple(notes)


def as_pairs(call: SizeCall) -> tuple[SizeNote, ...]:
    """Note the last dimension of two: real and imaginary part."""
    every = tuple(unchanged(call.first, i) for i in range(len(call.first.shape)))
    return (*every, SizeNote(Formula("2"), "The real part and the imaginary part."))


def of_pairs(call: SizeCall) -> tuple[SizeNote, ...]:
    """Note the dimensions without the last one, of pairs."""
    return tuple(unchanged(call.first, i) for i in range(len(call.first.shape) - 1))
