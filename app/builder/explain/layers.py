"""Explain why a layer rejects its input: dimensions, channels, windows, groups, heads."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

from app.builder.catalog import ops
from app.builder.diagnostics.problems import (
    Cure,
    Move,
    ReplaceOp,
    SetParam,
    TakeOut,
)
from app.builder.explain.context import Explanation, FailedCall, Wire, batched, divisors
from app.builder.graph import Graph, Node
from app.builder.literals import AUTO
from app.builder.value_types import Dim, Size
from app.util.formatting import shape_text
from app.util.language import tr, trn

_OF_PICTURES = re.compile(
    r"(nn\.(?:Conv|ConvTranspose|BatchNorm|InstanceNorm|\w*Pool|MaxUnpool|\w+Pad|Dropout)|F\.\w*pool)([123])d"
)
# Number of dimensions that a layer takes, batch included, if its name does not tell.
_RANKS = {
    op: ranks
    for ranks, ops_of_ranks in (
        ((1, 2), "nn.LSTMCell nn.GRUCell nn.RNNCell nn.EmbeddingBag"),
        ((2, 3), "nn.LSTM nn.GRU nn.RNN nn.MultiheadAttention nn.BatchNorm1d"),
        (
            (2, 3),
            "nn.TransformerEncoderLayer nn.TransformerDecoderLayer nn.Transformer",
        ),
        ((3,), "F.conv1d nn.Fold"),
        ((4,), "F.conv2d nn.Unfold nn.Softmax2d nn.CrossMapLRN2d"),
        ((4,), "nn.PixelShuffle nn.PixelUnshuffle F.pixel_shuffle F.pixel_unshuffle"),
        ((4,), "nn.UpsamplingNearest2d nn.UpsamplingBilinear2d"),
        ((5,), "F.conv3d"),
        ((3, 4, 5), "nn.Upsample F.interpolate nn.LocalResponseNorm nn.ChannelShuffle"),
    )
    for op in ops_of_ranks.split()
}
_WIDTHS = ("in_channels", "num_features", "num_channels")


def wrong_rank(call: FailedCall, wire: Wire) -> Explanation | None:
    """Explain an input with too few or too many dimensions."""
    ranks = _ranks(call.spec.key)
    if not ranks or wire.rank in ranks:
        return None
    message = tr(
        "{call.label} expects {ranks} dimensions, gets {wire.type} from {wire.name}",
        call=call,
        ranks=f" {tr('or')} ".join(map(str, ranks)),
        wire=wire,
    )
    reason = tr("{wire.type} has {wire.rank}, with the batch counted.", wire=wire)
    nearest = min(ranks, key=lambda rank: abs(rank - wire.rank))
    return message, reason, tuple(_rank_cures(call, wire, nearest))


def _ranks(key: str) -> tuple[int, ...]:
    match = _OF_PICTURES.fullmatch(key)
    return _RANKS.get(key) or ((int(match[2]) + 2,) if match else ())


def _rank_cures(call: FailedCall, wire: Wire, expected_rank: int) -> Iterator[Cure]:
    """Propose a Flatten, a channel dimension, an unflatten to a square image; else the variant for this rank."""
    rank = wire.rank
    if expected_rank > rank:
        yield from _without_flatten(call, wire)
    if rank > expected_rank >= 2:
        start = {"start_dim": expected_rank - 1} if expected_rank > 2 else {}
        label = tr("Insert {layer}", layer="Flatten")
        yield call.insert(label, wire, "nn.Flatten", **start)
    elif rank + 1 == expected_rank:
        yield _unflatten(call, wire, tr("Add a channel dimension"), (1, -1))
    flat = wire.type.per_sample()
    side = math.isqrt(flat) if flat else 0
    if expected_rank == 4 and rank == 2 and flat and side * side == flat:
        label = tr("Insert {layer}", layer=f"Unflatten (1×{side}×{side})")
        yield _unflatten(call, wire, label, (1, side, side))
    match = _OF_PICTURES.fullmatch(call.spec.key)
    sides = max(rank - 2, 1) if "BatchNorm" in call.spec.key else rank - 2
    params = call.step.node.params
    is_plain = not any(isinstance(value, tuple) for value in params.values())
    if match is not None and sides in (1, 2, 3) and is_plain:
        op = f"{match[1]}{sides}d"
        edit = ReplaceOp(call.step.id, op, params)
        yield Cure(tr("Use {layer}", layer=op.partition(".")[2]), (edit,))


def _without_flatten(call: FailedCall, wire: Wire) -> Iterator[Cure]:
    """Propose to have a Flatten behind the layer or nowhere; its width is inferred where it was typed as the flat
    one."""
    cures = past_flatten(call.graph, wire.source, call.step.node)
    typed = call.step.node.params
    param = next((name for name in _WIDTHS if name in typed), None)
    if param is None or typed[param] != wire.type.per_sample():
        yield from cures
        return
    for cure in cures:
        label = tr("{cure} and infer {param}", cure=cure.label, param=param)
        yield Cure(label, (*cure.edits, SetParam(call.step.id, param, AUTO)))


def past_flatten(graph: Graph, flatten: Node, node: Node) -> Iterator[Cure]:
    """Propose to move a Flatten after the node that follows it, or to remove it; nothing for another op."""
    if flatten.op not in ("nn.Flatten", "torch.flatten", "Tensor.flatten"):
        return
    takers = graph.out_of(node.id)
    if len(takers) == 1 and graph.nodes[takers[0].target].op != "output":
        move = Move(flatten.id, takers[0].target, takers[0].port, takers[0].index)
        label = tr("Move {first} behind {second}", first=flatten.name, second=node.name)
        yield Cure(label, (move,))
    yield Cure(tr("Remove {name}", name=flatten.name), (TakeOut(flatten.id),))


def _unflatten(
    call: FailedCall, wire: Wire, label: str, sizes: tuple[int, ...]
) -> Cure:
    return call.insert(label, wire, "nn.Unflatten", dim=1, unflattened_size=sizes)


# --- Channels and features


def channels_last(call: FailedCall, wire: Wire) -> Explanation | None:
    """Explain channels last, N×H×W×C, where PyTorch expects N×C×H×W."""
    param = next((name for name in _WIDTHS if call.spec.param(name)), None)
    if param is None or wire.rank < 3 or not batched(wire.shape):
        return None
    declared = call.param(param)
    if (
        wire.shape[-1] != declared or declared in wire.shape[1:-1]
    ):  # else it might be a side as well
        return None
    reason = tr(
        "The channels, {channels}, are last in the output of {layer}; they come after the batch here.",
        channels=declared,
        layer=wire.name,
    )
    message = _expects_channels(call, wire, declared, wire.shape[1])
    return message, reason, (_to_the_front(call, wire), _follow(call, param))


def _expects_channels(call: FailedCall, wire: Wire, declared: int, size: Size) -> str:
    return trn(
        "{call.label} expects {channels} channel, gets {size} in {wire.type} from {wire.name}",
        "{call.label} expects {channels} channels, gets {size} in {wire.type} from {wire.name}",
        declared,
        call=call,
        channels=declared,
        size=size,
        wire=wire,
    )


def _to_the_front(call: FailedCall, wire: Wire) -> Cure:
    dims = (0, wire.rank - 1, *range(1, wire.rank - 1))
    label = tr("Insert {layer}", layer=f"permute{dims}")
    return call.insert(label, wire, "torch.permute", dims=dims)


def _follow(call: FailedCall, param: str) -> Cure:
    label = tr("Infer {param} from the input", param=param)
    return Cure(label, (SetParam(call.step.id, param, AUTO),))


def wrong_size(call: FailedCall, _first: Wire) -> Explanation | None:
    """Explain a constructor size that differs from the input's."""
    for (key, param), (port, index) in ops.AUTO_RULES.items():
        wire = call.wire(port) if key == call.spec.key else None
        if (
            wire is None
            or not isinstance(index, int)
            or not -wire.rank <= index < wire.rank
        ):
            continue
        declared, arriving = call.result.resolved.get(param), wire.shape[index]
        if declared != arriving:
            return _size_explanation(call, wire, param, declared, arriving)
    return None


def _size_explanation(
    call: FailedCall, wire: Wire, param: str, declared: Any, arriving: Size
) -> Explanation:
    sample, flat = wire.shape[1:], wire.type.per_sample()
    follow = _follow(call, param)
    flatten = call.insert(tr("Insert {layer}", layer="Flatten"), wire, "nn.Flatten")
    is_deep = call.spec.key == "nn.Linear" and wire.rank > 2
    if is_deep and flat == declared:
        message = tr(
            "{call.label} expects {features} features, gets {sample} — insert Flatten",
            call=call,
            features=declared,
            sample=shape_text(sample),
        )
        reason = tr(
            "{product} = {features}, so a Flatten before {call.name} fits exactly.",
            product=" · ".join(map(str, sample)),
            features=flat,
            call=call,
        )
        return message, reason, (flatten,)
    message = (
        _expects_channels(call, wire, declared, arriving)
        if "channels" in param
        else trn(
            "{call.label} expects {features} feature, gets {size} in {wire.type} from {wire.name}",
            "{call.label} expects {features} features, gets {size} in {wire.type} from {wire.name}",
            declared,
            call=call,
            features=declared,
            size=arriving,
            wire=wire,
        )
    )
    reason = tr(
        "{param} is {declared}; {wire.type} brings {size}.",
        param=param,
        declared=declared,
        wire=wire,
        size=arriving,
    )
    if not is_deep:
        return message, reason, (follow,)
    both = Cure(tr("Insert Flatten and follow"), (*flatten.edits, *follow.edits))
    return message, reason, (both, follow)


def wrong_norm(call: FailedCall, wire: Wire) -> Explanation | None:
    """Explain a `normalized_shape` that differs from the trailing sizes."""
    if call.spec.param("normalized_shape") is None:
        return None
    shape = call.param("normalized_shape")
    sizes = shape if isinstance(shape, tuple) else (shape,)
    if wire.shape[-len(sizes) :] == sizes:
        return None
    message = tr(
        "{call.label} expects {sizes} last, gets {wire.type} from {wire.name}",
        call=call,
        sizes=shape_text(sizes),
        wire=wire,
    )
    reason = tr(
        "normalized_shape is {shape}; {wire.type} does not end with it.",
        shape=shape,
        wire=wire,
    )
    return message, reason, (_follow(call, "normalized_shape"),)


# --- Windows


def too_small(call: FailedCall, wire: Wire) -> Explanation | None:
    """Explain a window larger than the padded picture."""
    if not re.search("greater than actual input|too small", call.torch_messages):
        return None
    kernel, count = call.param("kernel_size"), wire.rank - 2
    if kernel is None or count < 1:
        return None
    message = tr(
        "{call.label} has a window of {window}, larger than its input of {sides}",
        call=call,
        window=shape_text(kernel if isinstance(kernel, tuple) else (kernel,) * count),
        sides=shape_text(wire.shape[2:]),
    )
    reason = tr(
        "{wire.type} leaves no room for the window; use a smaller kernel_size, more padding or less pooling.",
        wire=wire,
    )
    return message, reason, tuple(_window_cures(call, wire, kernel))


def _half(kernel: Any) -> Any:
    """Return the half of a window, rounded down, for each side where it has several."""
    return tuple(map(_half, kernel)) if isinstance(kernel, tuple) else kernel // 2


def _window_cures(call: FailedCall, wire: Wire, kernel: Any) -> Iterator[Cure]:
    sizes: Any = wire.shape
    has_colours_last = sizes[-1] in (1, 3, 4) and all(size > 4 for size in sizes[1:-1])
    if batched(wire.shape) and has_colours_last:
        yield _to_the_front(call, wire)
    if call.spec.param("padding") is not None and kernel != 1:
        yield call.set("padding", _half(kernel))
    fitting = [_fitting(call, axis, size) for axis, size in enumerate(wire.shape[2:])]
    smaller = tuple(fitting) if isinstance(kernel, tuple) else min(fitting)
    if smaller != kernel:
        yield call.set("kernel_size", smaller)


def _fitting(call: FailedCall, axis: int, size: Size) -> int:
    """Return the largest kernel size, at most the current one, that fits along an axis."""

    def along(name: str, default: int) -> int:
        value = call.param(name, default)
        value = value[min(axis, len(value) - 1)] if isinstance(value, tuple) else value
        return value if isinstance(value, int) else default

    room = (size if isinstance(size, int) else 1) + 2 * along("padding", 0)
    return max(min((room - 1) // along("dilation", 1) + 1, along("kernel_size", 1)), 1)


def wrong_padding(call: FailedCall, wire: Wire) -> Explanation | None:
    """Explain pool padding beyond half of the window, or reflection beyond the picture."""
    padding = call.param("padding", call.param("pad"))
    if padding is None:
        return None
    if "at most half" in call.torch_messages:
        kernel = call.param("kernel_size")
        message = tr(
            "{call.label} has padding={padding}, more than half of its window of {kernel}",
            call=call,
            padding=padding,
            kernel=kernel,
        )
        reason = tr(
            "A window inside the padding has nothing to pool in {wire.type}.", wire=wire
        )
        return message, reason, (call.set("padding", _half(kernel)),)
    if not re.search(
        "Padding size should be less|wrapping around", call.torch_messages
    ):
        return None
    sides = [size for size in wire.shape[2:] if isinstance(size, int)]
    least = 0 if "wrapping" in call.torch_messages else 1
    param = "padding" if call.spec.param("padding") else "pad"
    if not sides or (isinstance(padding, tuple) and len(padding) > 2 * len(sides)):
        return None
    if isinstance(
        padding, tuple
    ):  # (left, right, top, bottom, ...) from the last dimension on
        new: Any = tuple(
            min(pad, sides[-1 - i // 2] - least) for i, pad in enumerate(padding)
        )
    else:
        new = min(padding, min(sides) - least)
    message = tr(
        "{call.label} adds {padding}, more than its input of {sides} allows",
        call=call,
        padding=padding,
        sides=shape_text(wire.shape[2:]),
    )
    reason = tr("The padding values are taken from {wire.type} itself.", wire=wire)
    return message, reason, (call.set(param, new),)


# --- Groups and heads


def _too_many_groups(call: FailedCall, channels: int, groups: int) -> str:
    return tr(
        "{call.label} cannot split {channels} channels into {groups} groups",
        call=call,
        channels=channels,
        groups=groups,
    )


def _not_divisible(width: str, size: int, parts: str, count: int) -> str:
    return tr(
        "{width}={size} must be divisible by {parts}={count}.",
        width=width,
        size=size,
        parts=parts,
        count=count,
    )


def wrong_groups(call: FailedCall, _first: Wire) -> Explanation | None:
    """Explain channels that are not divisible by the groups."""
    groups = call.param("groups", 1)
    widths = {
        name: call.result.resolved.get(name) for name in ("in_channels", "out_channels")
    }
    for param, channels in widths.items():
        if type(channels) is int and type(groups) is int and channels % groups:
            both = math.gcd(*(width or 0 for width in widths.values()))
            fitting = next(divisors(both, groups), 1)
            return (
                _too_many_groups(call, channels, groups),
                _not_divisible(param, channels, "groups", groups),
                tuple(call.set("groups", size) for size in dict.fromkeys((fitting, 1))),
            )
    return None


def wrong_parts(call: FailedCall, wire: Wire) -> Explanation | None:
    """GroupNorm and ChannelShuffle part the channels that arrive."""
    param = "num_groups" if call.spec.param("num_groups") else "groups"
    groups = call.param(param)
    if (
        wire.rank < 2
        or type(groups) is not int
        or "divisible" not in call.torch_messages
    ):
        return None
    channels = call.param("num_channels", wire.shape[1])
    if type(channels) is not int or channels % groups == 0:
        return None
    reason = tr(
        "The channels of {wire.type}, from {wire.name}, must be divisible by {divisor}.",
        wire=wire,
        divisor=f"{param}={groups}",
    )
    cure = call.set(param, next(divisors(channels, groups)))
    return _too_many_groups(call, channels, groups), reason, (cure,)


def wrong_heads(call: FailedCall, _first: Wire) -> Explanation | None:
    names = (
        ("embed_dim", "num_heads")
        if call.spec.param("num_heads")
        else ("d_model", "nhead")
    )
    width, heads = map(call.param, names)
    if type(width) is not int or type(heads) is not int or width % heads == 0:
        return None
    message = tr(
        "{call.label} cannot split {features} features among {heads} heads",
        call=call,
        features=width,
        heads=heads,
    )
    cure = call.set(names[1], next(divisors(width, heads)))
    return message, _not_divisible(names[0], width, names[1], heads), (cure,)


def wrong_attention(call: FailedCall, _first: Wire) -> Explanation | None:
    """Explain keys or values whose width differs from the queries', or a batch read as a sequence."""
    turned = _batch_as_time(call)
    if turned is not None:
        return turned
    texts: list[str] = []
    sizes: dict[str, Size] = {}
    for port, param in (("key", "kdim"), ("value", "vdim")):
        wire, width = call.wire(port), call.param(param) or call.param("embed_dim")
        if wire is None or not wire.rank or wire.shape[-1] == width:
            continue
        sizes[param] = wire.shape[-1]
        texts += [
            _expects_as(call, wire, width),
            tr(
                "{param} is {features}, the number of features of each {wire.port}.",
                param=param,
                features=width,
                wire=wire,
            ),
        ]
    if not sizes:
        return None
    edits = tuple(SetParam(call.step.id, *each) for each in sizes.items())
    settings = f" {tr('and')} ".join(f"{name}={size}" for name, size in sizes.items())
    cure = Cure(tr("Set {settings}", settings=settings), edits)
    return texts[0], texts[1], (cure,)


def _expects_as(call: FailedCall, wire: Wire, features: int) -> str:
    return tr(
        "{call.label} expects {features} features as {wire.port}, gets {size} in {wire.type}",
        call=call,
        features=features,
        wire=wire,
        size=wire.shape[-1],
    )


def _batch_as_time(call: FailedCall) -> Explanation | None:
    """Explain batch_first=False with the batch first, so that lengths that differ are read as batch sizes."""
    if call.spec.param("batch_first") is None or call.param("batch_first"):
        return None
    wires = [wire for wire in call.wires if wire.rank == 3 and wire.shape[0] == Dim(1)]
    first = next(iter(wires), None)
    other = next((wire for wire in wires if wire.shape[1] != wires[0].shape[1]), None)
    if first is None or other is None:
        return None
    message = tr(
        "{call.label} reads batches of {a} and {b} from {first.type} and {other.type}",
        call=call,
        a=first.shape[1],
        b=other.shape[1],
        first=first,
        other=other,
    )
    reason = tr(
        "With batch_first=False the batch is the second dimension; {first.name} and {other.name} have it first.",
        first=first,
        other=other,
    )
    return message, reason, (call.set("batch_first", True),)


def wrong_width(call: FailedCall, _first: Wire) -> Explanation | None:
    """Explain a target or memory that is not d_model wide."""
    turned = _batch_as_time(call)
    width = call.param("d_model")
    if turned is not None or type(width) is not int:
        return turned
    for wire in call.wires:
        if wire.port in ("tgt", "memory") and wire.rank and wire.shape[-1] != width:
            reason = tr(
                "d_model is {features}, and the output of {wire.name} must be as wide.",
                features=width,
                wire=wire,
            )
            label = tr("Insert Linear to {size}", size=width)
            cure = call.insert(label, wire, "nn.Linear", out_features=width)
            return _expects_as(call, wire, width), reason, (cure,)
    return None
