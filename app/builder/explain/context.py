"""Context of a failed call for the explainers: parameters, inputs, and torch's message."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

from msgspec import Struct

from app.builder.catalog.catalog import OpSpec
from app.builder.diagnostics.problems import Cure, InsertBefore, SetParam
from app.builder.graph import Graph, Node
from app.builder.plan import Ref, Step
from app.builder.results import CallFailed, StepResult
from app.builder.value_types import Dim, Size, TensorType
from app.util.frozen import FrozenMap
from app.util.language import tr

# A message with both shapes, a reason, and cures.
Explanation = tuple[str, str, tuple[Cure, ...]]


class Wire(Struct, frozen=True):
    """What arrives at a port, and which of its wires it is."""

    port: str
    index: int
    ref: Ref
    type: TensorType
    source: Node

    @property
    def name(self) -> str:
        """The name of the layer that it comes from."""
        return self.source.name

    @property
    def shape(self) -> tuple[Size, ...]:
        return self.type.shape

    @property
    def rank(self) -> int:
        return len(self.shape)


class FailedCall(Struct, frozen=True, dict=True):
    """A failed call, its result, and its graph."""

    step: Step
    result: StepResult
    graph: Graph

    @property
    def spec(self) -> OpSpec:
        return self.step.spec

    @property
    def label(self) -> str:
        return self.spec.label

    @property
    def name(self) -> str:
        return self.step.node.name

    def param(self, name: str, default: Any = None) -> Any:
        """Return a parameter as used: AUTO filled in, else the default."""
        declared = self.spec.param(name)
        return self.result.resolved.get(name, declared.default if declared else default)

    @cached_property
    def torch_messages(self) -> str:
        """Torch's messages, on meta tensors and on real ones."""
        outcome = self.result.outcome
        return (
            f"{outcome.error} {outcome.real_error}"
            if isinstance(outcome, CallFailed)
            else ""
        )

    @cached_property
    def wires(self) -> tuple[Wire, ...]:
        """The tensors that arrive, port by port."""
        wires = []
        for port, refs in self.step.args.items():
            for index, (ref, value) in enumerate(
                zip(refs, self.result.inputs.get(port, ()), strict=False)
            ):
                if isinstance(value, TensorType):
                    wires.append(
                        Wire(port, index, ref, value, self.graph.nodes[ref.node])
                    )
        return tuple(wires)

    def wire(self, port: str) -> Wire | None:
        return next((wire for wire in self.wires if wire.port == port), None)

    @cached_property
    def arriving(self) -> str:
        """Describe the input and source of each port in a sentence."""
        parts = [
            tr("{wire.name} gives {wire.type} to {wire.port}", wire=wire)
            for wire in self.wires
        ]
        return f"{'; '.join(parts)}." if parts else ""

    # --- Cures

    def set(self, name: str, value: Any) -> Cure:
        """Give a parameter of the call another value."""
        label = tr("Set {name}={value}", name=name, value=value)
        return Cure(label, (SetParam(self.step.id, name, value),))

    def before(self, wire: Wire, op: str, **params: Any) -> InsertBefore:
        """Put a call on a wire that arrives."""
        return InsertBefore(self.step.id, wire.port, op, FrozenMap(params), wire.index)

    def insert(self, label: str, wire: Wire, op: str, **params: Any) -> Cure:
        """Offer a call on a wire that arrives."""
        return Cure(label, (self.before(wire, op, **params),))


# Explains a call by the first tensor that arrives, or gives way to the next explainer.
Explainer = Callable[[FailedCall, Wire], Explanation | None]


def divisors(number: int, most: int) -> Iterator[int]:
    """Yield the divisors of a number up to `most`, the largest first."""
    return (size for size in range(min(number, most), 0, -1) if number % size == 0)


def batched(shape: tuple[Size, ...]) -> bool:
    """Return whether the batch comes first and all other sizes are known."""
    return (
        bool(shape)
        and shape[0] == Dim(1)
        and all(isinstance(size, int) for size in shape[1:])
    )
