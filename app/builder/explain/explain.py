"""Explain why a call fails (a shape mismatch, with both shapes) and offer the edits that fix it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from app.builder.catalog.catalog import OpSpec
from app.builder.diagnostics.problems import Connect, Cure, Problem, SetParam
from app.builder.explain import joins, layers, shapes
from app.builder.explain.context import Explainer, Explanation, FailedCall, Wire
from app.builder.graph import Graph, Node
from app.builder.literals import DType
from app.builder.plan import Step
from app.builder.results import CallFailed, StepResult
from app.util.language import marked, tr

__all__ = ["explain", "wire_cures"]

# Ports that take another dtype than float32.
_DTYPES: dict[tuple[str, str], str] = {
    ("nn.Embedding", "input"): "int64",
    ("nn.EmbeddingBag", "input"): "int64",
    ("F.embedding", "input"): "int64",
    ("F.one_hot", "tensor"): "int64",
    ("F.one_hot", "input"): "int64",
    ("torch.gather", "index"): "int64",
    ("torch.index_select", "index"): "int64",
    ("torch.where", "condition"): "bool",
    ("torch.masked_fill", "mask"): "bool",
    **{(f"nn.MaxUnpool{n}d", "indices"): "int64" for n in (1, 2, 3)},
}
_WHY = {
    "int64": marked("It indexes rows."),
    "bool": marked("It is a mask of the values that are used."),
}
_COMPUTES = marked("It computes in {dtype}; change the dtype of its input.")
_OF_DTYPE = re.compile(
    r"dtype|scalar type|Input type|LongTensor|\bbool|Long\b|Double\b"
)
_MOST = 3


def explain(step: Step, result: StepResult, graph: Graph) -> Problem:
    """Explain a failed call as a problem."""
    assert isinstance(result.outcome, CallFailed)
    call = FailedCall(step, result, graph)
    message, reason, cures = _explanation(call, result.outcome)
    text = f"{message} {reason}"
    if not all(_names(text, wire.name) for wire in call.wires):
        reason = f"{reason} {call.arriving}".strip()
    torch_message = result.outcome.real_error or result.outcome.error
    return Problem(
        "error",
        step.id,
        message,
        reason,
        torch_message,
        cures=cures,
        code="shapes-do-not-fit",
    )


def _names(text: str, name: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text) is not None


def _explanation(call: FailedCall, outcome: CallFailed) -> Explanation:
    explainers = (wrong_dtype,) if outcome.dtype else _explainers(call.spec)
    is_typed = not any(port.wired for port in call.spec.inputs)
    if call.wires and is_typed:  # explainers read typed parameters only
        for explainer in explainers:
            explanation = explainer(call, call.wires[0])
            if explanation is not None:
                return explanation
    message = tr("{call.name} does not fit: {error}", call=call, error=outcome.error)
    return message, call.arriving, ()


def wrong_dtype(call: FailedCall, _first: Wire) -> Explanation | None:
    """Explain a dtype mismatch: lookups take integers, most other layers the floating dtype of their weights."""
    outcome = call.result.outcome
    listed = any((call.spec.key, wire.port) in _DTYPES for wire in call.wires)
    if not listed and not (
        isinstance(outcome, CallFailed)
        and (outcome.dtype or _OF_DTYPE.search(call.torch_messages))
    ):
        return None
    required = {port.name for port in call.spec.inputs if port.required}
    for wire in call.wires:
        dtype = _DTYPES.get((call.spec.key, wire.port), _computes_in(call))
        if wire.port in required and not _suits(wire.type.dtype, dtype):
            message = tr(
                "{call.label} expects {dtype}, gets {wire.type.dtype} in {wire.type} from {wire.name}",
                call=call,
                dtype=dtype,
                wire=wire,
            )
            reason = tr(_WHY.get(dtype, _COMPUTES), dtype=dtype)
            return message, reason, _dtype_cures(call, wire, dtype)
    return None


def _computes_in(call: FailedCall) -> str:
    """Return the dtype of its weights."""
    dtype = call.result.resolved.get("dtype") if call.spec.kind == "module" else None
    return dtype.name if isinstance(dtype, DType) else "float32"


def _suits(dtype: str, expected_dtype: str) -> bool:
    return (
        dtype.startswith(("int", "uint"))
        if expected_dtype == "int64" and dtype != "uint8"
        else dtype == expected_dtype
    )


def _dtype_cures(call: FailedCall, wire: Wire, dtype: str) -> tuple[Cure, ...]:
    label = tr("Insert {layer}", layer=f"Tensor.to({dtype})")
    to = call.insert(label, wire, "Tensor.to", dtype=DType(dtype))
    if wire.source.op != "input":
        return (to,)
    declared = SetParam(wire.source.id, "dtype", DType(dtype))
    label = tr("Make {wire.name} {dtype}", wire=wire, dtype=dtype)
    return (Cure(label, (declared,)), to)


# --- Explainers by op

_LAYERS: tuple[Explainer, ...] = (
    layers.channels_last,
    layers.wrong_rank,
    layers.wrong_groups,
    wrong_dtype,
    layers.wrong_norm,
    layers.wrong_size,
    layers.too_small,
    layers.wrong_padding,
)
_BY_OP: tuple[tuple[str, tuple[Explainer, ...]], ...] = (
    (
        r"nn\.(GroupNorm|ChannelShuffle)",
        (
            layers.wrong_rank,
            layers.channels_last,
            layers.wrong_parts,
            layers.wrong_size,
        ),
    ),
    (
        r"nn\.MultiheadAttention",
        (
            layers.wrong_rank,
            wrong_dtype,
            layers.wrong_heads,
            layers.wrong_size,
            layers.wrong_attention,
        ),
    ),
    (
        r"nn\.Transformer\w*",
        (
            layers.wrong_rank,
            wrong_dtype,
            layers.wrong_size,
            layers.wrong_heads,
            layers.wrong_width,
        ),
    ),
    (r"nn\.Unflatten", (shapes.no_unflatten,)),
    (r"torch\.cat|torch\.concat", (joins.no_cat,)),
    (r"torch\.stack", (joins.no_stack,)),
    (
        r"torch\.(matmul|bmm|mm)|operator\.matmul",
        (wrong_dtype, joins.no_matmul, joins.no_broadcast),
    ),
    (r"torch\.einsum", (joins.no_einsum, wrong_dtype)),
    (r"F\.scaled_dot_product_attention", (wrong_dtype, joins.no_matmul)),
    (r"Tensor\.(view|reshape)|torch\.reshape", (shapes.no_view,)),
    (r"(torch|Tensor)\.permute", (shapes.no_axes,)),
    (r"torch\.split", (shapes.no_split,)),
    (r"torch\.(narrow|select|topk)", (shapes.no_piece,)),
    (r"Tensor\.expand", (shapes.no_expand,)),
    (r"nn\.GLU|F\.glu", (shapes.no_halves,)),
    (r"nn\.Upsampl\w+|F\.interpolate", (layers.wrong_rank, shapes.no_mode)),
    (r"(nn\.PixelShuffle|F\.pixel_shuffle)", (layers.wrong_rank, shapes.no_shuffle)),
    (
        r"(nn\.PixelUnshuffle|F\.pixel_unshuffle)",
        (layers.wrong_rank, shapes.no_unshuffle),
    ),
    (r"nn\.(CosineSimilarity|PairwiseDistance)", (wrong_dtype, joins.no_broadcast)),
)


def _explainers(spec: OpSpec) -> tuple[Explainer, ...]:
    """List the explainers for an op, the most specific first."""
    others = (wrong_dtype, joins.no_broadcast) if spec.category == "merge" else _LAYERS
    op_explainers = next(
        (explainers for ops, explainers in _BY_OP if re.fullmatch(ops, spec.key)),
        others,
    )
    return (*op_explainers, shapes.out_of_range, wrong_dtype)


def wire_cures(step: Step, missing: tuple[str, ...], graph: Graph) -> tuple[Cure, ...]:
    """Propose wires for the ports `missing` of a call, the likeliest first; each is tried before it is offered."""
    if re.fullmatch(r"nn\.MaxUnpool[123]d", step.spec.key) and missing == ("indices",):
        return tuple(_indices(step, graph))[:_MOST]
    if step.spec.key in ("nn.MultiheadAttention", "F.scaled_dot_product_attention"):
        return tuple(_attention(step, missing, graph))
    if step.spec.kind == "output":
        return tuple(_loose_ends(step, graph))[:1]  # common while drawing, so only one
    return ()


def _loose_ends(step: Step, graph: Graph) -> Iterator[Cure]:
    """Propose unconnected outputs, the most recently drawn node first."""
    for node in reversed(tuple(graph.nodes.values())):
        if (
            node.op not in ("output", "input")
            and node.id != step.id
            and not graph.out_of(node.id)
        ):
            wire = Connect(step.id, step.spec.inputs[0].name, node.id)
            yield Cure(tr("Connect {layer}", layer=node.name), (wire,))


def _indices(step: Step, graph: Graph) -> Iterator[Cure]:
    """Propose the unused indices of an upstream pool, the nearest first."""
    for pool in _upstream(step.id, graph):
        if not re.fullmatch(rf"nn\.\w*MaxPool{step.spec.key[-2]}d", pool.op):
            continue
        if any(
            edge.output == 1 and graph.nodes[edge.target].op == step.spec.key
            for edge in graph.out_of(pool.id)
        ):
            continue
        wire = Connect(step.id, "indices", pool.id, 1)
        module = graph.owner(pool.id)
        giving = (
            ()
            if module.params.get("return_indices")
            else (SetParam(module.id, "return_indices", True),)
        )
        label = tr("Take the indices from {pool}", pool=pool.name)
        yield Cure(label, (*giving, wire))


def _upstream(start: str, graph: Graph) -> Iterator[Node]:
    """Yield the nodes upstream of one, the nearest first."""
    todo, visited = [start], {start}
    for node in todo:
        fresh = [edge.source for edge in graph.into(node) if edge.source not in visited]
        for source in dict.fromkeys(fresh):
            visited.add(source)
            todo.append(source)
            yield graph.nodes[source]


def _attention(step: Step, missing: tuple[str, ...], graph: Graph) -> Iterator[Cure]:
    """Attention of a sequence to itself, or of values that are the keys."""
    wired = {edge.port: edge for edge in graph.into(step.id)}
    giver = wired.get("key") or wired.get("value") or wired.get("query")
    if giver is None or not set(missing) <= {"query", "key", "value"}:
        return
    edits = tuple(
        Connect(step.id, port, giver.source, giver.output) for port in missing
    )
    label = tr(
        "Take {ports} from {layer}",
        ports=f" {tr('and')} ".join(missing),
        layer=graph.nodes[giver.source].name,
    )
    yield Cure(label, edits)
