"""Aligning, distributing, and making a node another op in its place."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from app.builder import rules
from app.builder.arrange import Size
from app.builder.catalog.catalog import catalog
from app.builder.edits import edits
from app.builder.edits.alignment import AXES, EDGES, align, distribute
from app.project.project import Project
from tests.support.every import every

OPS = catalog()
sizes = st.builds(
    lambda w, h: Size(w, h, h / 2), st.integers(40, 200), st.integers(40, 100)
)
points = st.tuples(st.integers(-900, 900), st.integers(-900, 900))


def placed(places: list[tuple[int, int]]) -> Project:
    project = Project()
    for x, y in places:
        project, _ = edits.add(project, OPS, "nn.ReLU", (float(x), float(y)))
    return project


def line(point: tuple[float, float], size: Size, edge: str) -> float:
    return {
        "left": point[0],
        "right": point[0] + size.width,
        "centre": point[0] + size.width / 2,
        "top": point[1],
        "bottom": point[1] + size.height,
        "middle": point[1] + size.anchor,
    }[edge]


@given(
    st.lists(st.tuples(points, sizes), min_size=2, max_size=8), st.sampled_from(EDGES)
)
def test_aligned_nodes_share_a_line_and_keep_the_other_coordinate(
    nodes: list[tuple[tuple[int, int], Size]], edge: str
) -> None:
    project = placed([point for point, _ in nodes])
    given_sizes = dict(
        zip(project.graph.nodes, (size for _, size in nodes), strict=True)
    )
    after = align(project, project.graph.nodes, given_sizes, edge)
    lines = {
        line(after.positions[node], given_sizes[node], edge)
        for node in project.graph.nodes
    }
    assert max(lines) - min(lines) < 1e-6
    other = 1 if edge in ("left", "centre", "right") else 0
    assert all(
        after.positions[node][other] == project.positions[node][other]
        for node in project.graph.nodes
    )
    assert after.graph is project.graph


@given(
    st.lists(st.tuples(points, sizes), min_size=3, max_size=8), st.sampled_from(AXES)
)
def test_distributed_nodes_have_equal_gaps_and_the_ends_stay(
    nodes: list[tuple[tuple[int, int], Size]], axis: str
) -> None:
    project = placed([point for point, _ in nodes])
    given_sizes = dict(
        zip(project.graph.nodes, (size for _, size in nodes), strict=True)
    )
    after = distribute(project, project.graph.nodes, given_sizes, axis)
    along = AXES.index(axis)
    order = sorted(project.graph.nodes, key=lambda node: project.positions[node][along])
    ends = [after.positions[node][along] for node in (order[0], order[-1])]
    assert ends == [project.positions[node][along] for node in (order[0], order[-1])]
    extent = [
        given_sizes[node].height if along else given_sizes[node].width for node in order
    ]
    starts = [after.positions[node][along] for node in order]
    gaps = [
        b - a - size for a, b, size in zip(starts, starts[1:], extent, strict=False)
    ]
    assert max(gaps) - min(gaps) < 1e-6


def test_too_few_nodes_stay_where_they_are() -> None:
    project = placed([(0, 0), (50, 90)])
    one = [next(iter(project.graph.nodes))]
    assert align(project, one, dict.fromkeys(one, Size(10, 10, 5)), "left") is project
    both = dict.fromkeys(project.graph.nodes, Size(10, 10, 5))
    assert distribute(project, both, both, "horizontal") is project


def chain(*ops: str) -> Project:
    project, last = edits.add(Project(), OPS, ops[0], (0.0, 0.0))
    for op in ops[1:]:
        project, last = edits.add_behind(project, OPS, op, last, (0.0, 0.0))
    return project


def named(project: Project, name: str) -> str:
    return next(node.id for node in project.graph.nodes.values() if node.name == name)


def wires(project: Project) -> set[tuple[str, str, str]]:
    nodes = project.graph.nodes
    return {
        (nodes[e.source].name, nodes[e.target].name, e.port)
        for e in project.graph.edges
    }


def test_a_layer_keeps_its_wires_and_what_both_ops_know() -> None:
    project = chain("input", "nn.Conv2d", "nn.ReLU", "output")
    conv = named(project, "conv1")
    graph = project.graph.with_param(conv, "out_channels", 7).with_param(
        conv, "bias", False
    )
    project = edits.changed(project, graph)
    after = edits.replace_op(project, OPS, conv, "nn.ConvTranspose2d")
    node = after.graph.nodes[conv]
    assert node.op == "nn.ConvTranspose2d" and node.name == "deconv1"
    assert node.params["out_channels"] == 7 and node.params["bias"] is False
    assert wires(after) == {
        ("input", "deconv1", "input"),
        ("deconv1", "relu1", "input"),
        ("relu1", "output", "input"),
    }
    assert after.positions == project.positions and list(after.graph.nodes) == list(
        project.graph.nodes
    )


def test_a_name_that_a_person_gave_is_kept() -> None:
    project = chain("input", "nn.ReLU", "output")
    relu = named(project, "relu1")
    project = edits.changed(project, project.graph.with_name(relu, "squash"))
    assert (
        edits.replace_op(project, OPS, relu, "nn.GELU").graph.nodes[relu].name
        == "squash"
    )


def test_wires_go_to_the_first_port_that_takes_them() -> None:
    project = chain("input", "nn.ReLU", "operator.add")
    project = edits.connect(
        project, OPS, named(project, "input"), 0, named(project, "add1"), "other"
    )
    after = edits.replace_op(project, OPS, named(project, "add1"), "torch.cat")
    assert [(e.port, e.index) for e in after.graph.into(named(project, "add1"))] == [
        ("tensors", 0),
        ("tensors", 1),
    ]
    single = edits.replace_op(project, OPS, named(project, "add1"), "nn.ReLU")
    assert len(single.graph.into(named(project, "add1"))) == 1


@every({op: op for op in OPS})
def test_any_op_can_take_the_place_of_any_and_the_rules_hold(op: str) -> None:
    project = chain("input", "nn.Conv2d", "nn.LSTM", "nn.ReLU", "output")
    for node in project.graph.nodes:
        after = edits.replace_op(project, OPS, node, op)
        assert set(after.graph.nodes) == set(project.graph.nodes)
        for edge in after.graph.edges:
            bare = after.graph.without_edge(edge)
            assert rules.can_connect(
                bare, OPS, edge.source, edge.output, edge.target, edge.port
            )
