"""Numbers and tuples on wires: what is wired does what it would do if it were typed."""

from __future__ import annotations

import ast
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from app.builder import literals, rules
from app.builder.analysis import analyse
from app.builder.catalog.catalog import OpSpec, Port, catalog
from app.builder.edits import edits
from app.builder.graph import Graph, Node
from app.builder.literals import (
    DType,
    LiteralError,
    Slice,
    decode,
    encode,
    index_code,
    to_code,
)
from app.builder.params import format_param, parse_param
from app.builder.results import Analysis
from app.builder.value_types import BATCHES, NumberType, TupleType, kinds_fit
from app.project import file
from app.project.project import Project
from app.source.compiled import make_module
from app.util.frozen import FrozenMap
from tests.support.builder_nets import (
    INT64,
    Row,
    around,
    measured,
    net,
    returned,
    run,
    wired,
)
from tests.support.every import every

OPS = catalog()
CALLS = [spec for spec in OPS.values() if rules.wirable_at_first(spec)]


def literal_at(node: Node, spec: OpSpec, port: Port) -> Any:
    """What is typed in the place of a port, None if nothing is."""
    value = spec.value(node, port.param)
    if port.name == port.param or not isinstance(value, tuple):
        return value
    item = value[int(port.name.partition("[")[2].partition("]")[0])]
    return (
        getattr(item, port.name.rpartition(".")[2]) if isinstance(item, Slice) else item
    )


def wired_to_it(graph: Graph, port: Port, rows: list[Row], source: str) -> Graph:
    nodes = graph.nodes
    for op, name, params in rows:
        nodes = nodes.set(name, Node(name, op, name, FrozenMap(params)))
    made = replace(graph, nodes=nodes)
    if source == "size":
        made = wired(made, "sized", "size", "input")
    return wired(made, source, "it", port.name)


@every({spec.key: spec for spec in CALLS})
def test_a_parameter_does_the_same_wired_as_typed(spec: OpSpec) -> None:
    """Every parameter of every call, given by a typed number and by a size of another input."""
    graph = around(spec)
    typed = analyse(graph)
    plain = measured(run(typed.source, 3))
    for port in rules.wirable(graph, OPS, "it"):
        value = literal_at(graph.nodes["it"], spec, port)
        if type(value) not in (int, float, bool) or not kinds_fit("number", port.kind):
            continue
        sources: list[tuple[list[Row], str]] = [
            ([("number", "given", {"value": value})], "given")
        ]
        if type(value) is int and value > 0:
            sized = ("input", "sized", {"shape": (value,)})
            sources.append(([sized, ("Tensor.size", "size", {"dim": 1})], "size"))
        for rows, source in sources:
            drawn = wired_to_it(graph, port, rows, source)
            analysis = analyse(drawn)
            assert not analysis.errors, (port.name, analysis.source.text)
            assert "given" in analysis.live or "size" in analysis.live
            if source == "size":
                assert "sized.size(1)" in analysis.source.text, (
                    port.name,
                    analysis.source.text,
                )
            assert returned(analysis, 3) == returned(typed, 3)
            assert measured(run(analysis.source, 3)) == plain, analysis.source.text
            project = Project(graph=drawn)
            assert file.loads(file.dumps(project)) == project


def text(rows: list[Row], wires: list[tuple[Any, ...]]) -> tuple[str, Analysis]:
    """The lines of forward, once they were run and gave what was said."""
    analysis = analyse(net(rows, wires))
    assert not analysis.errors, analysis.errors
    for batch in (2, 5):
        assert measured(run(analysis.source, batch)) == returned(analysis, batch)
    body = analysis.source.text.partition("def forward")[2].partition("\n")[2]
    return "\n".join(
        line.strip().partition("  #")[0] for line in body.splitlines()
    ), analysis


def test_the_batch_of_a_view_comes_from_its_size() -> None:
    rows: list[Row] = [
        ("input", "x", {"shape": (3, 8)}),
        ("Tensor.size", "size1", {}),
        ("Tensor.view", "view", {"size": (0, -1)}),
        ("output", "y", {}),
    ]
    lines, analysis = text(
        rows,
        [("x", "size1"), ("x", "view"), ("size1", "view", "size[0]"), ("view", "y")],
    )
    assert lines == "x = x.view(x.size(0), -1)\nreturn x"
    assert (
        str(analysis.values["size1", 0]) == "N"
        and str(analysis.values["view", 0]) == "N×24"
    )


def test_positions_are_cut_to_the_length_of_what_arrives() -> None:
    rows: list[Row] = [
        ("input", "tokens", {"shape": (16,), "dtype": INT64}),
        ("nn.Embedding", "embed", {}),
        ("parameter", "pos", {"shape": (1, 64, 64), "fill": "normal", "std": 0.02}),
        ("Tensor.size", "size1", {"dim": 1}),
        ("operator.getitem", "cut", {"index": (Slice(), Slice(None, 1))}),
        ("operator.add", "add", {}),
        ("output", "y", {}),
    ]
    wires = [
        ("tokens", "embed"),
        ("tokens", "size1"),
        ("pos", "cut"),
        ("size1", "cut", "index[1].stop"),
        ("embed", "add"),
        ("cut", "add", "other"),
        ("add", "y"),
    ]
    lines, analysis = text(rows, wires)
    assert "y = self.pos[:, :tokens.size(1)]" in lines
    assert (
        "self.pos = nn.Parameter(torch.randn(1, 64, 64) * 0.02)" in analysis.source.text
    )
    assert analysis.parameters["pos"] == 4096 and "pos" in dict(
        make_module(analysis.source).named_parameters()
    )


def test_a_size_that_is_used_twice_has_a_name() -> None:
    rows: list[Row] = [
        ("input", "x", {"shape": (6, 4)}),
        ("Tensor.size", "size1", {}),
        ("Tensor.size", "size2", {"dim": 2}),
        ("operator.floordiv", "half", {"other": 2}),
        ("Tensor.view", "heads", {"size": (0, -1, 2, 0)}),
        ("Tensor.view", "back", {"size": (0, -1)}),
        ("output", "y", {}),
    ]
    wires = [
        ("x", "size1"),
        ("x", "size2"),
        ("size2", "half"),
        ("x", "heads"),
        ("size1", "heads", "size[0]"),
        ("half", "heads", "size[3]"),
        ("heads", "back"),
        ("size1", "back", "size[0]"),
        ("back", "y"),
    ]
    lines, _ = text(rows, wires)
    assert (
        lines
        == "n = x.size(0)\nhalf = x.size(2) // 2\nx = x.view(n, -1, 2, half)\nx = x.view(n, -1)\nreturn x"
    )


@pytest.mark.parametrize(
    ("op", "params", "line"),
    [
        ("operator.mul", {"other": 0.5}, "x = x * 0.5"),
        ("operator.sub", {"input": 1}, "x = 1 - x"),
        ("operator.pow", {"input": -2.0}, "x = (-2.0) ** x"),
        ("operator.truediv", {"other": -3}, "x = x / -3"),
        ("operator.mod", {"other": 2}, "x = x % 2"),
        ("torch.gt", {"other": 0.5}, "x = torch.gt(x, 0.5)"),
    ],
)
def test_an_operand_is_typed_in_the_place_of_a_wire(
    op: str, params: dict[str, Any], line: str
) -> None:
    rows: list[Row] = [
        ("input", "x", {"shape": (4,)}),
        (op, "it", params),
        ("output", "y", {}),
    ]
    lines, _ = text(
        rows, [("x", "it", "other" if "input" in params else "input"), ("it", "y")]
    )
    assert lines.splitlines()[0] == line
    both = net(
        [*rows, ("input", "z", {"shape": (4,)})],
        [("x", "it"), ("z", "it", "other"), ("it", "y")],
    )
    assert "0.5" not in analyse(both).source.text, "a wire wins over what is typed"


def test_where_chooses_between_numbers() -> None:
    rows: list[Row] = [
        ("input", "x", {"shape": (4,)}),
        ("torch.gt", "positive", {"other": 0}),
        ("torch.where", "where", {"input": 1.0, "other": -1.0}),
        ("output", "y", {}),
    ]
    lines, analysis = text(
        rows, [("x", "positive"), ("positive", "where", "condition"), ("where", "y")]
    )
    assert "x = torch.where(x, 1.0, -1.0)" in lines
    (answer,) = run(analysis.source, 2)
    assert torch.equal(answer, torch.full((2, 4), -1.0))


def test_a_state_is_taken_apart_and_put_together() -> None:
    rows: list[Row] = [
        ("input", "x", {"shape": (5, 8)}),
        ("nn.LSTM", "encoder", {}),
        ("unpack", "parts", {}),
        ("nn.Tanh", "tanh", {}),
        ("tuple", "state", {}),
        ("nn.LSTM", "decoder", {}),
        ("output", "y", {}),
    ]
    wires = [
        ("x", "encoder"),
        ("encoder", "parts", "input", 1),
        ("parts", "tanh"),
        ("tanh", "state", "items"),
        ("parts", "state", "items", 1),
        ("x", "decoder"),
        ("state", "decoder", "hx"),
        ("decoder", "y"),
    ]
    lines, _ = text(rows, wires)
    assert lines == (
        "_, state = self.encoder(x)\ny, z = state\ny = self.tanh(y)\ny = (y, z)\n"
        "x, _ = self.decoder(x, y)\nreturn x"
    )


def test_a_shape_is_read_apart() -> None:
    rows: list[Row] = [
        ("input", "x", {"shape": (6, 4)}),
        ("Tensor.shape", "shape", {}),
        ("unpack", "sizes", {"count": 3}),
        ("torch.reshape", "wide", {"shape": (0, 0)}),
        ("torch.zeros", "zeros", {"size": (1,)}),
        ("operator.add", "add", {}),
        ("operator.mul", "area", {}),
        ("torch.reshape", "back", {"shape": (0, 0)}),
        ("output", "y", {}),
    ]
    wires = [
        ("x", "shape"),
        ("shape", "sizes"),
        ("sizes", "area"),
        ("sizes", "area", "other", 1),
        ("x", "wide"),
        ("area", "wide", "shape[0]"),
        ("sizes", "wide", "shape[1]", 2),
        ("x", "zeros", "like"),
        ("shape", "zeros", "size"),
        ("x", "add"),
        ("zeros", "add", "other"),
        ("add", "back"),
        ("area", "back", "shape[0]"),
        ("sizes", "back", "shape[1]", 2),
        ("back", "y"),
    ]
    analysis = analyse(net(rows, wires))
    assert not analysis.errors and str(analysis.values["area", 0]) == "6N"
    assert analysis.values["shape", 0] == TupleType(
        (NumberType(*BATCHES), NumberType(6, 6), NumberType(4, 4))
    )
    assert "torch.zeros(shape, device=x.device)" in analysis.source.text
    assert (
        measured(run(analysis.source, 3))
        == returned(analysis, 3)
        == (((18, 4), "float32"),)
    )


def test_a_constant_moves_with_the_network() -> None:
    rows: list[Row] = [
        ("input", "x", {"shape": (2,)}),
        ("constant", "kernel", {"value": ((1, 0), (0.5, 2))}),
        ("torch.matmul", "mul", {}),
        ("output", "y", {}),
    ]
    lines, analysis = text(
        rows, [("x", "mul"), ("kernel", "mul", "other"), ("mul", "y")]
    )
    assert lines == "x = torch.matmul(x, self.kernel)\nreturn x"
    module = make_module(analysis.source).to(torch.float64)
    assert module.kernel.dtype is torch.float64 and list(module.state_dict()) == [
        "kernel"
    ]


FILLED = [
    {"fill": fill, **more}
    for fill, more in (
        ("zeros", {}),
        ("ones", {}),
        ("full", {"value": 3}),
        ("full", {"value": 0.5, "dtype": DType("float64")}),
        ("normal", {}),
        ("normal", {"std": 0.02}),
        ("uniform", {}),
        ("uniform", {"low": -1.0}),
        ("eye", {}),
        ("arange", {}),
        ("arange", {"dtype": INT64}),
    )
]


@pytest.mark.parametrize(
    ("op", "params"),
    [("buffer", params) for params in FILLED]
    + [("parameter", params) for params in FILLED if "arange" not in str(params)],
    ids=str,
)
@pytest.mark.parametrize("shape", [(3, 3), (2, 5), (4,), ()], ids=str)
def test_free_tensors_are_filled_as_they_say(
    op: str, shape: tuple[int, ...], params: dict[str, Any]
) -> None:
    rows: list[Row] = [
        ("input", "x", {"shape": ()}),
        (op, "it", {**params, "shape": shape}),
        ("operator.add", "s", {}),
        ("output", "y", {}),
        ("output", "z", {}),
    ]
    analysis = analyse(
        net(rows, [("x", "s"), ("it", "z"), ("s", "y")]).with_param("s", "other", 1)
    )
    if params["fill"] == "eye" and len(shape) != 2:
        assert any(
            "eye expects a shape of two sizes" in str(problem)
            for problem in analysis.errors
        )
        return
    assert not analysis.errors
    _, made = run(analysis.source, 2)
    assert (
        measured([made])
        == measured([run(analysis.source, 2)[1]])
        == (returned(analysis, 2)[1],)
    )
    first = {
        "zeros": 0.0,
        "ones": 1.0,
        "full": params.get("value"),
        "eye": 1.0,
        "arange": 0,
    }.get(params["fill"])
    assert first is None or made.flatten()[0].item() == first
    assert (op == "parameter") == bool(list(make_module(analysis.source).parameters()))


def test_a_frozen_parameter_does_not_learn() -> None:
    graph = net(
        [
            ("input", "x", {"shape": (4,)}),
            ("parameter", "scale", {"shape": (4,)}),
            ("operator.mul", "m", {}),
            ("output", "y", {}),
        ],
        [("x", "m"), ("scale", "m", "other"), ("m", "y")],
    )
    assert edits.flaggable(Project(graph=graph), OPS, graph.nodes, "frozen") == (
        "scale",
    )
    for still in (
        graph.with_param("scale", "requires_grad", False),
        graph.with_node(replace(graph.nodes["scale"], frozen=True)),
    ):
        assert not make_module(analyse(still).source).scale.requires_grad


# --- What may be wired


VIEW = net(
    [
        ("input", "x", {"shape": (3, 8)}),
        ("Tensor.size", "size", {}),
        ("Tensor.view", "view", {"size": (0, -1)}),
        ("nn.Linear", "fc", {}),
        ("torch.chunk", "chunk", {}),
        ("F.softmax", "softmax", {}),
        ("output", "y", {}),
    ],
    [
        ("x", "size"),
        ("x", "view"),
        ("size", "view", "size[0]"),
        ("view", "fc"),
        ("fc", "y"),
    ],
)


@pytest.mark.parametrize(
    ("target", "port", "says"),
    [
        (
            "fc",
            "out_features",
            "out_features of fc cannot be wired: the layer is constructed before there are data",
        ),
        (
            "chunk",
            "chunks",
            "chunks of chunk cannot be wired: it determines the number of outputs. Type its value",
        ),
        (
            "softmax",
            "dtype",
            "dtype of softmax cannot be wired: it is a choice, a dtype or a fixed value. Type its value",
        ),
        ("view", "size[2]", "view has no input size[2] for size"),
        ("view", "size", "size gives a number, view expects a tuple as size"),
    ],
)
def test_what_no_wire_can_give_is_said(target: str, port: str, says: str) -> None:
    with pytest.raises(rules.ConnectError) as told:
        rules.connect(VIEW, OPS, "size", 0, target, port)
    assert says in str(told.value)


def test_wirable_parameters_and_their_parts() -> None:
    assert [port.name for port in rules.wirable(VIEW, OPS, "view")] == [
        "size",
        "size[0]",
        "size[1]",
    ]
    index = VIEW.with_node(
        Node(
            "item",
            "operator.getitem",
            "item",
            FrozenMap(index=(Ellipsis, Slice(1), 0, None)),
        )
    )
    assert [port.name for port in rules.wirable(index, OPS, "item")] == [
        "index",
        "index[1].start",
        "index[1].stop",
        "index[1].step",
        "index[2]",
    ]
    assert rules.wirable(VIEW, OPS, "fc") == ()


def test_whole_and_parts_are_not_wired_at_once() -> None:
    graph = VIEW.with_node(Node("shape", "Tensor.shape", "shape"))
    graph = rules.connect(graph, OPS, "x", 0, "shape", "input")
    whole = rules.connect(graph, OPS, "shape", 0, "view", "size")
    assert [edge.port for edge in whole.into("view")] == ["input", "size"]
    parts = rules.connect(whole, OPS, "size", 0, "view", "size[1]")
    assert [edge.port for edge in parts.into("view")] == ["input", "size[1]"]


def test_an_element_that_is_gone_is_said_and_the_file_still_opens() -> None:
    shorter = rules.connect(VIEW, OPS, "size", 0, "view", "size[1]").with_param(
        "view", "size", (-1,)
    )
    (problem,) = analyse(shorter).errors
    assert (problem.message, problem.port) == ("view has no size[1]", "size[1]")
    project = Project(graph=shorter)
    assert file.loads(file.dumps(project)) == project


def test_a_required_parameter_counts_as_set_when_it_is_wired() -> None:
    rows: list[Row] = [
        ("input", "x", {"shape": (3, 8)}),
        ("number", "one", {"value": 1}),
        ("torch.select", "pick", {}),
        ("output", "y", {}),
    ]
    graph = net(
        rows, [("x", "pick"), ("one", "pick", "dim"), ("pick", "y")]
    ).without_param("pick", "dim")
    analysis = analyse(graph)
    assert (
        not analysis.errors
        and "torch.select(x, dim=1, index=0)" in analysis.source.text
    )
    alone = replace(
        graph, edges=tuple(edge for edge in graph.edges if edge.port != "dim")
    )
    assert any(problem.message == "pick needs dim" for problem in analyse(alone).errors)


def test_edits_keep_wires_of_parameters_where_they_fit() -> None:
    project = Project(
        graph=VIEW, positions=FrozenMap({node: (0.0, 0.0) for node in VIEW.nodes})
    )
    other = edits.replace_op(project, OPS, "view", "torch.reshape").graph
    assert [edge.port for edge in other.into("view")] == ["input"]
    expand = edits.replace_op(project, OPS, "view", "Tensor.expand").graph
    assert [edge.port for edge in expand.into("view")] == ["input", "size[0]"]
    assert not any(
        e.port == "size[0]"
        for e in edits.delete_and_reconnect(project, OPS, ["size"]).graph.edges
    )
    muted = edits.flagged(project, ["view"], "muted", True).graph
    assert (
        "return x" in analyse(muted).source.text
        and "view" not in analyse(muted).source.text
    )
    piece = edits.copy(project, ["x", "size", "view"])
    pasted, _ = edits.paste(project, piece, 10, 10)
    assert sum(edge.port == "size[0]" for edge in pasted.graph.edges) == 2


def test_a_muted_call_does_not_pass_on_a_number_that_was_for_a_parameter() -> None:
    graph = edits.flagged(Project(graph=VIEW), ["view"], "muted", True).graph
    cut = replace(
        graph,
        edges=tuple(e for e in graph.edges if (e.source, e.target) != ("x", "view")),
    )
    assert ("view", 0) not in analyse(cut).values


# --- Literals


ints = st.one_of(st.none(), st.integers(-5, 5))
steps = st.one_of(st.none(), st.integers(-5, 5).filter(bool))
slices = st.builds(Slice, ints, ints, steps)
places = st.one_of(st.integers(-9, 9), st.none(), slices)
indices = st.one_of(
    places,
    st.just(Ellipsis),
    st.lists(places, min_size=1, max_size=4).map(tuple),
    st.lists(places, max_size=3).map(lambda more: (Ellipsis, *more)),
)
scalars = st.one_of(st.booleans(), st.integers(-9, 9), st.floats(-9, 9))
tensors = st.recursive(
    scalars,
    lambda inner: inner.flatmap(lambda x: st.integers(1, 3).map(lambda n: (x,) * n)),
    max_leaves=6,
)
INDEX = OPS["operator.getitem"].params[0]
TENSOR = OPS["constant"].params[0]


@given(indices)
def test_an_index_survives_file_form_and_source(value: Any) -> None:
    assert decode(encode(value)) == value
    assert parse_param(INDEX, format_param(value)) == value
    tree = ast.parse(f"_[{index_code(value)}]", mode="eval").body
    assert isinstance(tree, ast.Subscript) and _evaluated(tree.slice) == _plain(value)


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_plain, value))
    return slice(*value.parts) if isinstance(value, Slice) else value


def _evaluated(tree: ast.expr) -> Any:
    if isinstance(tree, ast.Tuple):
        return tuple(map(_evaluated, tree.elts))
    if isinstance(tree, ast.Slice):
        parts = (tree.lower, tree.upper, tree.step)
        return slice(
            *(None if part is None else ast.literal_eval(part) for part in parts)
        )
    return ast.literal_eval(tree)


@given(tensors)
def test_a_typed_tensor_survives_file_and_form(value: Any) -> None:
    assert decode(encode(value)) == value
    again = parse_param(TENSOR, format_param(value))
    assert again == value and to_code(again) == to_code(value)


@pytest.mark.parametrize(
    "raw",
    [
        {"$slice": [1, 2]},
        {"$slice": [1, "2", None]},
        {"$slice": [0, 1, 0]},
        {"$slice": [True, None, None]},
        {"$ellipsis": False},
    ],
)
def test_broken_literals_are_refused(raw: Any) -> None:
    with pytest.raises(LiteralError):
        decode(raw)


def test_one_and_one_point_and_true_are_three_numbers() -> None:
    def dtype_of(value: Any) -> str:
        rows: list[Row] = [
            ("input", "x", {"shape": (4,), "dtype": INT64}),
            ("number", "n", {"value": value}),
            ("operator.mul", "m", {}),
            ("output", "y", {}),
        ]
        _, analysis = text(rows, [("x", "m"), ("n", "m", "other"), ("m", "y")])
        return returned(analysis, 2)[0][1]

    assert [dtype_of(value) for value in (1, 1.0, True, 2, 1)] == [
        "int64",
        "float32",
        "int64",
        "int64",
        "int64",
    ]


@pytest.mark.parametrize(
    ("first", "second", "says", "at"),
    [
        (1009, 2017, "N", 7),
        (18162, 36306, "18N", 126),
        (64, 64, "64", 64),
        (0.5, 0.5, "0.5", 0.5),
        (True, True, "True", True),
        (1008, 2016, "N−1", 6),
        (504, 1008, "f(N)", 3),
    ],
)
def test_numbers_are_said_in_terms_of_the_batch(
    first: Any, second: Any, says: str, at: Any
) -> None:
    number = NumberType.from_batches(first, second)
    assert (str(number), number.with_batch(7)) == (says, at)
    assert literals.to_code(number.with_batch(BATCHES[0])) == literals.to_code(first)


def test_values_of_its_own_in_a_block_follow_its_parameters() -> None:
    from app.builder.blocks import Block, with_blocks
    from app.builder.catalog.catalog import Param
    from app.builder.expressions import Expr

    rows: list[Row] = [
        ("input", "x", {"shape": (8,)}),
        ("input", "count", {"shape": (1,)}),
        ("operator.mul", "scaled", {}),
        (
            "parameter",
            "weight",
            {"shape": (1, Expr("channels")), "fill": "normal", "std": Expr("gain")},
        ),
        ("operator.mul", "more", {"other": Expr("channels * 2")}),
        ("number", "half", {"value": Expr("gain / 2")}),
        ("operator.truediv", "less", {}),
        ("operator.mul", "counted", {}),
        ("Tensor.size", "size1", {}),
        ("Tensor.view", "view", {"size": (1, Expr("channels"))}),
        ("output", "y", {}),
    ]
    wires = [
        ("x", "scaled"),
        ("weight", "scaled", "other"),
        ("scaled", "more"),
        ("more", "less"),
        ("half", "less", "other"),
        ("less", "counted"),
        ("count", "counted", "other"),
        ("counted", "view"),
        ("x", "size1"),
        ("size1", "view", "size[0]"),
        ("view", "y"),
    ]
    params = (Param("channels", "int", 8), Param("gain", "float", 0.5))
    block = Block("Scale", net(rows, wires), params=params)
    ops = with_blocks(OPS, FrozenMap({"Scale": block}))
    outside = net(
        [
            ("input", "x", {"shape": (8,)}),
            ("Tensor.size", "size1", {"dim": 1}),
            ("nn.Linear", "fc", {}),
            ("output", "y", {}),
        ],
        [("x", "size1"), ("x", "fc")],
    )
    for name, typed in (
        ("first", FrozenMap()),
        ("second", FrozenMap(channels=64, gain=0.25)),
    ):
        outside = outside.with_node(Node(name, "block.Scale", name, typed))
    for source, target, port in (
        ("x", "first", "x"),
        ("fc", "second", "x"),
        ("second", "y", "input"),
        ("size1", "first", "count"),
        ("size1", "second", "count"),
    ):
        outside = rules.connect(outside, ops, source, 0, target, port)
    outside = rules.connect(
        outside.with_node(Node("z", "output", "z")), ops, "first", 0, "z", "input"
    )
    analysis = analyse(outside, ops)
    assert not analysis.errors
    for line in (
        "self.weight = nn.Parameter(torch.randn(1, channels) * gain)",
        "y = y * (self.channels * 2)",
        "y = y / (self.gain / 2)",
        "x = y.view(x.size(0), self.channels)",
        "size = x.size(1)",
    ):
        assert line in analysis.source.text
    assert (
        measured(run(analysis.source, 3))
        == returned(analysis, 3)
        == (((3, 64), "float32"), ((3, 8), "float32"))
    )
    assert analysis.total_parameters == sum(
        p.numel() for p in make_module(analysis.source).parameters()
    )


def test_training_and_autograd_know_whose_a_free_parameter_is() -> None:
    from app.engine.requests.capture import CaptureRequest, node_labels
    from app.engine.tasks.capture import batch_of
    from app.preflight import preflight
    from app.training.config import Choice, TrainingConfig
    from app.training.monitoring.nonfinite import _owner

    rows: list[Row] = [
        ("input", "x", {"shape": (1, 8, 8)}),
        ("nn.Flatten", "flat", {}),
        ("parameter", "scale", {"shape": (64,)}),
        ("operator.mul", "mul", {}),
        ("nn.Linear", "fc", {"out_features": 10}),
        ("output", "y", {}),
    ]
    graph = net(
        rows,
        [
            ("x", "flat"),
            ("flat", "mul"),
            ("scale", "mul", "other"),
            ("mul", "fc"),
            ("fc", "y"),
        ],
    )
    project = Project(
        graph=graph, training=TrainingConfig(epochs=1, loss=Choice("CrossEntropyLoss"))
    )
    analysis = analyse(graph)
    assert preflight.problems(project, analysis) == ()
    tape = batch_of(
        CaptureRequest(preflight.job(project, analysis), node_labels(graph, OPS))
    ).capture()
    assert [node.node for node in tape.nodes if node.parameters == ("scale",)] == [
        "scale"
    ]
    assert (
        _owner("scale", analysis.source) == "scale"
        and _owner("fc.bias", analysis.source) == "fc"
    )
    still = wired(
        graph.without_nodes(["fc"]).with_param("scale", "requires_grad", False),
        "mul",
        "y",
    )
    said = [
        problem.message
        for problem in preflight.problems(replace(project, graph=still), analyse(still))
    ]
    assert "There is nothing to train" in said


@pytest.mark.parametrize(
    ("op", "params", "says"),
    [
        ("parameter", {"dtype": INT64}, "Only Tensors of floating point"),
        ("buffer", {"fill": "normal", "dtype": INT64}, "expected a floating-point"),
        (
            "buffer",
            {"fill": "uniform", "low": 2.0},
            "uniform expects low (2.0) below high (1.0)",
        ),
    ],
)
def test_a_free_tensor_that_torch_refuses_is_an_error(
    op: str, params: dict[str, Any], says: str
) -> None:
    rows: list[Row] = [
        ("input", "x", {"shape": (1, 64)}),
        (op, "it", params),
        ("operator.add", "s", {}),
        ("output", "y", {}),
    ]
    (problem,) = analyse(
        net(rows, [("x", "s"), ("it", "s", "other"), ("s", "y")])
    ).errors
    assert problem.node == "it" and says in problem.torch_message


def test_what_no_processor_can_make_is_an_error_before_it_runs() -> None:
    rows: list[Row] = [
        ("input", "x", {"shape": (4,)}),
        ("torch.arange", "it", {"dtype": DType("complex64")}),
        ("output", "y", {}),
    ]
    (problem,) = analyse(net(rows, [("x", "it", "like"), ("it", "y")])).errors
    assert problem.node == "it" and "arange" in problem.message
