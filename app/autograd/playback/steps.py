"""The steps of a played backward pass and one gradient inspected: frozen plain data without tensors or autograd nodes.

Classes with tens of thousands of instances are `Struct`s, as in `app.autograd.tape`.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

from msgspec import Struct

from app.autograd.grouping import node_keys
from app.autograd.tape import Tape
from app.telemetry.histogram import Histogram


class GradStats(Struct, frozen=True, array_like=True):
    """A gradient in numbers. `norm` is the L2 norm, `zeros` the share of elements that are exactly 0.

    NaN and Inf show in `norm`, `absmax` and `mean` as they are, and are counted in `nonfinite`. Of complex gradients
    the magnitudes are measured. `unscaled` is the norm without the factor that a gradient scaler put on the loss; it
    equals `norm` without one.
    """

    shape: tuple[int, ...]
    dtype: str
    norm: float
    absmax: float
    mean: float
    zeros: float
    nonfinite: int
    unscaled: float


class EdgeGrad(Struct, frozen=True, array_like=True):
    """The gradient that leaves node `source` by `slot`, reduced to the input's shape and dtype, before it is added to
    those of other edges. `stats` is None without a gradient."""

    source: int
    slot: int
    target: int
    output_nr: int
    stats: GradStats | None


class Share(Struct, frozen=True, array_like=True):
    """Contribution of one edge to a sum. `source` and `slot` are -1 for the given seed or an edited gradient.

    `projection` is its signed fraction of the sum, by projection: those of a sum add up to 1, and a negative one
    opposes the others. None if the sum is 0 or not finite.
    """

    source: int
    slot: int
    norm: float
    projection: float | None


class FanIn(Struct, frozen=True, array_like=True):
    """Several gradients added up before output `output_nr` of `node`. `cosines[i][j]` is between shares i and j, None
    where one of them is 0 or not finite. `shares` and `cosines` are empty where too many edges meet to keep them."""

    node: int
    output_nr: int
    norm: float
    shares: tuple[Share, ...]
    cosines: tuple[tuple[float | None, ...], ...]
    edges: int


class StepRecord(Struct, frozen=True, array_like=True):
    """One node's run. `position` is its index in the order.

    `arriving` are the incoming gradients by output number, after all sums, edits and hooks. `leaving` has an entry for
    each edge, in slot order. `seconds` is the node's own time; each node of a checkpoint recomputes it here, while in a
    real backward only the first one does. `released` are the bytes of activations freed after this node, `held` those
    held after it. `made` counts the nodes that the step created (with `create_graph`). `edited` are the output numbers
    that the user edited, `hooked` those whose gradient a tensor hook or a node's prehook replaced. `inside` are
    parameter gradients that the node accumulated itself, by name, as a reentrant checkpoint does.
    """

    position: int
    node: int
    arriving: tuple[GradStats | None, ...]
    leaving: tuple[EdgeGrad, ...]
    fan_ins: tuple[FanIn, ...]
    seconds: float
    released: int
    held: int
    made: int = 0
    edited: tuple[int, ...] = ()
    hooked: tuple[int, ...] = ()
    inside: tuple[tuple[str, GradStats], ...] = ()

    @property
    def norm(self) -> float | None:
        """The norm of all incoming gradients; None without any."""
        return whole_norm(self.arriving)

    def worst(self) -> float:
        """Return the largest unscaled norm that arrives or leaves; NaN if one of them is."""
        norms = [
            stats.unscaled
            for stats in (*self.arriving, *(edge.stats for edge in self.leaving))
            if stats
        ]
        return max(norms, key=lambda norm: (norm != norm, norm), default=0.0)


def whole_norm(parts: Iterable[GradStats | None]) -> float | None:
    """Return the joint norm of several gradients; None without any."""
    norms = [grad_stats.norm for grad_stats in parts if grad_stats is not None]
    return (
        sum(norm * norm for norm in norms) ** 0.5
        if len(norms) > 1
        else next(iter(norms), None)
    )


class PassResult(Struct, frozen=True, dict=True):
    """Steps that were played, in order. `order` are their nodes."""

    records: tuple[StepRecord, ...]

    @property
    def order(self) -> tuple[int, ...]:
        return tuple(record.node for record in self.records)

    @cached_property
    def by_node(self) -> dict[int, StepRecord]:
        return {record.node: record for record in self.records}

    @cached_property
    def node_norms(self) -> dict[int, float]:
        """The norm that arrived, by node; nodes without a gradient are left out."""
        return {
            record.node: record.norm
            for record in self.records
            if record.norm is not None
        }

    @cached_property
    def edge_norms(self) -> dict[tuple[int, int], float]:
        """The norm that left, by (source, slot)."""
        return {
            (e.source, e.slot): e.stats.norm
            for record in self.records
            for e in record.leaving
            if e.stats
        }


class Breaks(Struct, frozen=True):
    """Break conditions. A node or layer breaks before it runs; a norm or a value after the step that produced it.

    `layers` are group keys ("node:n1", "layer:fc1", "loss"), module paths (all below them count) or drawing nodes.
    """

    norm_above: float | None = None
    non_finite: bool = False
    nodes: frozenset[int] = frozenset()
    layers: frozenset[str] = frozenset()


class Stop(Struct, frozen=True):
    """The end of a run: `reason` is "end", "node", "layer", "norm", "non_finite" or "cancelled".

    `node` is the one that runs next for "node", "layer" and "cancelled", and the one that just ran for "norm" and
    "non_finite"; None at the end.
    """

    reason: str
    position: int
    node: int | None = None
    value: float | None = None


def stops_at(tape: Tape, breaks: Breaks) -> dict[int, str]:
    """Node -> "node" or "layer", for what `breaks` stops before: every node named, and of a layer where it begins."""
    stops: dict[int, str] = {}
    if breaks.layers:
        keys, inside_before = node_keys(tape), False
        for node in tape.order:
            inside = bool(_names(tape, node, keys[node]) & breaks.layers)
            if inside and not inside_before:
                stops[node] = "layer"
            inside_before = inside
    stops.update(dict.fromkeys(breaks.nodes, "node"))
    return stops


def _names(tape: Tape, number: int, key: str) -> set[str]:
    """Return all names of a node's layer that a break may refer to."""
    node = tape.nodes[number]
    names = {key}
    if node.in_loss:
        return names
    if node.node is not None:
        names.add(node.node)
    path = node.layer
    while path:
        names.add(path)
        path = path.rpartition(".")[0]
    return names


class Picture(Struct, frozen=True):
    """`height` rows of `width` bytes: 128 is 0, 1 and 255 are minus and plus the gradient's `absmax`, and 0 is NaN or
    infinite. Larger gradients are subsampled: `every` are the strides of rows and columns."""

    height: int
    width: int
    data: bytes
    every: tuple[int, int] = (1, 1)


class GradientLook(Struct, frozen=True):
    """`rows` are numbers as text from the start of the last two dimensions, at the index `where`.

    `histogram` is of the finite values; `nan`, `positive_inf` and `negative_inf` count the others. `pictures` are one
    for each channel of the sample at `at` (4 dimensions), or one (2 and 3 dimensions, and 1 as a single row). `leading`
    are the sizes of the dimensions that `at` chooses in.
    """

    stats: GradStats
    where: str
    rows: tuple[tuple[str, ...], ...]
    histogram: Histogram
    nan: int
    positive_inf: int
    negative_inf: int
    pictures: tuple[Picture, ...]
    at: tuple[int, ...] = ()
    leading: tuple[int, ...] = ()
