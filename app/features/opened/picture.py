"""Draw an observation: modules as groups and boxes, equal layers as one, the call that raised in red."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import PurePath

from app.diagram.diagram import Arrow, Box, Drawing, Group, Shape
from app.features.opened.folding import Part, Tree
from app.observe.figures import ModuleFigures, of_modules
from app.observe.observation import Call, Observation, TensorFacts
from app.util.formatting import counted, shape_text

ERROR = "error"
FEW = 4  # tensors whose sizes are all said
LONGEST = 90  # letters of a message in a box

# By the submodule of torch.nn.modules that defines a layer, and by the last part of a function's name.
_LAYERS = {
    "conv": "conv",
    "linear": "linear",
    "activation": "act",
    "batchnorm": "norm",
    "normalization": "norm",
    "instancenorm": "norm",
    "pooling": "shape",
    "padding": "shape",
    "upsampling": "shape",
    "flatten": "shape",
    "fold": "shape",
    "pixelshuffle": "shape",
    "channelshuffle": "shape",
    "dropout": "drop",
    "rnn": "seq",
    "transformer": "seq",
    "sparse": "seq",
    "loss": "loss",
    "container": "block",
}
_FUNCTIONS = (
    ("conv", r"conv\w*"),
    ("linear", r"linear|bilinear|addmm|baddbmm|addbmm"),
    ("drop", r"\w*dropout\w*"),
    ("norm", r"\w*norm"),
    ("loss", r"\w*loss|cross_entropy|binary_cross_entropy\w*|kl_div"),
    (
        "seq",
        r"embedding\w*|scaled_dot_product_attention|multi_head_attention_forward|gather|scatter\w*",
    ),
    (
        "act",
        r"relu\w*|gelu|silu|mish|elu|selu|celu|leaky_relu|sigmoid|tanh|softmax|log_softmax|softplus|hard\w+|exp|log"
        r"|sqrt|rsqrt|pow|sin|cos|abs|clamp\w*|erf|neg|square",
    ),
    (
        "merge",
        r"_*(i|r)?(add|sub|mul|truediv|div|matmul|floordiv|mod|and|or|xor|eq|ne|lt|le|gt|ge)_*|bmm|einsum|cat"
        r"|concat|stack|where|maximum|minimum|masked_fill_?|outer|dot|mm",
    ),
)
_PATTERNS = tuple((category, re.compile(pattern)) for category, pattern in _FUNCTIONS)


def to_drawing(
    observation: Observation,
    opened: frozenset[str] | None = None,
    tree: Tree | None = None,
    figures: Mapping[str, ModuleFigures] | None = None,
) -> Drawing:
    """Draw with the parts of these keys open (None: as many levels as fit into a picture), modules with their figures
    by path. `tree` are its parts, if they are known already."""
    tree = tree or Tree(observation)
    opened = tree.opened() if opened is None else opened
    boxes: list[Box] = []
    groups: list[Group] = []
    stands_for: dict[int, str] = {}
    failed = observation.failed
    module_figures = figures or {}

    def add(parts: Iterable[Part], group: str | None) -> None:
        for piece in parts:
            if piece.parts and piece.key in opened:
                first = observation.calls[piece.first]
                tags = _figures(observation, piece, module_figures)
                groups.append(
                    Group(
                        piece.key,
                        piece.title,
                        _category(first),
                        group,
                        piece.kind,
                        tags=tags,
                        paths=_paths(observation, piece),
                    )
                )
                add(piece.parts, piece.key)
                continue
            ids = {id for call in piece.every for id in _inside(observation, call)}
            stands_for.update(dict.fromkeys(ids, piece.key))
            boxes.append(
                _box(
                    observation,
                    piece,
                    group,
                    failed is not None and failed in ids,
                    module_figures,
                )
            )

    add(tree.parts, None)
    return Drawing(
        tuple(boxes),
        tuple(_arrows(observation, stands_for)),
        tuple(groups),
        "LR",
        summary(observation),
    )


def summary(observation: Observation) -> str:
    """Format the line under a picture: `ResNet · 70 module calls · 69 operations`."""
    text = heading(observation)
    return (
        text.replace(" read", " read: with the control flow of this forward pass")
        if observation.reads
        else text
    )


def heading(observation: Observation) -> str:
    """Format the line above a picture, where there is less room."""
    kinds = Counter(call.kind for call in observation.calls)
    phrases = [
        observation.name,
        f"{counted(kinds['module'], 'module call')}",
        f"{counted(kinds['operation'], 'operation')}",
    ]
    if kinds["read"]:
        phrases.append(f"{counted(kinds['read'], 'value')} read")
    if observation.failed is not None:
        phrases.append("raised")
    return " · ".join(phrases)


def module_paths(observation: Observation) -> frozenset[str]:
    """Return the paths of all modules that were called, but for the model itself."""
    return frozenset(
        call.path for call in observation.calls if call.kind == "module" and call.path
    )


def _inside(observation: Observation, id: int) -> list[int]:
    call_ids, todo = [], [id]
    while todo:
        now = todo.pop()
        call_ids.append(now)
        todo += observation.children.get(now, ())
    return call_ids


def _arrows(observation: Observation, stands_for: dict[int, str]) -> list[Arrow]:
    facts_by_arrow: dict[tuple[str, str], list[TensorFacts]] = {}
    for flow in observation.flows:
        source, target = stands_for.get(flow.source), stands_for.get(flow.target)
        if source is None or target is None or source == target:
            continue
        outputs = observation.calls[flow.source].outputs
        facts = facts_by_arrow.setdefault((source, target), [])
        if flow.output < len(outputs):
            facts.append(outputs[flow.output])
    return [
        Arrow(
            source,
            target,
            _sizes(facts[0]) if len({tensor.shape for tensor in facts}) == 1 else "",
            "wire",
            max(1, len(facts)),
        )
        for (source, target), facts in facts_by_arrow.items()
    ]


def _all_sizes(tensors: tuple[TensorFacts, ...]) -> str:
    return (
        " and ".join(map(_sizes, tensors))
        if len(tensors) <= FEW
        else f"{len(tensors)} tensors"
    )


def _sizes(facts: TensorFacts) -> str:
    return shape_text(facts.shape, "scalar")


def _paths(observation: Observation, piece: Part) -> tuple[str, ...]:
    """Return the paths of the modules that a part or a row stands for."""
    calls = (observation.calls[call_id] for call_id in piece.calls)
    return tuple(
        dict.fromkeys(
            call.path for call in calls if call.kind == "module" and call.path
        )
    )


def _figures(
    observation: Observation, piece: Part, figures: Mapping[str, ModuleFigures]
) -> tuple[str, ...]:
    """Return texts with the figures of a module, or of the modules that a row stands for."""
    paths = _paths(observation, piece) if figures else ()
    return of_modules(tuple(figures[path] for path in paths if path in figures))


def _box(
    observation: Observation,
    piece: Part,
    group: str | None,
    failed: bool,
    figures: Mapping[str, ModuleFigures],
) -> Box:
    call = observation.calls[piece.first]
    lines = []
    if call.kind == "operation" and call.settings:
        lines.append(", ".join(call.settings))
    if call.kind == "read":
        lines.append(f"read as {call.value}")
    if call.written:
        lines.append("in place")
    if failed:
        culprit = observation.calls[observation.failed or 0]
        where = (
            f"line {culprit.line} of {PurePath(culprit.file).name}"
            if culprit.line
            else ""
        )
        lines += [
            _all_sizes(culprit.inputs),
            observation.error.partition("\n")[0],
            where,
        ]
    shape: Shape = (
        "call" if failed else "folded" if piece.parts or piece.repeated > 1 else "op"
    )
    tensors = (
        (*call.outputs, *call.inputs)
        if call.kind in ("input", "output")
        else call.outputs
    )
    sizes = _all_sizes(tensors) if call.kind in ("input", "output", "operation") else ""
    texts = tuple(
        line if len(line) <= LONGEST else f"{line[: LONGEST - 1]}…"
        for line in lines
        if line
    )
    return Box(
        piece.key,
        piece.title,
        sizes or piece.kind,
        texts,
        ERROR if failed else _category(call),
        shape,
        group,
        tags=_figures(observation, piece, figures),
        paths=_paths(observation, piece),
    )


def _category(call: Call) -> str:
    if call.kind in ("input", "output"):
        return "io"
    if call.kind == "module":
        return _LAYERS.get(call.op.split(".")[3], "block") if call.is_layer else "block"
    return _category_of(call.name)


@lru_cache(maxsize=1024)
def _category_of(function: str) -> str:
    return next(
        (category for category, pattern in _PATTERNS if pattern.fullmatch(function)),
        "shape",
    )
