"""Warnings about code that runs but is probably a mistake, each with numbers, and a cure if one is sure to help.

False positives are worse than none, so each check documents its exceptions. Imports no torch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from app.builder.catalog.catalog import Catalog, OpSpec
from app.builder.diagnostics.problems import (
    Cure,
    InsertBefore,
    Problem,
    RemoveNode,
    SetParam,
    TakeOut,
    apply_cure,
)
from app.builder.graph import Edge, Graph, Node
from app.builder.literals import AUTO
from app.builder.plan import Ref, passed_by
from app.builder.rules import upstream
from app.builder.value_types import Dim, NumberType, TensorType, TupleType, ValueType
from app.util.formatting import grouped_digits
from app.util.frozen import FrozenMap
from app.util.language import tr, trn

if TYPE_CHECKING:
    from app.builder.results import Analysis

# Functions of single numbers, by `plain_name`. Softplus is not here: Tanh of it is the middle of Mish.
ACTIVATIONS = frozenset(
    "relu relu6 leakyrelu prelu rrelu elu selu celu gelu silu mish hardswish sigmoid hardsigmoid tanh hardtanh "
    "softsign tanhshrink".split()
)
NEVER_NEGATIVE = frozenset("relu relu6 sigmoid hardsigmoid".split())
RESHAPING = frozenset(
    "flatten unflatten view reshape squeeze unsqueeze identity contiguous".split()
)
SOFTMAXES = frozenset("softmax logsoftmax softmin".split())
# Their derivative is 0 wherever there is one.
CUTS = frozenset({"detach"})
STEPS = frozenset(
    "sign sgn round floor ceil trunc heaviside zeroslike oneslike fulllike".split()
)
POOLS = frozenset("maxpool1d maxpool2d maxpool3d avgpool1d avgpool2d avgpool3d".split())

LARGEST_LINEAR = 50_000_000
LARGE_LINEAR, LARGE_SHARE = 10_000_000, 0.8
# A table of words is large by right.
LARGE = frozenset(
    "linear bilinear conv1d conv2d conv3d convtranspose1d convtranspose2d convtranspose3d".split()
)


@cache
def plain_name(op: str) -> str:
    """Normalise the name of an op: `nn.LogSoftmax` and `F.log_softmax` are both "logsoftmax"."""
    return op.rpartition(".")[2].replace("_", "").lower().removeprefix("lazy")


def structure(
    analysis: Analysis, ops: Catalog, runs: Callable[[Graph], bool]
) -> list[Problem]:
    """Run the structural checks on a network without errors; `runs` tells whether a changed graph still runs."""
    net = Net(analysis, ops)
    return [
        *_ranges(net),
        *_deaf_outputs(net),
        *_cut_gradients(net),
        *_large_layers(net, runs),
        *_late_dropouts(net),
        *_lost_biases(net),
        *_double_activations(net),
        *_double_linears(net),
        *_dropped_pixels(net, runs),
    ]


class Net(Struct, frozen=True, dict=True):
    """A network under check: its connections, and the types on its wires."""

    analysis: Analysis
    ops: Catalog

    @cached_property
    def graph(self) -> Graph:
        """The graph with muted nodes bypassed, as values flow."""
        drawn = self.analysis.graph
        if not any(node.muted for node in drawn.nodes.values()):
            return drawn
        wires = []
        for edge in drawn.edges:
            ref = passed_by(drawn, self.ops, Ref(edge.source, edge.output))
            if ref is not None and not drawn.nodes[edge.target].muted:
                wires.append(replace(edge, source=ref.node, output=ref.output))
        return replace(drawn, edges=tuple(wires))

    @cached_property
    def live(self) -> tuple[Node, ...]:
        """Nodes whose value reaches an output."""
        walk = self.analysis.walk
        uncalled = (
            {step.id for step in walk.steps if step.kept} if walk is not None else set()
        )
        return tuple(
            n
            for n in self.graph.nodes.values()
            if n.id in self.analysis.live and n.id not in uncalled
        )

    @property
    def outputs(self) -> tuple[Node, ...]:
        return tuple(node for node in self.live if node.op == "output")

    def spec(self, node: Node) -> OpSpec:
        return self.ops.spec_of(self.graph, node)

    def param(self, node: Node, name: str) -> Any:
        """Return a parameter as used: AUTO filled in, else the default."""
        resolved = self.analysis.resolved.get(node.id, FrozenMap())
        return resolved[name] if name in resolved else self.spec(node).value(node, name)

    def feeds(self, node: Node) -> tuple[Node, ...]:
        return tuple(self.graph.nodes[edge.source] for edge in self.graph.into(node.id))

    def feed(self, node: Node) -> Node | None:
        """Return the only node that feeds it, None if there are several."""
        feeds = self.feeds(node)
        return feeds[0] if len(feeds) == 1 else None

    def takers(self, node: Node) -> tuple[Node, ...]:
        targets = dict.fromkeys(edge.target for edge in self.graph.out_of(node.id))
        return tuple(
            self.graph.nodes[target]
            for target in targets
            if target in self.analysis.live
        )

    def carried(self, edge: Edge) -> ValueType | None:
        return self.analysis.values.get((edge.source, edge.output))

    def arriving(self, node: Node) -> TensorType | None:
        edges = self.graph.into(node.id)
        value = self.carried(edges[0]) if edges else None
        return value if isinstance(value, TensorType) else None

    def leaving(self, node: Node) -> TensorType | None:
        value = self.analysis.values.get((node.id, 0))
        return value if isinstance(value, TensorType) else None

    def is_dropout(self, node: Node) -> bool:
        return self.spec(node).category == "drop"

    def before(self, node: Node, passing: Callable[[Node], bool]) -> Iterator[Node]:
        """Walk backwards along single wires through nodes for which `passing` is True; end with the first other."""
        at = self.feed(node)
        while at is not None:
            yield at
            at = self.feed(at) if passing(at) else None


def take_out(node: Node) -> Cure:
    return Cure(tr("Remove {name}", name=node.name), (TakeOut(node.id),))


def listed(nodes: tuple[Node, ...]) -> str:
    """Join names of nodes, abbreviated after three."""
    names = [node.name for node in nodes]
    if len(names) > 3:
        more = tr("and {number} more", number=len(names) - 2)
        return f"{', '.join(names[:2])} {more}"
    return f" {tr('and')} ".join(names)


# --- Layers without the intended effect ---------------------------------------------------------------------------


def _double_activations(net: Net) -> Iterator[Problem]:
    for node in net.live:
        first = net.feed(node)
        second_name = plain_name(node.op)
        if (
            first is None
            or second_name not in ACTIVATIONS
            or plain_name(first.op) not in ACTIVATIONS
        ):
            continue
        label, shape = net.spec(node).label, net.leaving(node)
        reason = tr(
            "{first} and {second} are applied to each value of {shape} with no layer in between.",
            first=net.spec(first).label,
            second=label,
            shape=shape,
        )
        if second_name == "relu" and plain_name(first.op) in NEVER_NEGATIVE:
            reason = tr(
                "The output of {other} is never below 0, so {second} changes no value of {shape}.",
                other=first.name,
                second=label,
                shape=shape,
            )
        message = tr(
            "{name} follows another activation, {other}",
            name=node.name,
            other=first.name,
        )
        yield Problem(
            "warning",
            node.id,
            message,
            reason,
            cures=(take_out(node),),
            code="double-activation",
        )


def _double_linears(net: Net) -> Iterator[Problem]:
    """Report two Linear layers in a row. A bottleneck, narrow between two wide ones, is intended."""
    for node in net.live:
        if plain_name(node.op) != "linear":
            continue
        first = [node, *net.before(node, net.is_dropout)][-1]
        if (
            first is node
            or plain_name(first.op) != "linear"
            or len(net.takers(first)) > 1
        ):
            continue
        wide, middle = net.param(first, "in_features"), net.param(first, "out_features")
        narrow = net.param(node, "out_features")
        if not all(
            isinstance(size, int) for size in (wide, middle, narrow)
        ) or middle < min(wide, narrow):
            continue
        both = net.analysis.parameters.get(first.id, 0) + net.analysis.parameters.get(
            node.id, 0
        )
        merged_count = wide * narrow + (
            narrow if net.param(node, "bias") or net.param(first, "bias") else 0
        )
        message = tr(
            "{name} follows {other} without an activation",
            name=node.name,
            other=first.name,
        )
        reason = tr(
            "Two linear maps {wide}→{middle}→{narrow} are one linear map {wide}→{narrow}: {merged_count:,} "
            "parameters could express what these {both:,} do.",
            wide=wide,
            middle=middle,
            narrow=narrow,
            merged_count=merged_count,
            both=both,
        )
        cure = Cure(
            tr("Insert {layer}", layer="ReLU"),
            (InsertBefore(node.id, "input", "nn.ReLU"),),
        )
        yield Problem(
            "warning",
            node.id,
            message,
            reason,
            port="input",
            cures=(cure,),
            code="double-linear",
        )


def _lost_biases(net: Net) -> Iterator[Problem]:
    """Find biases before a BatchNorm, which subtracts the channel mean and the bias with it."""
    for node in net.live:
        name, shape, takers = plain_name(node.op), net.leaving(node), net.takers(node)
        conv = name in (
            "conv1d",
            "conv2d",
            "conv3d",
            "convtranspose1d",
            "convtranspose2d",
            "convtranspose3d",
        )
        if not conv and not (
            name == "linear" and shape is not None and len(shape.shape) == 2
        ):
            continue
        if not takers or net.param(node, "bias") is not True:
            continue
        if not all(
            plain_name(taker.op).startswith(("batchnorm", "syncbatchnorm"))
            for taker in takers
        ):
            continue
        count = net.param(node, "out_channels" if conv else "out_features")
        message = tr(
            "The bias of {name} has no effect before {norms}",
            name=node.name,
            norms=listed(takers),
        )
        reason = tr(
            "BatchNorm subtracts the mean of each channel, and {count:,} bias parameters with it.",
            count=count,
        )
        cure = Cure(
            tr("Set {name}={value}", name="bias", value=False),
            (SetParam(node.id, "bias", False),),
        )
        yield Problem(
            "warning", node.id, message, reason, cures=(cure,), code="bias-before-norm"
        )


def _late_dropouts(net: Net) -> Iterator[Problem]:
    def passing(node: Node) -> bool:
        alone = len(net.graph.out_of(node.id)) == 1
        return alone and (
            plain_name(node.op) in RESHAPING | SOFTMAXES or net.is_dropout(node)
        )

    for output in net.outputs:
        way = list(net.before(output, passing))
        if not way or way[-1].op == "input":
            continue
        for node in way:
            chance, shape = net.param(node, "p"), net.arriving(node)
            if (
                not net.is_dropout(node)
                or not passing(node)
                or not chance
                or shape is None
            ):
                continue
            size = shape.per_sample()
            count = f" {grouped_digits(size)}" if size else ""
            message = tr("{name} comes after the last layer", name=node.name)
            reason = tr(
                "In training it sets each of the{count} output values to 0 with probability {chance}.",
                count=count,
                chance=chance,
            )
            yield Problem(
                "warning",
                node.id,
                message,
                reason,
                cures=(take_out(node),),
                code="late-dropout",
            )


def _dropped_pixels(net: Net, runs: Callable[[Graph], bool]) -> Iterator[Problem]:
    """Find pooling windows that drop the end of an axis. One row or column is common and not reported."""
    for node in net.live:
        shape = net.arriving(node)
        if (
            plain_name(node.op) not in POOLS
            or shape is None
            or net.param(node, "ceil_mode")
        ):
            continue
        dims = int(plain_name(node.op)[-2])
        sides = [
            (i, size)
            for i, size in enumerate(shape.shape[-dims:])
            if isinstance(size, int)
        ]
        rest, size = max(
            ((_uncovered(net, node, i, size), size) for i, size in sides),
            default=(0, 0),
        )
        if rest <= 1:
            continue
        cure = Cure(
            tr("Set {name}={value}", name="ceil_mode", value=True),
            (SetParam(node.id, "ceil_mode", True),),
        )
        message = tr(
            "{name} leaves out the last {rest} of {size}",
            name=node.name,
            rest=rest,
            size=size,
        )
        reason = tr(
            "Of {shape} the windows reach {reached} along that side. ceil_mode=True adds one more window.",
            shape=shape,
            reached=size - rest,
        )
        yield Problem(
            "warning",
            node.id,
            message,
            reason,
            cures=(cure,) if _helps(net, cure, runs) else (),
            code="dropped-pixels",
        )


def _uncovered(net: Net, node: Node, axis: int, size: int) -> int:
    """Return how many values at the end of an axis are in no window."""

    def along(name: str, default: Any) -> int:
        value = net.param(node, name) if net.spec(node).param(name) else default
        value = default if value is None else value
        return (
            int(value[min(axis, len(value) - 1)])
            if isinstance(value, tuple)
            else int(value)
        )

    window = along("kernel_size", 1)
    step, padding = along("stride", window), along("padding", 0)
    reach = along("dilation", 1) * (window - 1) + 1
    if step > reach:  # strided past on purpose
        return 0
    return (size + 2 * padding - reach) % step - padding


def _helps(net: Net, cure: Cure, runs: Callable[[Graph], bool]) -> bool:
    return runs(apply_cure(net.analysis.graph, net.ops, cure))


def _deaf_outputs(net: Net) -> Iterator[Problem]:
    """Find outputs that depend on no Input, only on parameters and constants."""
    for output in net.outputs:
        before = upstream(net.graph, (output.id,))
        if not before or any(net.graph.nodes[node].op == "input" for node in before):
            continue
        sources = tuple(
            node
            for node in net.live
            if node.id in before and not net.graph.into(node.id)
        )
        reason = tr(
            "It depends only on {sources}, so it is the same for all data.",
            sources=listed(sources),
        )
        cures = (
            (Cure(f"Remove {output.name}", (RemoveNode(output.id),)),)
            if len(net.outputs) > 1
            else ()
        )
        message = tr("No Input reaches {name}", name=output.name)
        yield Problem(
            "warning",
            output.id,
            message,
            reason,
            port="input",
            cures=cures,
            code="output-without-input",
        )


# --- Parameters ---------------------------------------------------------------------------------------------------


def _large_layers(net: Net, runs: Callable[[Graph], bool]) -> Iterator[Problem]:
    total = net.analysis.total_parameters
    for node in net.live:
        count = net.analysis.parameters.get(node.id, 0)
        if plain_name(node.op) not in LARGE or not _too_large(count, total):
            continue
        message = tr(
            "{name} holds {million:,.1f} million parameters",
            name=node.name,
            million=count / 1000000.0,
        )
        reason = tr(
            "That is {percent:.0f} % of the network and {megabytes:,.0f} MB as float32; gradients and the two "
            "moment estimates of Adam take three times as much again.",
            percent=100 * count / total,
            megabytes=count * 4 / 1000000.0,
        )
        cures = tuple(
            cure
            for cure in _smaller(net, node, total - count)
            if _helps(net, cure, runs)
        )
        yield Problem(
            "warning", node.id, message, reason, cures=cures, code="large-layer"
        )


def _too_large(count: int, total: int) -> bool:
    return count > LARGEST_LINEAR or (
        count > LARGE_LINEAR and count > LARGE_SHARE * total
    )


def _smaller(net: Net, node: Node, others: int) -> Iterator[Cure]:
    """Propose global average pooling before the Flatten if that makes the layer small enough."""
    flatten = net.feed(node) if plain_name(node.op) == "linear" else None
    shape = (
        net.arriving(flatten)
        if flatten is not None and plain_name(flatten.op) == "flatten"
        else None
    )
    pool = "nn.AdaptiveAvgPool2d"
    if flatten is None or shape is None or len(shape.shape) != 4 or pool not in net.ops:
        return
    channels = shape.shape[1]
    if not isinstance(channels, int) or len(net.takers(flatten)) != 1:
        return
    count = channels * net.param(node, "out_features") + net.param(node, "out_features")
    if _too_large(count, others + count):
        return
    edits: tuple[Any, ...] = (
        InsertBefore(flatten.id, "input", pool, FrozenMap(output_size=1)),
    )
    if node.params.get("in_features", AUTO) is not AUTO:
        edits = (*edits, SetParam(node.id, "in_features", channels))
    yield Cure(tr("Insert {layer}", layer="AdaptiveAvgPool2d"), edits)


def _cut_gradients(net: Net) -> Iterator[Problem]:
    """Find layers whose every path to an output passes a non-differentiable node."""
    reached = {node.id for node in net.outputs}
    todo = list(reached)
    while todo:
        for edge in net.graph.into(todo.pop()):
            source = net.graph.nodes[edge.source]
            if (
                source.id not in reached
                and _has_gradient(net.carried(edge))
                and not _stops(source)
            ):
                reached.add(source.id)
                todo.append(source.id)
    groups: dict[str, list[Node]] = {}
    for node in net.live:
        if (
            net.analysis.parameters.get(node.id)
            and node.id not in reached
            and not node.frozen
        ):
            groups.setdefault(_cutter(net, node), []).append(node)
    for cutter, nodes in groups.items():
        yield _cut_problem(net, net.graph.nodes[cutter], tuple(nodes))


def _stops(node: Node) -> bool:
    return plain_name(node.op) in STEPS | CUTS


def _has_gradient(value: ValueType | None) -> bool:
    if isinstance(value, TupleType):
        return any(_has_gradient(item) for item in value.items)
    if isinstance(value, NumberType):
        return False
    return value is None or value.dtype.startswith(("float", "bfloat", "complex"))


def _cutter(net: Net, start: Node) -> str:
    """Return the first node after `start` whose output has no gradient."""
    todo, visited = [start], {start.id}
    for node in todo:
        values = [net.carried(edge) for edge in net.graph.out_of(node.id)]
        if _stops(node) or (values and not any(map(_has_gradient, values))):
            return node.id
        fresh = [taker for taker in net.takers(node) if taker.id not in visited]
        visited |= {taker.id for taker in fresh}
        todo += fresh
    return start.id


def _cut_problem(net: Net, cutter: Node, nodes: tuple[Node, ...]) -> Problem:
    count = sum(net.analysis.parameters[node.id] for node in nodes)
    value, label = net.leaving(cutter), net.spec(cutter).label
    why = tr("The derivative of {second} is 0", second=label)
    if plain_name(cutter.op) in CUTS:
        why = tr("{second} detaches its output from the graph", second=label)
    if value is not None and not _has_gradient(value):
        why = tr(
            "{second} gives {dtype}, which has no gradient",
            second=label,
            dtype=value.dtype,
        )
    reason = trn(
        "{why}: {layers} before it, with {parameters:,} parameters, gets no gradient and will not be trained.",
        "{why}: {layers} before it, with {parameters:,} parameters, get no gradient and will not be trained.",
        len(nodes),
        why=why,
        layers=listed(nodes),
        parameters=count,
    )
    last = all(taker.op == "output" for taker in net.takers(cutter))
    same = value is not None and net.arriving(cutter) == value
    cures = (
        (take_out(cutter),)
        if net.feed(cutter) is not None and cutter not in nodes and (last or same)
        else ()
    )
    return Problem(
        "warning",
        cutter.id,
        tr("No gradient flows through {name}", name=cutter.name),
        reason,
        cures=cures,
        code="cut-gradient",
    )


def spatial(shape: TensorType | None) -> int | None:
    """Return the values per sample and channel, None unless the batch comes first and all other sizes are known."""
    if shape is None or len(shape.shape) < 2 or shape.shape[0] != Dim(1):
        return None
    sizes = [size for size in shape.shape[2:] if isinstance(size, int)]
    return math.prod(sizes) if len(sizes) == len(shape.shape) - 2 else None


# --- Index ranges: whether the declared values of an Input are valid rows of embedding tables

_TABLES = {
    "nn.Embedding": "num_embeddings",
    "nn.EmbeddingBag": "num_embeddings",
    "F.one_hot": "num_classes",
}
# What gives the very values that arrive at its first input.
_SAME_VALUES = frozenset(
    """
    nn.Flatten nn.Unflatten nn.Identity nn.ChannelShuffle Tensor.view Tensor.expand Tensor.contiguous Tensor.long
    Tensor.to torch.reshape torch.flatten torch.permute torch.transpose torch.movedim torch.squeeze torch.unsqueeze
    torch.tile torch.repeat_interleave torch.chunk torch.split torch.select torch.narrow torch.roll torch.flip
    torch.clone torch.detach operator.getitem
    """.split()
)


def _ranges(net: Net) -> Iterator[Problem]:
    """Find tables smaller than an input's declared range, or indexed below 0."""
    for node in net.live:
        size = net.param(node, _TABLES.get(node.op, ""))
        source = _source(net, node) if type(size) is int else None
        if source is None or type(size) is not int:
            continue
        low, high = source.params.get("low"), source.params.get("high")
        table = _TABLES[node.op]
        if high is not None and high > size:
            message = tr(
                "{source} has values up to {last}, {name} has {size:,} rows",
                source=source.name,
                last=int(high) - 1,
                name=node.name,
                size=size,
            )
            reason = tr(
                "Rows are counted from 0, so {table} must be at least {high}.",
                table=table,
                high=int(high),
            )
            cures = (
                Cure(
                    f"Set {table}={int(high)}", (SetParam(node.id, table, int(high)),)
                ),
                Cure(
                    tr("Set high={size} at {source}", size=size, source=source.name),
                    (SetParam(source.id, "high", size),),
                ),
            )
            yield Problem(
                "error", node.id, message, reason, cures=cures, code="index-range"
            )
        elif low is not None and low < 0:
            message = tr(
                "{source} has values from {low}, and {name} has no rows below 0",
                source=source.name,
                low=low,
                name=node.name,
            )
            cure = Cure(
                tr("Set low=0 at {source}", source=source.name),
                (SetParam(source.id, "low", 0),),
            )
            yield Problem(
                "error",
                node.id,
                message,
                tr("Rows are counted from 0."),
                cures=(cure,),
                code="index-range",
            )


def _source(net: Net, node: Node) -> Node | None:
    """Return the input whose values are the indices, None if they are computed."""
    visited: set[str] = set()
    while node.id not in visited:
        visited.add(node.id)
        first = next((port.name for port in net.spec(node).inputs), "")
        wire = next(
            (edge for edge in net.graph.into(node.id) if edge.port == first), None
        )
        if wire is None:
            return None
        node = net.graph.nodes[wire.source]
        if node.op == "input":
            return node
        if node.op not in _SAME_VALUES:
            return None
    return None
