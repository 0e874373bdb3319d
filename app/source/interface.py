"""What a model's forward takes and returns, as it was called once."""

from __future__ import annotations

import re
from typing import Annotated

from msgspec import Meta, Struct

# Bounds of what a project file may hold, which has these values as they are.
Text = Annotated[str, Meta(max_length=10_000)]
Shape = Annotated[tuple[Annotated[int, Meta(ge=-1)], ...], Meta(max_length=64)]

# A way from what forward returns to a tensor in it: `.logits`, `["out"]`, `[0]`, and so on inwards.
_STEP = r'\.[A-Za-z_]\w*|\[\d+\]|\["[^"\\\n]*"\]'
_WAY = re.compile(rf"({_STEP})*")
# A way from an argument of forward to a tensor in it: `[*]` is one a sample, `["boxes"]` in a dictionary, `[0]` in a
# list, `(0)` in a tuple.
_PLACE = re.compile(r'(\[\*\])?(\["[^"\\\n]*"\]|\[\d+\]|\(\d+\))*')
_CHIEF = (
    "output",
    "logits",
    "out",
    "last_hidden_state",
    "prediction",
    "sample",
)  # names of main outputs
_TOTALS = (
    "loss",
    "total_loss",
    "loss_total",
    "objective",
)  # names of a loss that is the sum of others
LABELS = (
    "labels",
    "label",
    "targets",
    "target",
    "y",
)  # usual names of an argument for the target


class Argument(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """One argument of forward, or a tensor in one. `shape`, with the batch, and `dtype` are those of the tensor that it
    was called with; "" if it was called without. `needed` says that it has no default, `other` is the type of what it
    was given if that is no tensor, and `by_place` that it cannot be passed by its name.

    A tensor in a list, tuple or dictionary is `of` an argument, and `way` leads to it: `["mask"]`; `[*]` for the tensor
    of each sample, `[*]["boxes"]` for one in the dictionary of each sample.
    """

    name: Text
    shape: Shape = ()
    dtype: Text = ""
    needed: bool = False
    other: Text = ""
    by_place: bool = False
    of: Text = ""
    way: Text = ""


class Returned(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """One tensor that forward returned, with its shape and dtype; `dtype` is "" for a field that was None.

    `way` leads to it: `.logits`, `["out"]`, `[0]`; "" for forward's only tensor. `detached` says that no gradient flows
    through it.
    """

    way: Text
    shape: Shape = ()
    dtype: Text = ""
    detached: bool = False

    @property
    def name(self) -> str:
        """The name of the tensor.

        >>> Returned(".logits").name, Returned('["aux"][0]').name, Returned("").name
        ('logits', 'aux.0', 'output')
        """
        return (
            ".".join(step.strip('.[]"') for step in re.findall(_STEP, self.way))
            or "output"
        )

    @property
    def is_float(self) -> bool:
        return self.dtype.startswith(("float", "bfloat"))

    @property
    def is_element(self) -> bool:
        """True for a part of a tuple or list, which has a position in place of a name."""
        return re.fullmatch(r"\[\d+\]", self.way) is not None

    @property
    def may_be_loss(self) -> bool:
        """True for a value that gradients flow through, one for each sample, or what was None this time."""
        return not self.dtype or (
            self.is_float and len(self.shape) < 2 and not self.detached
        )


class Interface(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """`model` is the dotted name of the class; `takes` are in the order of forward's signature, `returns` in that of
    what it returned. `modules` are the paths of the modules that own parameters, `parameters` counts their values.
    `losses_in_training` says that it returned losses in train mode, and something else in eval mode, `lazy` that its
    first call gives layers their sizes. `quantised` is the path of the first module with packed weights,
    `one_value_norm` that of the first batch norm with a single value a channel for each sample."""

    model: Text
    takes: Annotated[tuple[Argument, ...], Meta(max_length=1_000)] = ()
    returns: Annotated[tuple[Returned, ...], Meta(max_length=1_000)] = ()
    modules: Annotated[tuple[Text, ...], Meta(max_length=200_000)] = ()
    parameters: Annotated[int, Meta(ge=0)] = 0
    losses_in_training: bool = False
    lazy: bool = False
    quantised: Text = ""
    one_value_norm: Text = ""

    @property
    def own_losses(self) -> tuple[Returned, ...]:
        """The losses that the model computes itself: `loss`, also if it was None this time, else those whose names say
        so, to be summed, else the first number of a tuple, else the numbers that it returned in place of anything
        else. What no gradient flows through is none."""
        floats = [returned for returned in self.returns if returned.is_float]
        numbers = [
            returned
            for returned in floats
            if not returned.shape and not returned.detached
        ]
        for name in _TOTALS:
            total = [
                returned
                for returned in self.returns
                if returned.name.rpartition(".")[2] == name and returned.may_be_loss
            ]
            if total:
                return (min(total, key=lambda returned: returned.name.count(".")),)
        if named := tuple(
            returned for returned in numbers if "loss" in returned.name.lower()
        ):
            return named
        elements = tuple(returned for returned in numbers if returned.is_element)[:1]
        return elements or (
            () if any(returned.shape for returned in floats) else tuple(numbers)
        )

    @property
    def chief(self) -> Returned | None:
        """The tensor that a loss takes if none is named: of the usual names, else the first floating point one."""
        losses = self.own_losses
        floats = [
            output
            for output in self.returns
            if output.is_float and output.shape and output not in losses
        ]
        for name in _CHIEF:
            for returned in floats:
                if returned.name == name:
                    return returned
        return floats[0] if floats else None


def is_way(text: str) -> bool:
    """Return whether a text is only an access path to a tensor, such as `[0].logits`, and no other code.

    >>> is_way('.logits'), is_way('["out"][0]'), is_way("; import os"), is_way(".a()")
    (True, True, False, False)
    """
    return _WAY.fullmatch(text) is not None


def is_place(text: str) -> bool:
    """Return whether a text is only an access path to a tensor in an argument.

    >>> is_place('[*]["boxes"]'), is_place("(0)"), is_place('["a"][*]'), is_place("; import os")
    (True, True, False, False)
    """
    return _PLACE.fullmatch(text) is not None


def steps_of(access_path: str) -> tuple[str, ...]:
    """Split the access path of a tensor in an argument.

    >>> steps_of('[*]["boxes"](0)')
    ('[*]', '["boxes"]', '(0)')
    """
    return tuple(re.findall(r'\[\*\]|\["[^"\\\n]*"\]|\[\d+\]|\(\d+\)', access_path))
