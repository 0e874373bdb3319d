"""What each call of a network costs for one sample, as values; `app.builder.shapes.cost` works them out."""

from __future__ import annotations

from functools import cached_property

from msgspec import Struct

from app.builder.graph import Graph
from app.builder.shapes.receptive_field import Receptive
from app.util.frozen import FrozenMap, Shared

COUNTED, NOT_COUNTED, UNKNOWN, MUTED, NO_CALL = (
    "counted",
    "not counted",
    "unknown",
    "muted",
    "",
)


class CallCost(Struct, frozen=True):
    """Cost of one call for one sample. `flops` is None if torch has no formula for any of its operations.

    `gaps` are operations without a formula. `shares` means that the output aliases the input. `in_step` means that two
    samples cost twice as much as one. `tried` is False if the call failed while counting.
    """

    flops: int | None = None
    gaps: tuple[str, ...] = ()
    shares: bool = False
    in_step: bool = True
    tried: bool = True


class NodeCost(Shared, frozen=True):
    """Cost of one node for one sample.

    `state` is COUNTED, NOT_COUNTED, UNKNOWN if the shapes are, MUTED, or NO_CALL for inputs and outputs. `activation`
    is the size of its output in bytes, None if unknown; `shares` means that it aliases the input. `untrained` counts
    the parameters of a `frozen` node; those of a shared module are counted at its first call. A block or a repeated
    node is the sum of its parts.
    """

    parameters: int | None = None
    state: str = UNKNOWN
    call: CallCost = CallCost()
    output: str = ""
    activation: int | None = None
    receptive: Receptive | None = None
    live: bool = True
    frozen: bool = False
    untrained: int = 0

    @property
    def flops(self) -> int | None:
        return self.call.flops

    @property
    def multiply_adds(self) -> int | None:
        return None if self.flops is None else self.flops // 2

    @property
    def shares(self) -> bool:
        return self.call.shares

    @property
    def gaps_text(self) -> str:
        """The part of its work that is not counted; "" if there is none."""
        sentences = []
        if not self.call.tried:
            sentences.append("Counting its operations failed.")
        elif self.state == "not counted" and not self.call.gaps:
            sentences.append("No arithmetic: it only copies or views values.")
        elif self.call.gaps:
            also = (
                "No FLOP formula in PyTorch for"
                if self.flops is None
                else "Not counted, without a FLOP formula:"
            )
            sentences.append(f"{also} {', '.join(self.call.gaps)}.")
        if not self.call.in_step:
            sentences.append(
                "Its cost grows faster than the batch size: it mixes the samples of a batch."
            )
        return " ".join(sentences)


class NetworkCost(Shared, frozen=True, dict=True):
    """The cost of every node of a graph, in running order; the totals are of the nodes that an output needs."""

    graph: Graph
    nodes: FrozenMap[str, NodeCost] = FrozenMap()

    @cached_property
    def _live(self) -> list[NodeCost]:
        return [cost for cost in self.nodes.values() if cost.live]

    @cached_property
    def parameters(self) -> int:
        """Elements of the parameters, shared ones once."""
        return sum(cost.parameters or 0 for cost in self._live)

    @cached_property
    def frozen(self) -> int:
        """Parameters that are not trained."""
        return sum(cost.untrained for cost in self._live)

    @cached_property
    def flops(self) -> int | None:
        """Counted FLOPs for one sample; None without any count."""
        counted = [cost.flops for cost in self._live if cost.flops is not None]
        return sum(counted) if counted else None

    @cached_property
    def multiply_adds(self) -> int | None:
        """Half of the FLOPs, for one sample."""
        return None if self.flops is None else self.flops // 2

    @cached_property
    def activation(self) -> int:
        """Bytes of the activations of one sample; views of another value are not counted again."""
        return sum(cost.activation or 0 for cost in self._live if not cost.shares)

    @cached_property
    def not_counted(self) -> int:
        """How many nodes compute something, or may, that is not counted at all."""
        return sum(
            cost.state == NOT_COUNTED and (bool(cost.call.gaps) or not cost.call.tried)
            for cost in self._live
        )

    @cached_property
    def unknown(self) -> int:
        return sum(cost.state == UNKNOWN for cost in self._live)
