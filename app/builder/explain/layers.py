"""Explain why a layer rejects its input: dimensions, channels, windows, groups, heads."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

from app.builder.catalog import ops
from app.builder.diagnostics.problems import (
    Cure,
    InsertBefore,
    ReplaceOp,
    SetParam,
    TakeOut,
)
from app.builder.explain.context import Explanation, FailedCall, Wire, batched, divisors
from app.builder.graph import Graph, Node
from app.builder.literals import AUTO
from app.builder.value_types import Dim, Size
from app.util.formatting import plural, shape_text

_OF_PICTURES = re.compile(
    r"(nn\.(?:Conv|ConvTranspose|BatchNorm|InstanceNorm|\w*Pool|MaxUnpool|\w+Pad|Dropout)|F\.\w*pool)([123])d"
)
# Number of dimensions that a layer takes, batch included, if its name does not tell.
_RANKS: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(("nn.LSTM", "nn.GRU", "nn.RNN", "nn.MultiheadAttention"), (2, 3)),
    **dict.fromkeys(("nn.LSTMCell", "nn.GRUCell", "nn.RNNCell"), (1, 2)),
    **dict.fromkeys(
        ("nn.TransformerEncoderLayer", "nn.TransformerDecoderLayer", "nn.Transformer"),
        (2, 3),
    ),
    **dict.fromkeys(
        (
            "nn.Unfold",
            "nn.Softmax2d",
            "nn.PixelShuffle",
            "nn.PixelUnshuffle",
            "F.pixel_shuffle",
        ),
        (4,),
    ),
    **dict.fromkeys(
        ("F.pixel_unshuffle", "nn.CrossMapLRN2d", "nn.UpsamplingNearest2d"), (4,)
    ),
    "nn.UpsamplingBilinear2d": (4,),
    **dict.fromkeys(
        ("nn.Upsample", "F.interpolate", "nn.LocalResponseNorm", "nn.ChannelShuffle"),
        (3, 4, 5),
    ),
    "F.conv1d": (3,),
    "F.conv2d": (4,),
    "F.conv3d": (5,),
    "nn.BatchNorm1d": (2, 3),
    "nn.EmbeddingBag": (1, 2),
    "nn.Fold": (3,),
}
_WIDTHS = ("in_channels", "num_features", "num_channels")


def wrong_rank(broken: FailedCall) -> Explanation | None:
    """Explain an input with too few or too many dimensions."""
    wire, ranks = broken.first, _ranks(broken.spec.key)
    if wire is None or not ranks or len(wire.shape) in ranks:
        return None
    expected_ranks = " or ".join(str(rank) for rank in ranks)
    message = f"{broken.label} expects {expected_ranks} dimensions, gets {wire.type} from {wire.source.name}"
    reason = f"{wire.type} has {len(wire.shape)}, with the batch counted."
    return (
        message,
        reason,
        _rank_cures(
            broken, wire, min(ranks, key=lambda rank: abs(rank - len(wire.shape)))
        ),
    )


def _ranks(key: str) -> tuple[int, ...]:
    match = _OF_PICTURES.fullmatch(key)
    return _RANKS.get(key) or ((int(match[2]) + 2,) if match else ())


def _rank_cures(broken: FailedCall, wire: Wire, expected_rank: int) -> tuple[Cure, ...]:
    """Propose a Flatten, a channel dimension, an unflatten to a square image; else the variant for this rank."""
    rank, cures = len(wire.shape), list[Cure]()
    if expected_rank > rank:
        cures += past_flatten(broken.graph, wire.source, broken.step.node)
    if rank > expected_rank >= 2:
        params: dict[str, Any] = (
            {"start_dim": expected_rank - 1} if expected_rank > 2 else {}
        )
        cures.append(
            Cure("Insert Flatten", (broken.before(wire, "nn.Flatten", **params),))
        )
    elif rank + 1 == expected_rank:
        cures.append(
            Cure("Add a channel dimension", (_unflatten(broken, wire, (1, -1)),))
        )
    flat = wire.type.per_sample()
    side = math.isqrt(flat) if flat else 0
    if expected_rank == 4 and rank == 2 and flat and side * side == flat:
        cures.append(
            Cure(
                f"Insert Unflatten (1×{side}×{side})",
                (_unflatten(broken, wire, (1, side, side)),),
            )
        )
    match = _OF_PICTURES.fullmatch(broken.spec.key)
    sides = max(rank - 2, 1) if "BatchNorm" in broken.spec.key else rank - 2
    plain = not any(
        isinstance(value, tuple) for value in broken.step.node.params.values()
    )
    if match is not None and sides in (1, 2, 3) and plain:
        other = f"{match[1]}{sides}d"
        edit = ReplaceOp(broken.step.id, other, broken.step.node.params)
        cures.append(Cure(f"Use {other.partition('.')[2]}", (edit,)))
    return tuple(cures)


def past_flatten(graph: Graph, flatten: Node, node: Node) -> Iterator[Cure]:
    """Propose to move a Flatten after the node that follows it, or to remove it; nothing for another op."""
    if flatten.op not in ("nn.Flatten", "torch.flatten", "Tensor.flatten"):
        return
    takers = graph.out_of(node.id)
    if len(takers) == 1 and graph.nodes[takers[0].target].op != "output":
        behind = InsertBefore(
            takers[0].target, takers[0].port, flatten.op, flatten.params
        )
        yield Cure(
            f"Move {flatten.name} behind {node.name}",
            (TakeOut(flatten.id), behind),
        )
    yield Cure(f"Remove {flatten.name}", (TakeOut(flatten.id),))


def _unflatten(broken: FailedCall, wire: Wire, sizes: tuple[int, ...]) -> InsertBefore:
    return broken.before(wire, "nn.Unflatten", dim=1, unflattened_size=sizes)


# --- Channels and features


def channels_last(broken: FailedCall) -> Explanation | None:
    """Explain channels last, N×H×W×C, where PyTorch expects N×C×H×W."""
    wire = broken.first
    param = next((name for name in _WIDTHS if broken.spec.param(name)), None)
    if wire is None or param is None or len(wire.shape) < 3 or not batched(wire.shape):
        return None
    declared = broken.param(param)
    if (
        wire.shape[-1] != declared or declared in wire.shape[1:-1]
    ):  # else it might be a side as well
        return None
    message = f"{broken.label} expects {declared} {plural(declared, 'channel')}, gets {wire.shape[1]} in {wire.type}"
    reason = f"The channels, {declared}, are last in the output of {wire.source.name}; they come after the batch here."
    return (
        f"{message} from {wire.source.name}",
        reason,
        (_to_the_front(broken, wire), _follow(broken, param)),
    )


def _to_the_front(broken: FailedCall, wire: Wire) -> Cure:
    rank = len(wire.shape)
    dims = (0, rank - 1, *range(1, rank - 1))
    return Cure(
        f"Insert permute{dims}", (broken.before(wire, "torch.permute", dims=dims),)
    )


def _follow(broken: FailedCall, param: str) -> Cure:
    return Cure(
        f"Infer {param} from the input", (SetParam(broken.step.id, param, AUTO),)
    )


def wrong_size(broken: FailedCall) -> Explanation | None:
    """Explain a constructor size that differs from the input's."""
    for (key, param), (port, index) in ops.AUTO_RULES.items():
        wire = broken.wire(port) if key == broken.spec.key else None
        if (
            wire is None
            or not isinstance(index, int)
            or not -len(wire.shape) <= index < len(wire.shape)
        ):
            continue
        declared, arriving = broken.result.resolved.get(param), wire.shape[index]
        if declared != arriving:
            return _size_explanation(broken, wire, param, declared, arriving)
    return None


def _size_explanation(
    broken: FailedCall, wire: Wire, param: str, declared: Any, arriving: Size
) -> Explanation:
    sample, flat, follow = (
        wire.shape[1:],
        wire.type.per_sample(),
        _follow(broken, param),
    )
    flatten = broken.before(wire, "nn.Flatten")
    deep = broken.spec.key == "nn.Linear" and len(wire.shape) > 2
    if deep and flat == declared:
        message = f"{broken.label} expects {declared} features, gets {shape_text(sample)} — insert Flatten"
        reason = f"{' · '.join(map(str, sample))} = {flat}, so a Flatten before {broken.name} fits exactly."
        return message, reason, (Cure("Insert Flatten", (flatten,)),)
    expectation = f"{declared} {plural(declared, 'channel' if 'channels' in param else 'feature')}"
    message = f"{broken.label} expects {expectation}, gets {arriving} in {wire.type} from {wire.source.name}"
    reason = f"{param} is {declared}; {shape_text(wire.shape)} brings {arriving}."
    if deep:
        both = Cure(
            "Insert Flatten and follow",
            (flatten, SetParam(broken.step.id, param, AUTO)),
        )
        return message, reason, (both, follow)
    return message, reason, (follow,)


def wrong_norm(broken: FailedCall) -> Explanation | None:
    """Explain a `normalized_shape` that differs from the trailing sizes."""
    wire = broken.first
    if wire is None or broken.spec.param("normalized_shape") is None:
        return None
    normalized_shape = broken.param("normalized_shape")
    sizes = (
        normalized_shape if isinstance(normalized_shape, tuple) else (normalized_shape,)
    )
    if wire.shape[-len(sizes) :] == sizes:
        return None
    follow = _follow(broken, "normalized_shape")
    message = f"{broken.label} expects {shape_text(sizes)} last, gets {wire.type} from {wire.source.name}"
    return (
        message,
        f"normalized_shape is {normalized_shape}; {wire.type} does not end with it.",
        (follow,),
    )


# --- Windows


def too_small(broken: FailedCall) -> Explanation | None:
    """Explain a window larger than the padded picture."""
    wire = broken.first
    if wire is None or not re.search(
        "greater than actual input|too small", broken.torch_messages
    ):
        return None
    kernel, count = broken.param("kernel_size"), len(wire.shape) - 2
    if kernel is None or count < 1:
        return None
    window = shape_text(kernel if isinstance(kernel, tuple) else (kernel,) * count)
    message = f"{broken.label} has a window of {window}, larger than its input of {shape_text(wire.shape[2:])}"
    reason = f"{wire.type} leaves no room for the window; use a smaller kernel_size, more padding or less pooling."
    return message, reason, tuple(_window_cures(broken, wire, kernel))


def _window_cures(broken: FailedCall, wire: Wire, kernel: Any) -> list[Cure]:
    cures = []
    sizes: Any = wire.shape
    colours_last = sizes[-1] in (1, 3, 4) and all(size > 4 for size in sizes[1:-1])
    if batched(wire.shape) and colours_last:
        cures.append(_to_the_front(broken, wire))  # a picture with its colours last
    if broken.spec.param("padding") is not None and kernel != 1:
        half = (
            tuple(side // 2 for side in kernel)
            if isinstance(kernel, tuple)
            else kernel // 2
        )
        cures.append(broken.set("padding", half))
    fitting = [_fitting(broken, axis, size) for axis, size in enumerate(wire.shape[2:])]
    smaller = tuple(fitting) if isinstance(kernel, tuple) else min(fitting)
    if smaller != kernel:
        cures.append(broken.set("kernel_size", smaller))
    return cures


def _fitting(broken: FailedCall, axis: int, size: Size) -> int:
    """Return the largest kernel size, at most the current one, that fits along an axis."""

    def along(name: str, default: int) -> int:
        value = broken.param(name, default)
        value = value[min(axis, len(value) - 1)] if isinstance(value, tuple) else value
        return value if isinstance(value, int) else default

    room = (size if isinstance(size, int) else 1) + 2 * along("padding", 0)
    return max(min((room - 1) // along("dilation", 1) + 1, along("kernel_size", 1)), 1)


def wrong_padding(broken: FailedCall) -> Explanation | None:
    """Explain pool padding beyond half of the window, or reflection beyond the picture."""
    wire, padding = broken.first, broken.param("padding", broken.param("pad"))
    if wire is None or padding is None:
        return None
    if "at most half" in broken.torch_messages:
        kernel = broken.param("kernel_size")
        half = (
            tuple(side // 2 for side in kernel)
            if isinstance(kernel, tuple)
            else kernel // 2
        )
        message = f"{broken.label} has padding={padding}, more than half of its window of {kernel}"
        return (
            message,
            f"A window inside the padding has nothing to pool in {wire.type}.",
            (broken.set("padding", half),),
        )
    if not re.search(
        "Padding size should be less|wrapping around", broken.torch_messages
    ):
        return None
    sides = [size for size in wire.shape[2:] if isinstance(size, int)]
    least = 0 if "wrapping" in broken.torch_messages else 1
    param = "padding" if broken.spec.param("padding") else "pad"
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
    message = f"{broken.label} adds {padding}, more than its input of {shape_text(wire.shape[2:])} allows"
    return (
        message,
        f"The padding values are taken from {wire.type} itself.",
        (broken.set(param, new),),
    )


# --- Groups and heads


def wrong_groups(broken: FailedCall) -> Explanation | None:
    """Explain channels that are not divisible by the groups."""
    groups = broken.param("groups", 1)
    for param in ("in_channels", "out_channels"):
        channels = broken.result.resolved.get(param)
        if type(channels) is int and type(groups) is int and channels % groups:
            both = math.gcd(
                *(
                    broken.result.resolved.get(name) or 0
                    for name in ("in_channels", "out_channels")
                )
            )
            fitting = next(divisors(both, groups), 1)
            cures = tuple(
                broken.set("groups", number) for number in dict.fromkeys((fitting, 1))
            )
            message = (
                f"{broken.label} cannot split {channels} channels into {groups} groups"
            )
            return (
                message,
                f"{param}={channels} must be divisible by groups={groups}.",
                cures,
            )
    return None


def wrong_parts(broken: FailedCall) -> Explanation | None:
    """GroupNorm and ChannelShuffle part the channels that arrive."""
    wire, param = (
        broken.first,
        "num_groups" if broken.spec.param("num_groups") else "groups",
    )
    groups = broken.param(param)
    if (
        wire is None
        or len(wire.shape) < 2
        or type(groups) is not int
        or "divisible" not in broken.torch_messages
    ):
        return None
    channels = broken.param("num_channels", wire.shape[1])
    if type(channels) is not int or channels % groups == 0:
        return None
    message = f"{broken.label} cannot split {channels} channels into {groups} groups"
    reason = f"The channels of {wire.type}, from {wire.source.name}, must be divisible by {param}={groups}."
    return message, reason, (broken.set(param, next(divisors(channels, groups))),)


def wrong_heads(broken: FailedCall) -> Explanation | None:
    names = (
        ("embed_dim", "num_heads")
        if broken.spec.param("num_heads")
        else ("d_model", "nhead")
    )
    width, heads = (broken.param(name) for name in names)
    if type(width) is not int or type(heads) is not int or width % heads == 0:
        return None
    message = f"{broken.label} cannot split {width} features among {heads} heads"
    reason = f"{names[0]}={width} must be divisible by {names[1]}={heads}."
    return message, reason, (broken.set(names[1], next(divisors(width, heads))),)


def wrong_attention(broken: FailedCall) -> Explanation | None:
    """Explain keys or values whose width differs from the queries', or a batch read as a sequence."""
    turned = _batch_as_time(broken)
    if turned is not None:
        return turned
    width = broken.param("embed_dim")
    texts: list[str] = []
    cures: list[Cure] = []
    for port, param in (("key", "kdim"), ("value", "vdim")):
        wire, expected_width = broken.wire(port), broken.param(param) or width
        if wire is None or not wire.shape or wire.shape[-1] == expected_width:
            continue
        texts += [
            f"{broken.label} expects {expected_width} features as {port}, gets {wire.shape[-1]} in {wire.type}",
            f"{param} is {expected_width}, the number of features of each {port}.",
        ]
        cures.append(broken.set(param, wire.shape[-1]))
    if not cures:
        return None
    if len(cures) > 1:
        edits = tuple(edit for cure in cures for edit in cure.edits)
        labels = " and ".join(cure.label.removeprefix("Set ") for cure in cures)
        cures = [Cure(f"Set {labels}", edits)]
    return texts[0], texts[1], tuple(cures)


def _batch_as_time(broken: FailedCall) -> Explanation | None:
    """Explain batch_first=False with the batch first, so that lengths that differ are read as batch sizes."""
    if broken.spec.param("batch_first") is None or broken.param("batch_first"):
        return None
    wires = [
        wire
        for wire in broken.wires
        if len(wire.shape) == 3 and wire.shape[0] == Dim(1)
    ]
    if len(wires) < 2 or len({wire.shape[1] for wire in wires}) == 1:
        return None
    first = wires[0]
    other = next(wire for wire in wires if wire.shape[1] != first.shape[1])
    message = (
        f"{broken.label} reads batches of {first.shape[1]} and {other.shape[1]} from {first.type} "
        f"and {other.type}"
    )
    names = f"{first.source.name} and {other.source.name}"
    reason = f"With batch_first=False the batch is the second dimension; {names} have it first."
    return message, reason, (broken.set("batch_first", True),)


def wrong_width(broken: FailedCall) -> Explanation | None:
    """Explain a target or memory that is not d_model wide."""
    turned = _batch_as_time(broken)
    width = broken.param("d_model")
    if turned is not None or type(width) is not int:
        return turned
    for wire in broken.wires:
        if wire.port in ("tgt", "memory") and wire.shape and wire.shape[-1] != width:
            message = f"{broken.label} expects {width} features as {wire.port}, gets {wire.shape[-1]} in {wire.type}"
            linear = broken.before(wire, "nn.Linear", out_features=width)
            reason = f"d_model is {width}, and the output of {wire.source.name} must be as wide."
            return message, reason, (Cure(f"Insert Linear to {width}", (linear,)),)
    return None
