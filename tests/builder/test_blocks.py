"""Blocks, repeats and shared modules: the class that comes out computes what plain torch does."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from app.builder.analysis import analyse, shapes_first
from app.builder.blocks import Block, contained, with_blocks, would_contain_itself
from app.builder.catalog.catalog import Catalog, Param, catalog
from app.builder.diagnostics.problems import apply_cure
from app.builder.expressions import Expr, ExpressionError
from app.builder.graph import Edge, Graph, Init, Node
from app.builder.literals import decode, encode
from app.builder.results import Analysis
from app.builder.shapes.cost import cost
from app.source.compiled import make_module
from app.util.frozen import FrozenMap


def graph(rows: list[Any], wires: list[str]) -> Graph:
    """Nodes from rows (id, op, params, further fields), wires from "a>b" or "a.1>b.port"."""
    nodes = {}
    for node_id, op, params, *more in rows:
        nodes[node_id] = Node(
            node_id, op, node_id, FrozenMap(params), **(more[0] if more else {})
        )
    edges = []
    for wire in wires:
        left, right = wire.split(">")
        source, _, output = left.partition(".")
        target, _, port = right.partition(".")
        port = port or {"output": "input"}.get(nodes[target].op, "input")
        edges.append(Edge(source, int(output or 0), target, port))
    return Graph(FrozenMap(nodes), tuple(edges))


RESIDUAL = Block(
    "Residual",
    graph(
        [
            ("x", "input", {"shape": (8, 8, 8)}),
            (
                "conv1",
                "nn.Conv2d",
                {"out_channels": Expr("channels"), "kernel_size": 3, "padding": 1},
            ),
            ("bn1", "nn.BatchNorm2d", {}),
            ("relu", "nn.ReLU", {}),
            (
                "conv2",
                "nn.Conv2d",
                {"out_channels": Expr("channels"), "kernel_size": 3, "padding": 1},
            ),
            ("skip", "nn.Conv2d", {"out_channels": Expr("channels"), "kernel_size": 1}),
            ("add", "operator.add", {}),
            ("again", "nn.ReLU", {}, {"shares": "relu"}),
            ("y", "output", {}),
        ],
        "x>conv1 conv1>bn1 bn1>relu relu>conv2 conv2>add.input x>skip skip>add.other add>again again>y".split(),
    ),
    params=(Param("channels", "int", 16),),
)


def ops_with(*blocks: Block) -> Catalog:
    return with_blocks(catalog(), FrozenMap({block.name: block for block in blocks}))


def analysed(net: Graph, *blocks: Block, path: Any = ()) -> Analysis:
    answer = analyse(net, ops_with(*blocks), path)
    assert not answer.errors, [problem.message for problem in answer.errors]
    return answer


def image_net(rows: list[Any], wires: list[str]) -> Graph:
    return graph(
        [("x", "input", {"shape": (3, 8, 8)}), *rows, ("y", "output", {})], wires
    )


class PlainResidual(nn.Module):
    def __init__(self, given: int, channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(given, channels, 3, padding=1)
        self.bn1 = nn.BatchNorm2d(channels)
        self.relu = nn.ReLU()
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1)
        self.skip = nn.Conv2d(given, channels, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.relu(self.conv2(self.relu(self.bn1(self.conv1(x)))) + self.skip(x))


def test_a_repeated_block_is_the_net_that_a_person_would_write() -> None:
    net = image_net(
        [
            ("stage", "block.Residual", {"channels": 8}, {"repeat": 3}),
            ("last", "block.Residual", {}),
        ],
        ["x>stage.x", "stage>last.x", "last>y"],
    )
    answer = analysed(net, RESIDUAL)
    module = make_module(answer.source)
    plain = nn.Sequential()
    plain.stage = nn.Sequential(
        PlainResidual(3, 8), PlainResidual(8, 8), PlainResidual(8, 8)
    )
    plain.last = PlainResidual(8, 16)
    assert list(module.state_dict()) == list(plain.state_dict())
    plain.load_state_dict(module.state_dict())
    batch = torch.randn(4, 3, 8, 8)
    assert torch.equal(module(batch), plain(batch))
    assert answer.total_parameters == sum(p.numel() for p in plain.parameters())
    assert (
        "*[Residual(in_channels=8, channels=8) for _ in range(2)]" in answer.source.text
    )
    assert (
        answer.source.text.count("class ") == 2
        and "Maps x (N, in_channels, 8, 8)" in answer.source.text
    )


def test_what_is_the_same_at_all_instances_is_no_argument() -> None:
    net = image_net(
        [("a", "block.Residual", {}), ("b", "block.Residual", {})],
        ["x>a.x", "x>b.x", "a>y"],
    )  # b does not reach the output, so it has no say
    assert "self.a = Residual()" in analysed(net, RESIDUAL).source.text


def test_expressions_of_a_block_reach_blocks_in_it() -> None:
    outer = Block(
        "Stage",
        graph(
            [
                ("x", "input", {"shape": (8, 8, 8)}),
                ("first", "block.Residual", {"channels": Expr("width * 2")}),
                ("view", "torch.reshape", {"shape": (-1, Expr("width"))}),
                ("y", "output", {}),
            ],
            ["x>first.x", "first>view", "view>y"],
        ),
        params=(Param("width", "int", 4),),
    )
    net = image_net(
        [("one", "block.Stage", {}), ("two", "block.Stage", {"width": 8})],
        ["x>one.x", "x>two.x", "one>y"],
    )
    net = net.with_node(Node("z", "output", "z")).with_edge(
        Edge("two", 0, "z", "input")
    )
    text = analysed(net, RESIDUAL, outer).source.text
    assert (
        "self.first = Residual(channels=width * 2)" in text
        and "reshape(x, (-1, self.width))" in text
    )
    one, two = make_module(analysed(net, RESIDUAL, outer).source)(
        torch.randn(2, 3, 8, 8)
    )
    assert one.shape == (2 * 8 * 64 // 4, 4) and two.shape == (2 * 16 * 64 // 8, 8)


def test_a_module_called_twice_has_its_weights_once() -> None:
    net = graph(
        [
            ("x", "input", {"shape": (6,)}),
            ("fc", "nn.Linear", {"out_features": 6, "bias": False}),
            ("act", "nn.Tanh", {}),
            ("once_more", "nn.Linear", {}, {"shares": "fc"}),
            ("y", "output", {}),
        ],
        ["x>fc", "fc>act", "act>once_more", "once_more>y"],
    )
    answer = analysed(net)
    module = make_module(answer.source)
    assert answer.total_parameters == 36 == sum(p.numel() for p in module.parameters())
    batch = torch.randn(3, 6)
    weight = next(module.parameters())
    torch.testing.assert_close(module(batch), torch.tanh(batch @ weight.T) @ weight.T)
    assert cost(net).parameters == 36 and cost(net).multiply_adds == 72
    assert answer.source.modules["once_more"] == answer.source.modules["fc"]


def test_a_module_called_with_what_it_was_not_made_for_says_so_and_is_cured() -> None:
    net = graph(
        [
            ("x", "input", {"shape": (6,)}),
            ("fc", "nn.Linear", {"out_features": 5}),
            ("once_more", "nn.Linear", {}, {"shares": "fc"}),
            ("y", "output", {}),
        ],
        ["x>fc", "fc>once_more", "once_more>y"],
    )
    (problem,) = analyse(net).errors
    assert problem.node == "once_more" and "5" in problem.message + problem.reason
    own = net.unshared("once_more")
    assert (
        not analyse(own).errors
        and own.nodes["once_more"].params == net.nodes["fc"].params
    )


def test_a_shared_block_with_another_shape_offers_weights_of_its_own() -> None:
    net = image_net(
        [
            ("a", "block.Residual", {"channels": 8}),
            ("b", "block.Residual", {}, {"shares": "a"}),
        ],
        ["x>a.x", "a>b.x", "b>y"],
    )
    (problem,) = analyse(net, ops_with(RESIDUAL)).errors
    assert problem.node == "b" and "shares its weights with a" in problem.message
    mended = apply_cure(net, ops_with(RESIDUAL), problem.cures[0])
    assert not analyse(mended, ops_with(RESIDUAL)).errors


def test_whoever_shared_with_a_deleted_node_keeps_the_module() -> None:
    net = graph(
        [
            ("x", "input", {"shape": (6,)}),
            ("a", "nn.Linear", {"out_features": 6}),
            ("b", "nn.Linear", {}, {"shares": "a"}),
            ("c", "nn.Linear", {}, {"shares": "a"}),
            ("y", "output", {}),
        ],
        ["x>b", "b>c", "c>y"],
    )
    left = net.without_nodes(["a"])
    assert (
        left.nodes["b"].params == net.nodes["a"].params
        and left.nodes["c"].shares == "b"
    )
    assert make_module(analysed(left).source).state_dict().keys() == {
        "b.weight",
        "b.bias",
    }


def test_repeats_that_take_a_second_value_run_in_a_loop() -> None:
    rows = [
        ("x", "input", {"shape": (7, 12)}),
        ("memory", "input", {"shape": (5, 12)}),
        (
            "decoder",
            "nn.TransformerDecoderLayer",
            {"nhead": 3, "dim_feedforward": 16, "dropout": 0.0, "batch_first": True},
            {"repeat": 3},
        ),
        ("y", "output", {}),
    ]
    answer = analysed(
        graph(rows, ["x>decoder.tgt", "memory>decoder.memory", "decoder>y"])
    )
    module = make_module(answer.source)
    x, memory = torch.randn(2, 7, 12), torch.randn(2, 5, 12)
    expected = x
    for layer in module.decoder:
        expected = layer(expected, memory)
    assert isinstance(module.decoder, nn.ModuleList) and len(module.decoder) == 3
    assert torch.equal(module(x, memory), expected)


def test_what_cannot_be_repeated_says_why() -> None:
    rows = [
        ("x", "input", {"shape": (7, 12)}),
        ("lstm", "nn.LSTM", {"hidden_size": 12, "batch_first": True}, {"repeat": 2}),
        ("y", "output", {}),
    ]
    (problem,) = analyse(graph(rows, ["x>lstm", "lstm>y"])).errors
    assert "gives 2 outputs, so it cannot be repeated 2 times" in problem.message


def test_initialisation_is_what_torch_does() -> None:
    inits = FrozenMap(
        {"weight": Init("constant_", FrozenMap(val=0.5)), "bias": Init("zeros_")}
    )
    rows = [
        ("x", "input", {"shape": (3,)}),
        (
            "fc",
            "nn.Linear",
            {"out_features": 3},
            {"inits": inits, "repeat": 2, "frozen": True},
        ),
        ("y", "output", {}),
    ]
    module = make_module(analysed(graph(rows, ["x>fc", "fc>y"])).source)
    assert all(
        bool((layer.weight == 0.5).all() and (layer.bias == 0).all())
        for layer in module.fc
    )
    assert not any(p.requires_grad for p in module.parameters())


def test_what_is_wrong_inside_is_said_at_the_instance_with_the_way_in() -> None:
    broken = Block(
        "Broken",
        RESIDUAL.graph.with_param("skip", "kernel_size", 11),
        params=RESIDUAL.params,
    )
    net = image_net(
        [("a", "block.Broken", {}), ("b", "block.Broken", {})],
        ["x>a.x", "x>b.x", "a>y"],
    )
    net = net.with_node(Node("z", "output", "z")).with_edge(Edge("b", 0, "z", "input"))
    answer = analyse(net, ops_with(broken), path=(("a", 0),))
    (problem,) = [p for p in answer.errors]  # once, not for each instance
    assert (
        problem.node == "a"
        and problem.path == (("a", 0),)
        and problem.message.startswith("In a, skip: ")
    )
    assert (
        any(p.node == "skip" for p in answer.sheet.errors)
        and answer.sheet.graph is broken.graph
    )


def test_a_sheet_shows_what_arrives_at_its_instance() -> None:
    net = image_net(
        [("stage", "block.Residual", {"channels": 8}, {"repeat": 2})],
        ["x>stage.x", "stage>y"],
    )
    first = analysed(net, RESIDUAL, path=(("stage", 0),)).sheet
    second = analysed(net, RESIDUAL, path=(("stage", 1),)).sheet
    assert (
        str(first.values["x", 0]) == "N×3×8×8"
        and str(second.values["x", 0]) == "N×8×8×8"
    )
    assert second.source.modules["conv1"] == "stage.1.conv1"
    lines = second.source.text.splitlines()
    assert any(
        "self.conv1 = nn.Conv2d(" in lines[line - 1]
        for line in second.source.lines["conv1"]
    )


def test_the_first_answer_has_the_shapes_of_the_whole_one() -> None:
    net = image_net(
        [("stage", "block.Residual", {}, {"repeat": 2})], ["x>stage.x", "stage>y"]
    )
    first, ops = shapes_first(net, ops_with(RESIDUAL)), ops_with(RESIDUAL)
    assert first.partial and not first.runnable
    whole = analyse(net, ops, before=shapes_first(net, ops))
    assert whole.values == first.values and not whole.partial and whole.runnable


def test_the_cost_of_a_block_is_the_sum_of_its_inside() -> None:
    net = image_net(
        [("stage", "block.Residual", {"channels": 8}, {"repeat": 2, "frozen": True})],
        ["x>stage.x", "stage>y"],
    )
    total = cost(net, ops_with(RESIDUAL))
    assert (
        total.parameters
        == total.frozen
        == sum(
            p.numel() for p in make_module(analysed(net, RESIDUAL).source).parameters()
        )
    )
    per_pixel = [9 * 3 * 8 + 9 * 8 * 8 + 3 * 8, 9 * 8 * 8 * 2 + 8 * 8]
    assert total.multiply_adds == 64 * sum(per_pixel)
    assert total.nodes["stage"].receptive is not None and str(
        total.nodes["stage"].receptive
    ).startswith("9×9")


def test_a_block_may_not_contain_itself() -> None:
    holder = Block("Holder", graph([("inner", "block.Residual", {})], []))
    blocks = {"Residual": RESIDUAL, "Holder": holder}
    assert contained("Holder", blocks) == ("Residual",)
    assert would_contain_itself(
        blocks, "Residual", "Holder"
    ) and not would_contain_itself(blocks, "Holder", "Residual")
    rows = [
        ("x", "input", {"shape": (3,)}),
        ("me", "block.Endless", {}),
        ("y", "output", {}),
    ]
    endless = Block("Endless", graph(rows, ["x>me.x", "me>y"]))
    net = image_net([("a", "block.Endless", {})], ["x>a.x", "a>y"])
    assert analyse(net, ops_with(endless)).errors


def test_blocks_in_blocks_are_looked_through_once_each() -> None:
    ends = [("x", "input", {"shape": (4,)}), ("y", "output", {})]
    blocks = [
        Block(
            "B0",
            graph(
                [ends[0], ("fc", "nn.Linear", {"out_features": 4}), ends[1]],
                ["x>fc", "fc>y"],
            ),
        )
    ]
    for number in range(1, 30):  # twice the one before: 2**29 layers in all
        rows = [
            ends[0],
            *((f"{side}", f"block.B{number - 1}", {}) for side in "ab"),
            ends[1],
        ]
        blocks.append(Block(f"B{number}", graph(rows, ["x>a.x", "a>b.x", "b>y"])))
    net = graph([ends[0], ("n", "block.B29", {}), ends[1]], ["x>n.x", "n>y"])
    answer = analysed(net, *blocks)
    assert (
        answer.total_parameters == 2**29 * 20 == cost(net, ops_with(*blocks)).parameters
    )
    assert len(answer.source.text) < 20_000


@pytest.mark.parametrize(
    ("before", "warned"),
    [("nn.Conv2d", True), ("torch.permute", False), ("nn.LayerNorm", False)],
)
def test_a_linear_behind_a_picture_is_warned_of_where_channels_stand_first(
    before: str, warned: bool
) -> None:
    params = {
        "nn.Conv2d": {"out_channels": 8, "kernel_size": 3},
        "torch.permute": {"dims": (0, 2, 3, 1)},
    }
    rows = [
        ("a", before, params.get(before, {})),
        ("act", "nn.ReLU", {}),
        ("fc", "nn.Linear", {"out_features": 4}),
    ]
    answer = analyse(image_net(rows, ["x>a", "a>act", "act>fc", "fc>y"]))
    told = [
        problem
        for problem in answer.problems
        if "last dimension only" in problem.message
    ]
    assert bool(told) == warned


NAMES = st.sampled_from(["channels", "width", "k"])
EXPRESSIONS = st.recursive(
    st.one_of(NAMES, st.integers(0, 9).map(str)),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["+", "-", "*", "//", "%"]), inner).map(
            lambda t: f"({t[0]} {t[1]} {t[2]})"
        ),
        inner.map(lambda t: f"-{t}"),
        st.tuples(inner, inner).map(lambda t: f"max({t[0]}, {t[1]})"),
    ),
    max_leaves=6,
)


@given(
    EXPRESSIONS,
    st.fixed_dictionaries(
        {
            "channels": st.integers(1, 64),
            "width": st.integers(1, 9),
            "k": st.integers(0, 3),
        }
    ),
)
def test_an_expression_is_what_python_computes(
    text: str, values: dict[str, int]
) -> None:
    expression = Expr(text)
    assert decode(encode(expression)) == expression
    try:
        expected = eval(text, {"max": max}, dict(values))
    except ZeroDivisionError:
        with pytest.raises(ExpressionError, match="zero"):
            expression.evaluate(values)
        return
    assert expression.evaluate(values) == expected
    assert (
        eval(expression.code("self."), {"max": max, "self": type("S", (), values)})
        == expected
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a b",
        "__import__('os')",
        "a.b",
        "a[0]",
        "lambda: 1",
        "'text'",
        "a ** 9",
        "a if b else c",
        "x" * 300,
    ],
)
def test_no_more_than_arithmetic_is_an_expression(text: str) -> None:
    with pytest.raises(ExpressionError):
        Expr(text)


def test_sizes_that_follow_a_parameter_are_written_with_it() -> None:
    net = image_net(
        [("only", "block.Residual", {"channels": 8})], ["x>only.x", "only>y"]
    )
    text = analysed(net, RESIDUAL).source.text
    assert (
        "nn.BatchNorm2d(channels)" in text and "nn.Conv2d(channels, channels, 3" in text
    )
    assert "nn.Conv2d(3, channels, 3" in text  # what arrives is another matter
    wide = image_net(
        [("only", "block.Residual", {"channels": 24})], ["x>only.x", "only>y"]
    )
    both = [analysed(net, RESIDUAL).source, analysed(wide, RESIDUAL).source]
    blocks = [source.text.partition("class Net")[0].splitlines() for source in both]
    made = [[line for line in lines if " = nn." in line] for lines in blocks]
    assert made[0] == made[1]
    taken_away = both[0].text.replace("Residual(channels=8)", "Residual(channels=24)")
    namespace: dict[str, Any] = {}
    exec(taken_away, namespace)
    assert namespace["Net"]()(torch.zeros(2, 3, 8, 8)).shape == (2, 24, 8, 8)
