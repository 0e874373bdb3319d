"""Graphs for tests, written as rows and wires."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

import torch

from app.builder import rules
from app.builder.catalog.catalog import OpSpec, Port, catalog
from app.builder.graph import Edge, Graph, Node
from app.builder.literals import DType
from app.builder.results import Analysis
from app.builder.value_types import TensorType, TupleType, ValueType
from app.source.compiled import load_class
from app.source.generated import Source
from app.util.frozen import FrozenMap

INT64, COMPLEX = DType("int64"), DType("complex64")
Row = tuple[str, str, Mapping[str, Any]]

# One sample for an op whose starting parameters do not take a picture of (3, 8, 8).
_SAMPLED: dict[tuple[int, ...], str] = {
    (8, 16): """
        nn.Conv1d nn.ConvTranspose1d nn.BatchNorm1d nn.InstanceNorm1d nn.MaxPool1d nn.MaxUnpool1d nn.AvgPool1d
        nn.LPPool1d nn.AdaptiveAvgPool1d nn.AdaptiveMaxPool1d nn.ZeroPad1d nn.ConstantPad1d nn.ReflectionPad1d
        nn.ReplicationPad1d nn.CircularPad1d nn.Dropout1d nn.GLU F.conv1d
        F.max_pool1d F.avg_pool1d F.adaptive_avg_pool1d F.adaptive_max_pool1d F.dropout1d
    """,
    (2, 6, 8, 8): """
        nn.Conv3d nn.ConvTranspose3d nn.BatchNorm3d nn.InstanceNorm3d nn.MaxPool3d nn.MaxUnpool3d nn.AvgPool3d
        nn.LPPool3d nn.AdaptiveAvgPool3d nn.AdaptiveMaxPool3d nn.FractionalMaxPool3d nn.ZeroPad3d nn.ConstantPad3d
        nn.ReflectionPad3d nn.ReplicationPad3d nn.CircularPad3d nn.Dropout3d F.conv3d
        F.max_pool3d F.avg_pool3d F.adaptive_avg_pool3d F.adaptive_max_pool3d F.dropout3d
    """,
    (5, 12): "nn.LSTM nn.GRU nn.RNN",
    (12,): "nn.LSTMCell nn.GRUCell nn.RNNCell",
    (
        5,
        64,
    ): "nn.MultiheadAttention nn.TransformerEncoderLayer nn.TransformerDecoderLayer nn.Transformer",
    (7,): "nn.Embedding nn.EmbeddingBag F.embedding F.embedding_bag F.one_hot",
    (8,): "F.conv_transpose1d torch.trace",
    (
        8,
        8,
    ): "F.conv_transpose2d torch.linalg.solve torch.linalg.inv torch.linalg.cholesky",
    (6, 8, 8): "F.conv_transpose3d",
    (64,): "torch.stft",
    (1,): "Tensor.expand",
    (8, 8, 8): """
        nn.GroupNorm nn.PixelShuffle nn.ChannelShuffle F.pixel_shuffle F.glu torch.chunk torch.split
    """,
    (12, 16): "nn.Fold F.fold",
    (4, 2): "torch.view_as_complex",
    (9,): "nn.Linear F.linear",
    (4, 16): "Tensor.view torch.reshape",
    (5, 6): "torch.permute torch.transpose",
    (6, 6): "torch.matmul torch.bmm torch.einsum F.scaled_dot_product_attention",
    (5,): "torch.cat torch.stack tuple F.bilinear",
    (4, 4): "torch.unbind torch.tril torch.triu",
}
SAMPLES = {key: shape for shape, keys in _SAMPLED.items() for key in keys.split()}

# Where a port wants another sample than the rest.
_PORTS: dict[tuple[str, str], tuple[int, ...]] = {
    **{
        (f"torch.{name}", "index"): ()
        for name in ("index_select", "index_add", "index_fill")
    },
    ("torch.bucketize", "boundaries"): (),
    ("F.grid_sample", "grid"): (8, 8, 2),
    ("F.bilinear", "weight"): (5, 5),
    **{(f"F.conv_transpose{n}d", "weight"): (3,) * (n + 1) for n in (1, 2, 3)},
}

# How many more wires a list of tensors needs.
SEVERAL = {"torch.einsum": 1}

# Inputs that are not float32.
DTYPES: dict[tuple[str, str], DType] = {
    ("nn.Embedding", "input"): INT64,
    ("nn.EmbeddingBag", "input"): INT64,
    **{(f"nn.MaxUnpool{n}d", "indices"): INT64 for n in (1, 2, 3)},
    ("F.one_hot", "tensor"): INT64,
    ("F.one_hot", "input"): INT64,
    ("F.embedding", "input"): INT64,
    **{
        (f"torch.{name}", "index"): INT64
        for name in (
            "gather",
            "scatter",
            "scatter_add",
            "scatter_reduce",
            "index_select",
            "index_add",
            "index_fill",
        )
    },
    ("torch.take_along_dim", "indices"): INT64,
    ("F.embedding_bag", "input"): INT64,
    **{
        (f"torch.bitwise_{name}", port): INT64
        for name in ("and", "or", "xor", "not", "left_shift", "right_shift")
        for port in ("input", "other")
    },
    ("torch.where", "condition"): DType("bool"),
    ("torch.masked_fill", "mask"): DType("bool"),
    **{
        (f"torch.{name}", "input"): COMPLEX
        for name in ("view_as_real", "imag", "conj", "fft.irfft")
    },
}


def net(rows: Iterable[Row], wires: Iterable[tuple[Any, ...]] | None = None) -> Graph:
    """A graph of (op, name, params) and wires (source, output, target, port); without wires a chain.

    The id of a node is its name. A wire may leave out what is the default: ("a", "b") or ("a", "b", "other").
    """
    rows = list(rows)
    nodes = {
        name: Node(name, op, name, _starting(op).update(params))
        for op, name, params in rows
    }
    graph = Graph(FrozenMap(nodes))
    names = list(nodes)
    for wire in zip(names, names[1:], strict=False) if wires is None else wires:
        graph = wired(graph, *wire)
    return graph


def _starting(op: str) -> FrozenMap[str, Any]:
    return catalog()[op].starting_params() if op in catalog() else FrozenMap()


def wired(
    graph: Graph, source: str, target: str, port: str | None = None, output: int = 0
) -> Graph:
    """The graph with a wire drawn as a person would."""
    ops = catalog()
    port = port or ops.spec_of(graph, graph.nodes[target]).inputs[0].name
    return rules.connect(graph, ops, source, output, target, port)


def chain(length: int, op: str = "nn.ReLU", **params: Any) -> Graph:
    """An input, `length` equal layers and an output, made without the cost of drawing wire by wire."""
    nodes = [Node("in", "input", "input1", FrozenMap(shape=(4,)))]
    nodes += [
        Node(f"n{i}", op, f"layer{i}", _starting(op).update(params))
        for i in range(length)
    ]
    nodes.append(Node("out", "output", "output1"))
    edges = tuple(
        Edge(a.id, 0, b.id, "input") for a, b in zip(nodes, nodes[1:], strict=False)
    )
    return Graph(FrozenMap({node.id: node for node in nodes}), edges)


def around(spec: OpSpec, params: Mapping[str, Any] | None = None) -> Graph:
    """A net of one op: an input on every port that must have one, an output on every tensor that comes out. A number
    that comes out is added to a tensor first, a tuple's first item is taken."""
    needed = [port for port in spec.inputs if port.required]
    rows: list[Row] = [("input", f"in_{p.name}", _input(spec, p)) for p in needed]
    rows.append((spec.key, "it", params or {}))
    wires: list[tuple[Any, ...]] = [(f"in_{p.name}", "it", p.name) for p in needed]
    wires += [("in_tensors", "it", "tensors")] * SEVERAL.get(spec.key, 0)
    if any(p.kind == "tuple" for p in needed):
        rows.append(("tuple", "both", {}))
        wires = [
            ("in_input", "both", "items"),
            ("in_input", "both", "items"),
            ("both", "it", "input"),
        ]
    alone = net(rows, wires)
    for number, port in enumerate(catalog().spec_of(alone, alone.nodes["it"]).outputs):
        if needed and ("tensor" in port.kind or port.kind == "any"):
            rows.append(("output", f"out{number}", {}))
            wires.append(("it", f"out{number}", "input", number))
        elif spec.key in LAST or not needed:
            rows += LAST_ROWS[port.kind]
            wires += LAST_WIRES[port.kind]
    return net(rows, wires)


# What becomes of values that are no tensors.
LAST = (
    "number",
    "Tensor.size",
    "Tensor.shape",
    "Tensor.dim",
    "Tensor.numel",
    "torch.finfo",
    "tuple",
    "torch.unbind",
)
_ADDED: list[Row] = [
    ("input", "beside", {"shape": (1,)}),
    ("operator.add", "sum", {}),
    ("output", "out", {}),
]
_ADDING: list[tuple[Any, ...]] = [
    ("beside", "sum"),
    ("it", "sum", "other"),
    ("sum", "out"),
]
LAST_ROWS: dict[str, list[Row]] = {
    **dict.fromkeys(("number", "tensor"), _ADDED),
    "tuple": [
        ("operator.getitem", "first", {"index": 0}),
        ("input", "beside", {"shape": (1,)}),
        ("operator.mul", "product", {}),
        ("output", "out", {}),
    ],
}
LAST_WIRES: dict[str, list[tuple[Any, ...]]] = {
    **dict.fromkeys(("number", "tensor"), _ADDING),
    "tuple": [
        ("it", "first"),
        ("first", "product"),
        ("beside", "product", "other"),
        ("product", "out"),
    ],
}


def _input(spec: OpSpec, port: Port) -> dict[str, Any]:
    dtype = DTYPES.get((spec.key, port.name))
    shape = _PORTS.get((spec.key, port.name), sample(spec))
    return {"shape": shape} | ({"dtype": dtype} if dtype else {})


def sample(spec: OpSpec) -> tuple[int, ...]:
    return SAMPLES.get(spec.key, (3, 8, 8))


def run(source: Source, batch: int) -> tuple[torch.Tensor, ...]:
    """What the generated class returns for inputs of zeros, or of unit matrices for linear algebra; always a tuple."""
    inputs = [
        torch.zeros(batch, *spec.shape, dtype=getattr(torch, spec.dtype))
        for spec in source.inputs
    ]
    if "torch.linalg." in source.text:
        inputs = [one + torch.eye(*one.shape[-2:]) for one in inputs]
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # an implicit dim, a dropout of one layer: torch's words, not ours
        answer = load_class(source)().eval()(*inputs)
    return answer if isinstance(answer, tuple) else (answer,)


def returned(analysis: Analysis, batch: int) -> tuple[tuple[tuple[int, ...], str], ...]:
    """Shape and dtype of every output as the analysis says."""
    types = []
    for node in analysis.graph.nodes.values():
        if node.op == "output":
            (edge,) = analysis.graph.into(node.id)
            types.append(typed(analysis.values[edge.source, edge.output], batch))
    return tuple(types)


def typed(value: ValueType, batch: int) -> tuple[tuple[int, ...], str]:
    assert isinstance(value, TensorType) and not isinstance(value, TupleType)
    return value.with_batch(batch), value.dtype


def measured(
    tensors: Iterable[torch.Tensor],
) -> tuple[tuple[tuple[int, ...], str], ...]:
    return tuple(
        (tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."))
        for tensor in tensors
    )


def skeleton(text: str) -> str:
    """The structure of a source without its names, texts and numbers: what a name or value must never change."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        for name, value in ast.iter_fields(node):
            if isinstance(value, str | int | float) and not isinstance(value, bool):
                setattr(node, name, "_")
    return ast.dump(tree)
