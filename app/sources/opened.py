"""A model of the user's code or of an installed package, as the net of a project."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from app.source.interface import Argument, Interface
from app.sources.spec import InputSpec, SourceSpec
from app.util.frozen import FrozenMap


class OpenedModel(Struct, frozen=True):
    """The source of a model, and the inputs and outputs of its forward in one call.

    `arguments` are those of its constructor, `inputs` describe that call where they were not proposed, or
    `example` names the file that they came from. `folder` comes first on Python's path, and `sha256` is the digest of
    the file of the person's own that ran first; both are "" for a model of an installed collection.
    """

    source: SourceSpec
    arguments: FrozenMap[str, Any] = FrozenMap()
    inputs: tuple[InputSpec, ...] = ()
    folder: str = ""
    sha256: str = ""
    interface: Interface = Interface("")
    example: str = ""

    @property
    def refusal(self) -> str:
        """Why it cannot be trained, "" if it can."""
        if self.source.kind in ("pt2", "onnx"):
            return f"{self.source} is a graph in one mode: open the Python class that it was exported from to train it."
        odd = next(
            (
                argument
                for argument in self.interface.takes
                if argument.other and argument.needed
            ),
            None,
        )
        if odd is not None:
            return f"Its {odd.name} is a {odd.other}, and batches are tensors. Wrap it in a class that takes tensors."
        if self.interface.chief is None and not self.interface.own_losses:
            return (
                "It returns no tensor of floating point numbers that a loss could take."
            )
        if self.interface.quantised:
            return (
                f"{self.interface.quantised} is quantised: its packed int8 weights have no gradient, nor does anything "
                "before it get one, and no file of weights holds them. Train the model before it is quantised."
            )
        if not self.interface.parameters:
            return "It has no parameters, so there is nothing to train."
        return ""

    @property
    def given(self) -> tuple[Argument, ...]:
        """The arguments that it needs, or that were tensors in its call."""
        return tuple(
            argument
            for argument in self.interface.takes
            if argument.needed or argument.dtype
        )

    @property
    def optional(self) -> tuple[Argument, ...]:
        """The optional arguments of forward."""
        return tuple(
            argument
            for argument in self.interface.takes
            if not argument.needed and not argument.dtype and not argument.other
        )
