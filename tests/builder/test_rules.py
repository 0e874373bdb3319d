"""Which wires may be drawn: whatever a person tries, there is no loop and no port has two wires."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.builder import rules
from app.builder.catalog.catalog import catalog
from app.builder.graph import Edge, Graph, GraphError, Node, merged
from app.builder.plan import plan
from app.builder.rules import (
    AlreadyConnectedError,
    ConnectError,
    CycleError,
    NoSuchPortError,
    WrongKindError,
)
from app.util.frozen import FrozenMap
from tests.support.builder_nets import net

OPS = (
    "input",
    "nn.Linear",
    "operator.add",
    "torch.cat",
    "nn.LSTM",
    "nn.MultiheadAttention",
    "output",
    "my.Unknown",
)


@given(st.data())
def test_whatever_is_tried_there_is_no_loop_and_no_port_with_two_wires(
    data: st.DataObject,
) -> None:
    ops = catalog()
    keys = data.draw(st.lists(st.sampled_from(OPS), min_size=2, max_size=7))
    graph = Graph(
        FrozenMap(
            {f"n{i}": Node(f"n{i}", key, f"name{i}") for i, key in enumerate(keys)}
        )
    )
    for _ in range(data.draw(st.integers(1, 25))):
        source, target = (
            data.draw(st.sampled_from(list(graph.nodes))),
            data.draw(st.sampled_from(list(graph.nodes))),
        )
        ports = [port.name for port in ops.spec_of(graph, graph.nodes[target]).inputs]
        port = data.draw(st.sampled_from([*ports, "nonsense"]))
        output = data.draw(st.sampled_from([0, 0, 1, 2]))
        allowed = rules.can_connect(graph, ops, source, output, target, port)
        try:
            graph = rules.connect(graph, ops, source, output, target, port)
            assert allowed
        except ConnectError as error:
            assert not allowed
            assert graph.nodes[source].name in str(error) and graph.nodes[
                target
            ].name in str(error)
    assert plan(graph, ops).loops == ()
    for node in graph.nodes.values():
        for port in ops.spec_of(graph, node).inputs:
            wires = [edge for edge in graph.into(node.id) if edge.port == port.name]
            assert len(wires) <= 1 or port.variadic
            assert len({edge.index for edge in wires}) == len(wires)


GRAPH = net(
    [
        ("input", "x", {"shape": (5, 8)}),
        ("nn.LSTM", "lstm", {}),
        ("nn.Linear", "fc", {}),
        ("nn.ReLU", "relu", {}),
        ("output", "y", {}),
    ],
    [("x", "lstm"), ("lstm", "fc"), ("fc", "relu")],
)


@pytest.mark.parametrize(
    ("source", "output", "target", "port", "kind", "says"),
    [
        (
            "relu",
            0,
            "fc",
            "input",
            CycleError,
            "fc leads to relu; a wire back would make a cycle",
        ),
        ("fc", 0, "fc", "input", CycleError, "fc leads to fc"),
        (
            "x",
            0,
            "lstm",
            "input",
            AlreadyConnectedError,
            "x is connected to lstm already",
        ),
        (
            "lstm",
            1,
            "y",
            "input",
            WrongKindError,
            "lstm gives a tuple, y expects a tensor as input",
        ),
        (
            "x",
            0,
            "lstm",
            "hx",
            WrongKindError,
            "x gives a tensor, lstm expects a tuple as hx",
        ),
        ("y", 0, "fc", "input", NoSuchPortError, "y has no output to connect to fc"),
        (
            "lstm",
            2,
            "fc",
            "input",
            NoSuchPortError,
            "lstm has no output number 2 to connect to fc",
        ),
        ("fc", 0, "x", "input", NoSuchPortError, "x has no input for fc"),
        ("x", 0, "fc", "other", NoSuchPortError, "fc has no input other for x"),
        (
            "x",
            0,
            "gone",
            "input",
            NoSuchPortError,
            "x and gone cannot be connected: gone no longer exists",
        ),
    ],
)
def test_each_refusal_says_why(
    source: str, output: int, target: str, port: str, kind: type, says: str
) -> None:
    with pytest.raises(kind) as told:
        rules.check_connect(GRAPH, catalog(), source, output, target, port)
    assert says in str(told.value)


def test_a_wire_on_a_taken_port_takes_its_place() -> None:
    graph = rules.connect(GRAPH, catalog(), "x", 0, "fc", "input")
    assert graph.into("fc") == (Edge("x", 0, "fc", "input"),)
    assert GRAPH.into("fc") == (Edge("lstm", 0, "fc", "input"),)


def test_a_variadic_port_takes_the_same_value_twice_and_keeps_the_order() -> None:
    rows = [("input", "a", {}), ("input", "b", {}), ("torch.cat", "cat", {})]
    graph = net(rows, [("b", "cat"), ("a", "cat"), ("b", "cat")])
    assert [(edge.source, edge.index) for edge in graph.into("cat")] == [
        ("b", 0),
        ("a", 1),
        ("b", 2),
    ]
    graph = graph.without_edge(graph.into("cat")[1])
    graph = rules.connect(graph, catalog(), "a", 0, "cat", "tensors")
    assert [edge.source for edge in graph.into("cat")] == ["b", "b", "a"]


def test_first_free_input() -> None:
    rows = [
        ("input", "a", {}),
        ("operator.add", "add", {}),
        ("nn.LSTM", "lstm", {}),
        ("output", "y", {}),
    ]
    graph = net(rows, [("a", "add")])
    ops = catalog()
    assert rules.first_free_input(graph, ops, "a", 0, "add") == "other"
    full = rules.connect(graph, ops, "a", 0, "add", "other")
    assert rules.first_free_input(full, ops, "lstm", 0, "add") == "input"
    assert rules.first_free_input(graph, ops, "lstm", 1, "y") is None
    assert rules.first_free_input(graph, ops, "a", 0, "a") is None


def test_reach_goes_both_ways() -> None:
    assert rules.downstream(GRAPH, ["lstm"]) == {"fc", "relu"}
    assert rules.upstream(GRAPH, ["fc"]) == {"x", "lstm"}
    assert rules.downstream(GRAPH, ["y"]) == set() == rules.upstream(GRAPH, ["x"])


# --- The graph itself ----------------------------------------------------------------------------------------------


def test_edits_return_new_graphs() -> None:
    before = GRAPH
    after = (
        GRAPH.with_name("fc", "head")
        .with_param("fc", "bias", False)
        .without_nodes(["lstm"])
    )
    assert before.nodes["fc"].name == "fc" and len(before.edges) == 3
    assert after.nodes["fc"].name == "head" and after.edges == (
        Edge("fc", 0, "relu", "input"),
    )
    assert (
        after.without_param("fc", "bias").nodes["fc"].params
        == before.nodes["fc"].params
    )


def test_a_wire_needs_both_its_ends() -> None:
    with pytest.raises(GraphError, match="one of them does not exist"):
        GRAPH.with_edge(Edge("x", 0, "gone", "input"))


@given(st.sets(st.integers(1, 30)))
def test_fresh_ids_and_names_are_free(numbers: set[int]) -> None:
    graph = Graph(
        FrozenMap({f"n{n}": Node(f"n{n}", "nn.ReLU", f"relu{n}") for n in numbers})
    )
    assert graph.fresh_id() not in graph.nodes
    assert graph.fresh_name("relu") not in {node.name for node in graph.nodes.values()}


def test_a_piece_is_merged_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A graph for each of 2,000 nodes, with all names gathered anew, stopped the window for 11 seconds."""
    monkeypatch.delattr(Graph, "with_node")
    names = [f"relu{n}" for n in (1, 2, 7)] + ["8", "relu"]
    whole = Graph(
        FrozenMap(
            {f"n{n}": Node(f"n{n}", "nn.ReLU", name) for n, name in enumerate(names, 4)}
        )
    )
    graph, ids = merged(whole, whole)
    assert [*ids.values()] == ["n9", "n10", "n11", "n12", "n13"]
    assert [graph.nodes[key].name for key in ids.values()] == [
        "relu3",
        "relu4",
        "relu5",
        "81",
        "relu6",
    ]


def test_a_piece_is_merged_under_fresh_names() -> None:
    graph, ids = merged(GRAPH, GRAPH)
    assert (
        len(graph.nodes) == 10
        and len({node.name for node in graph.nodes.values()}) == 10
    )
    assert len(graph.edges) == 6 and set(ids) == set(GRAPH.nodes)
    assert graph.into(ids["fc"]) == (Edge(ids["lstm"], 0, ids["fc"], "input"),)
