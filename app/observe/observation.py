"""One observed forward pass as frozen plain data: module calls, the operations in them, and the tensors between them.

Classes with tens of thousands of instances are written as arrays, and travel together.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Literal

from msgspec import Struct

from app.source.interface import Interface

Kind = Literal["module", "operation", "read", "input", "output"]


class TensorFacts(Struct, frozen=True, array_like=True):
    """Facts about a tensor without its values; `bytes` counts its elements, not the storage it views. A size that a
    file leaves open is its name there, and `bytes` is 0 then."""

    shape: tuple[int | str, ...]
    dtype: str
    device: str = "cpu"
    layout: str = "strided"
    bytes: int = 0
    requires_grad: bool = False


class Call(Struct, frozen=True, array_like=True):
    """One call during the forward pass, or a tensor that enters or leaves it.

    `path` is the qualified name of the module, or of the innermost module around an operation. `op` is the class of a
    module ("torch.nn.modules.conv.Conv2d") or the dotted name of a function ("torch.relu", "aten.add.Tensor"). `call`
    numbers the calls of that module from 1. `parent` is the call that this one ran in. `inputs` and `outputs` are the
    tensors among its arguments and results, in order, keyword arguments and members of containers included; `settings`
    are the other arguments of an operation as text. `parameters` names the model's parameters and buffers among the
    inputs of an operation. A "read" takes a Python value from a tensor, and `value` is that value, on which control
    flow may depend. `written` tells that an operation changed an input in place, `view` that its result shares memory
    with one. `kernels` are the aten operations it ran. `error` is the message of the exception that it raised.
    """

    id: int
    kind: Kind
    path: str
    op: str
    parent: int | None = None
    call: int = 0
    inputs: tuple[TensorFacts, ...] = ()
    outputs: tuple[TensorFacts, ...] = ()
    settings: tuple[str, ...] = ()
    parameters: tuple[str, ...] = ()
    value: str = ""
    file: str = ""
    line: int = 0
    written: bool = False
    view: bool = False
    kernels: tuple[str, ...] = ()
    error: str = ""

    @property
    def name(self) -> str:
        """The last part of a module's path, or of an operation's dotted name.

        >>> Call(1, "module", "encoder.0", "torch.nn.modules.linear.Linear").name
        '0'
        >>> Call(2, "operation", "encoder.0", "torch.nn.functional.linear").name
        'linear'
        """
        if self.kind == "module":
            return self.path.rpartition(".")[2]
        of_a_kernel = self.kernels[:1] == (
            self.op,
        )  # "aten.add.Tensor" ends in its overload
        return (self.op.rpartition(".")[0] if of_a_kernel else self.op).rpartition(".")[
            2
        ]

    @property
    def is_layer(self) -> bool:
        """Return whether it is a module of torch's own, whose inside is torch's and not the model's."""
        return self.kind == "module" and self.op.startswith("torch.nn.modules.")


class CallPlace(Struct, frozen=True, array_like=True):
    """Where something was called, as a picture of calls and one of the backward pass both know it: the path of the
    innermost module, which call of it (0 for any), and the line, 0 for the module as a whole."""

    path: str
    call: int = 0
    file: str = ""
    line: int = 0


class Flow(Struct, frozen=True, array_like=True):
    """A tensor that one call made and another took: ids of operations, inputs and outputs, and the output's number."""

    source: int
    target: int
    output: int = 0


class Observation(Struct, frozen=True, dict=True):
    """What a forward pass did, up to the call that raised if one did.

    `calls` are in the order in which they began, `flows` in the order in which tensors were taken. `failed` is the
    innermost call that raised the exception that left the model; `error` is its text. `modules` maps the path of every
    module to its class, also of those that were not called. `remarks` say what the picture does not hold. `interface`
    is what forward takes and returned; None if it raised, or was not run.
    """

    name: str
    calls: tuple[Call, ...]
    flows: tuple[Flow, ...]
    modules: dict[str, str]
    failed: int | None = None
    error: str = ""
    remarks: tuple[str, ...] = ()
    train: bool = False
    interface: Interface | None = None

    @property
    def failure(self) -> str:
        """What the model raised, with the innermost line of the user's own file, "" for nothing."""
        if not self.error or self.failed is None:
            return self.error
        call = self.calls[self.failed]
        return (
            f"{self.error} (line {call.line} of {Path(call.file).name})"
            if call.line
            else self.error
        )

    @property
    def failed_at(self) -> str:
        """The path or name of the call that raised, "" if none did."""
        if self.failed is None:
            return ""
        call = self.calls[self.failed]
        return call.path or call.name or self.name

    @cached_property
    def children(self) -> dict[int | None, tuple[int, ...]]:
        """Ids of the calls in each call, in order; those of None are at the top level."""
        ids_by_parent: dict[int | None, list[int]] = {}
        for call in self.calls:
            ids_by_parent.setdefault(call.parent, []).append(call.id)
        return {parent: tuple(ids) for parent, ids in ids_by_parent.items()}

    @property
    def reads(self) -> tuple[Call, ...]:
        """Calls that read Python values from tensors: later control flow may differ with other values."""
        return tuple(call for call in self.calls if call.kind == "read")
