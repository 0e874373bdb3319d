"""What a model's forward takes and returns, as it was called once."""

from __future__ import annotations

import re

from app.util.late_dataclass import dataclass

# A way from what forward returns to a tensor in it: `.logits`, `["out"]`, `[0]`, and so on inwards.
_STEP = r'\.[A-Za-z_]\w*|\[\d+\]|\["[^"\\\n]*"\]'
_WAY = re.compile(rf"({_STEP})*")
_CHIEF = ("output", "logits", "out", "last_hidden_state", "prediction", "sample")  # names of main outputs


@dataclass(frozen=True)
class Argument:
    """One argument of forward. `shape`, with the batch, and `dtype` are those of the tensor that it was called with; ""
    if it was called without. `needed` says that it has no default, `other` is the type of what it was given if that is
    no tensor, and `by_place` that it cannot be passed by its name."""

    name: str
    shape: tuple[int, ...] = ()
    dtype: str = ""
    needed: bool = False
    other: str = ""
    by_place: bool = False


@dataclass(frozen=True)
class Returned:
    """One tensor that forward returned, with its shape and dtype; `dtype` is "" for a field that was None.

    `way` leads to it: `.logits`, `["out"]`, `[0]`; "" for forward's only tensor.
    """

    way: str
    shape: tuple[int, ...] = ()
    dtype: str = ""

    @property
    def name(self) -> str:
        """The name of the tensor.

        >>> Returned(".logits").name, Returned('["aux"][0]').name, Returned("").name
        ('logits', 'aux.0', 'output')
        """
        return ".".join(step.strip('.[]"') for step in re.findall(_STEP, self.way)) or "output"


@dataclass(frozen=True)
class Interface:
    """`model` is the dotted name of the class; `takes` are in the order of forward's signature, `returns` in that of
    what it returned. `modules` are the paths of the modules that own parameters, `parameters` counts their values."""

    model: str
    takes: tuple[Argument, ...] = ()
    returns: tuple[Returned, ...] = ()
    modules: tuple[str, ...] = ()
    parameters: int = 0

    @property
    def chief(self) -> Returned | None:
        """The tensor that a loss takes if none is named: of the usual names, else the first floating point one."""
        floats = [one for one in self.returns if one.dtype.startswith(("float", "bfloat"))]
        for name in _CHIEF:
            for one in floats:
                if one.name == name:
                    return one
        return next((one for one in floats if one.shape), None)


def is_way(text: str) -> bool:
    """Return whether a text is a way to a tensor, and nothing else that Python would run.

    >>> is_way('.logits'), is_way('["out"][0]'), is_way("; import os"), is_way(".a()")
    (True, True, False, False)
    """
    return _WAY.fullmatch(text) is not None
