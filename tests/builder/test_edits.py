"""Edits of the canvas as pure functions, and the places that nodes are given."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.builder import rules
from app.builder.arrange import DEFAULT, GAP, GRID, arrange, complete
from app.builder.catalog.catalog import catalog
from app.builder.edits import edits
from app.builder.graph import Edge, Graph
from app.builder.plan import plan
from app.project.document import Document
from app.project.project import Project

OPS = catalog()


def chain(*ops: str) -> tuple[Project, list[str]]:
    """A project of ops wired one behind the other, and the ids in that order."""
    project, ids = Project(), []
    for op in ops:
        if ids:
            project, new = edits.add_behind(
                project, OPS, op, ids[-1], (200.0 * len(ids), 0.0)
            )
        else:
            project, new = edits.add(project, OPS, op, (0.0, 0.0))
        ids.append(new)
    return project, ids


def wires(project: Project) -> set[tuple[str, str]]:
    return {(edge.source, edge.target) for edge in project.graph.edges}


def test_a_new_node_can_run_and_has_a_name_of_its_own() -> None:
    project, _ = edits.add(Project(), OPS, "nn.Conv2d", (8.0, 16.0))
    project, second = edits.add(project, OPS, "nn.Conv2d", (8.0, 16.0))
    assert [node.name for node in project.graph.nodes.values()] == ["conv1", "conv2"]
    assert project.graph.nodes[second].params["out_channels"] == 32
    assert project.positions[second] == (8.0, 16.0)


def test_behind_a_node_whose_output_is_used_nothing_is_rerouted() -> None:
    project, (first, second) = chain("input", "nn.ReLU")
    project, third = edits.add_behind(project, OPS, "nn.Tanh", first, (0.0, 0.0))
    assert wires(project) == {(first, second), (first, third)}


def test_behind_an_output_a_node_just_stands() -> None:
    project, (_, last) = chain("input", "output")
    project, new = edits.add_behind(project, OPS, "nn.ReLU", last, (0.0, 0.0))
    assert not project.graph.into(new)


def test_inserting_keeps_the_place_among_the_wires_of_a_variadic_port() -> None:
    project, (start, cat) = chain("input", "torch.cat")
    project, other = edits.add(project, OPS, "nn.ReLU", (0.0, 0.0))
    project = edits.connect(project, OPS, start, 0, other, "input")
    project = edits.connect(project, OPS, other, 0, cat, "tensors")
    first = project.graph.into(cat)[0]
    project, new = edits.insert(project, OPS, "nn.Tanh", first, (0.0, 0.0))
    assert [(edge.source, edge.index) for edge in project.graph.into(cat)] == [
        (new, 0),
        (other, 1),
    ]


def test_what_gives_nothing_cannot_be_inserted() -> None:
    project, _ = chain("input", "nn.ReLU")
    with pytest.raises(rules.ConnectError):
        edits.insert(project, OPS, "output", project.graph.edges[0], (0.0, 0.0))


def test_deleting_takes_wires_and_place_along() -> None:
    project, (first, second, third) = chain("input", "nn.ReLU", "output")
    project = edits.delete(project, [second])
    assert not project.graph.edges
    assert set(project.positions) == {first, third}


def test_delete_and_reconnect_joins_what_is_left() -> None:
    project, ids = chain("input", "nn.Conv2d", "nn.ReLU", "nn.Tanh", "output")
    project = edits.delete_and_reconnect(project, OPS, ids[1:3])
    assert wires(project) == {(ids[0], ids[3]), (ids[3], ids[4])}


def test_delete_and_reconnect_follows_the_first_input() -> None:
    project, (start, relu, add) = chain("input", "nn.ReLU", "operator.add")
    project = edits.connect(project, OPS, start, 0, add, "other")
    project, end = edits.add_behind(project, OPS, "output", add, (0.0, 0.0))
    project = edits.delete_and_reconnect(project, OPS, [add])
    assert wires(project) == {(start, relu), (relu, end)}


def test_moving_an_end_to_where_it_loops_is_refused() -> None:
    project, (_, second, third) = chain("input", "nn.ReLU", "nn.Tanh")
    wire = project.graph.into(third)[0]
    with pytest.raises(rules.CycleError):
        edits.move_end(project, OPS, wire, second, "input")


def test_pasting_copies_the_wires_inside_under_fresh_names() -> None:
    project, ids = chain("input", "nn.Conv2d", "nn.ReLU")
    project, new = edits.paste(project, edits.copy(project, ids[1:]), 32.0, 32.0)
    copies = [project.graph.nodes[node] for node in project.graph.nodes if node in new]
    assert [node.name for node in copies] == ["conv2", "relu2"]
    assert [edge for edge in project.graph.edges if edge.source in new] == [
        Edge(copies[0].id, 0, copies[1].id, "input")
    ]
    assert project.positions[copies[0].id] == (232.0, 32.0)


def test_fitting_ops_are_of_the_kind_that_the_wire_carries() -> None:
    project, (start, lstm) = chain("input", "nn.LSTM")
    assert set(edits.fitting_after(project.graph, OPS, lstm, 1)) == {
        "nn.LSTM",
        "unpack",
        "operator.getitem",
        "tuple",
    }
    sized, (_, size) = chain("input", "Tensor.size")
    fit = edits.fitting_after(sized.graph, OPS, size, 0)
    assert {"Tensor.view", "operator.mul", "torch.arange"} <= set(fit) and not {
        "nn.Linear",
        "nn.LSTM",
    } & set(fit)
    assert "output" not in edits.fitting_before(project.graph, OPS, lstm, "input")
    assert "nn.Linear" in edits.fitting_after(project.graph, OPS, start, 0)


# --- A random walk: whatever is done, undoing all of it leads back exactly ------------------------------------------

STEPS = (
    "add",
    "behind",
    "insert",
    "connect",
    "delete",
    "reconnect",
    "move",
    "paste",
    "cut",
    "move_end",
)


def walk_step(project: Project, step: str, a: int, b: int) -> Project:
    nodes, wires_ = list(project.graph.nodes), project.graph.edges
    op = list(OPS)[a % len(OPS)]
    if step == "add" or not nodes:
        return edits.add(project, OPS, op, (float(a), float(b)))[0]
    one, other = nodes[a % len(nodes)], nodes[b % len(nodes)]
    if step == "behind":
        return edits.add_behind(project, OPS, op, other, (float(a), 0.0))[0]
    if step == "delete":
        return edits.delete(project, [one], wires_[: b % 2])
    if step == "reconnect":
        return edits.delete_and_reconnect(project, OPS, {one, other})
    if step == "move":
        return edits.move(project, [one, other], 8.0, -8.0)
    if step == "paste":
        return edits.paste(project, edits.copy(project, {one, other}), 32.0, 32.0)[0]
    if step == "connect":
        ports = OPS[project.graph.nodes[other].op].inputs
        return (
            edits.connect(project, OPS, one, 0, other, ports[a % len(ports)].name)
            if ports
            else project
        )
    if not wires_:
        return project
    wire = wires_[a % len(wires_)]
    if step == "cut":
        return edits.cut(project, [wire])
    if step == "insert":
        return edits.insert(project, OPS, op, wire, (0.0, 0.0))[0]
    ports = OPS[project.graph.nodes[other].op].inputs
    return (
        edits.move_end(project, OPS, wire, other, ports[0].name) if ports else project
    )


@given(
    st.lists(
        st.tuples(st.sampled_from(STEPS), st.integers(0, 99), st.integers(0, 99)),
        max_size=24,
    )
)
def test_whatever_is_done_can_be_undone_and_leaves_a_sound_graph(
    qapp, steps: list[tuple[str, int, int]]
) -> None:
    first, _ = chain("input", "nn.Conv2d", "nn.ReLU", "output")
    document = Document(first)
    for step, a, b in steps:
        try:
            document.apply(step, walk_step(document.project, step, a, b))
        except rules.ConnectError as refusal:
            assert str(refusal)
        check_sound(document.project)
    last = document.project
    while document.undo_stack.canUndo():
        document.undo_stack.undo()
    assert document.project == first
    while document.undo_stack.canRedo():
        document.undo_stack.redo()
    assert document.project == last


def check_sound(project: Project) -> None:
    graph = project.graph
    assert set(project.positions) == set(graph.nodes)
    assert not plan(graph, OPS).loops
    names = [node.name for node in graph.nodes.values()]
    assert len(set(names)) == len(names)
    for edge in graph.edges:
        target = graph.nodes[edge.target]
        port = rules.port_of(
            OPS[target.op], target, edge.port
        )  # an input, or a parameter that takes a wire
        assert port is not None
        assert OPS[graph.nodes[edge.source].op].outputs[edge.output].kind == port.kind
    places = [(edge.target, edge.port, edge.index) for edge in graph.edges]
    assert len(set(places)) == len(places)


# --- Places ---------------------------------------------------------------------------------------------------------


def rects(graph: Graph, places) -> list[tuple[float, float, float, float]]:
    return [
        (x, y, x + DEFAULT.width, y + DEFAULT.height)
        for x, y in (places[node] for node in graph.nodes)
    ]


def overlaps(boxes: list[tuple[float, float, float, float]]) -> bool:
    pairs = [(a, b) for i, a in enumerate(boxes) for b in boxes[:i]]
    return any(
        a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3] for a, b in pairs
    )


def test_a_chain_is_laid_out_straight_and_broken_into_rows() -> None:
    project, ids = chain("input", *["nn.ReLU"] * 12)
    places = arrange(project.graph, {})
    lines = {places[node][1] for node in ids}
    assert 2 <= len(lines) <= 4
    assert max(x for x, _ in places.values()) + DEFAULT.width <= 1080 + 1
    for before, after in zip(ids, ids[1:], strict=False):
        assert (
            places[after][0] - places[before][0] >= DEFAULT.width + GAP
            or places[after][1] > places[before][1]
        )
    assert all((y + DEFAULT.anchor) % GRID == 0 for _, y in places.values())


@given(st.lists(st.tuples(st.integers(0, 11), st.integers(0, 11)), max_size=30))
def test_a_layout_has_no_overlaps(pairs: list[tuple[int, int]]) -> None:
    project = Project()
    for _ in range(12):
        project, _ = edits.add(project, OPS, "torch.cat", (0.0, 0.0))
    graph, ids = project.graph, list(project.graph.nodes)
    for a, b in pairs:
        if a != b:  # loops too: a file may have them
            graph = graph.with_edge(
                Edge(ids[a], 0, ids[b], "tensors", len(graph.edges))
            )
    places = arrange(graph, {})
    assert set(places) == set(graph.nodes)
    assert not overlaps(rects(graph, places))


def test_a_node_without_a_place_goes_on_its_wire_and_the_row_makes_way() -> None:
    project, ids = chain("input", "nn.ReLU", "nn.Tanh", "output")
    kept = {ids[0]: (0.0, 4.0), ids[2]: (240.0, 4.0), ids[3]: (480.0, 4.0)}
    places = complete(project.graph, kept, {})
    assert [places[node][0] for node in ids] == sorted(places[node][0] for node in ids)
    assert {y for _, y in places.values()} == {4.0}
    assert places[ids[0]] == kept[ids[0]]
    for before, after in zip(ids, ids[1:], strict=False):
        assert places[after][0] - places[before][0] - DEFAULT.width >= GAP


def test_a_node_on_a_wire_into_another_row_leads_that_row() -> None:
    project, ids = chain("input", "nn.ReLU", "output")
    places = complete(project.graph, {ids[0]: (600.0, 4.0), ids[2]: (0.0, 204.0)}, {})
    assert places[ids[1]] == (0.0, 204.0)
    assert places[ids[2]][0] >= DEFAULT.width + GAP


def test_nodes_that_have_their_places_keep_them() -> None:
    project, _ = chain("input", "nn.ReLU", "output")
    assert complete(project.graph, project.positions, {}) is project.positions


def test_a_replaced_node_shares_with_nobody() -> None:
    """Nor do others share with it: they keep the module that they called, the first of them has it."""
    project, (_, first, second, third) = chain(
        "input", "nn.Conv2d", "nn.Conv2d", "nn.Conv2d"
    )
    for other in (second, third):
        project = edits.changed(project, project.graph.with_shared(other, first))
    owner = edits.replace_op(project, OPS, first, "nn.ReLU").graph
    assert not owner.nodes[second].shares and owner.nodes[third].shares == second
    assert owner.nodes[second].params == project.graph.nodes[first].params
    caller = edits.replace_op(project, OPS, third, "nn.ReLU").graph
    assert not caller.nodes[third].shares and caller.nodes[second].shares == first
