"""Lay out: what belongs together stands in one row."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from app.builder import layout
from app.builder.arrange import Arrangement, Size, arrange, complete
from app.builder.edits import comments, edits
from app.builder.graph import Edge, Graph, Node
from app.project.project import Project
from app.util.frozen import FrozenMap
from tests.support.builder_nets import net


def test_a_row_ends_between_residual_blocks_and_not_within_them() -> None:
    rows: list[Any] = [("input", "x", {"shape": (8,)})]
    wires: list[tuple[Any, ...]] = []
    last = "x"
    for i in range(4):
        names = [f"start{i}", f"fc{i}", f"relu{i}"]
        rows += zip(
            ("nn.LayerNorm", "nn.Linear", "nn.ReLU"),
            names,
            ({}, {"out_features": 8}, {}),
            strict=True,
        )
        rows.append(("operator.add", f"add{i}", {}))
        wires += zip([last, *names], [*names, f"add{i}"], strict=True)
        wires.append((names[0], f"add{i}", "other"))
        last = f"add{i}"
    graph = net([*rows, ("output", "y", {})], [*wires, (last, "y")])
    places = arrange(graph, {})
    assert len({y for _, y in places.values()}) > 1
    for i in range(4):
        assert (
            len({places[f"{name}{i}"][1] for name in ("start", "fc", "relu", "add")})
            == 1
        )


def test_the_skips_of_a_unet_run_straight_across() -> None:
    rows: list[Any] = [("input", "x", {"shape": (4, 32, 32)})]
    wires: list[tuple[Any, ...]] = []
    last = "x"
    for i in range(3):
        rows += [
            ("nn.Conv2d", f"down{i}", {}),
            ("nn.ReLU", f"skip{i}", {}),
            ("nn.MaxPool2d", f"pool{i}", {}),
        ]
        wires += zip(
            (last, f"down{i}", f"skip{i}"),
            (f"down{i}", f"skip{i}", f"pool{i}"),
            strict=True,
        )
        last = f"pool{i}"
    rows.append(("nn.Conv2d", "turn", {}))
    wires.append((last, "turn"))
    last = "turn"
    for i in (2, 1, 0):
        rows += [
            ("nn.Upsample", f"up{i}", {}),
            ("torch.cat", f"cat{i}", {}),
            ("nn.Conv2d", f"conv{i}", {}),
        ]
        wires += [
            (last, f"up{i}"),
            (f"skip{i}", f"cat{i}", "tensors"),
            (f"up{i}", f"cat{i}", "tensors"),
            (f"cat{i}", f"conv{i}"),
        ]
        last = f"conv{i}"
    graph = net([*rows, ("output", "y", {})], [*wires, (last, "y")])
    places = arrange(graph, {})
    for i in range(3):
        assert places[f"skip{i}"][1] == places[f"cat{i}"][1]
        assert places[f"skip{i}"][0] < places[f"cat{i}"][0]
    assert len({places[f"cat{i}"][0] for i in range(3)}) == 1
    assert (
        places["skip0"][1] < places["skip1"][1] < places["skip2"][1] < places["turn"][1]
    )


def test_a_row_ends_between_modules_of_branches_rather_than_within_one() -> None:
    rows: list[Any] = [("input", "x", {"shape": (16, 8, 8)})]
    wires: list[tuple[Any, ...]] = []
    last = "x"
    for i in range(3):
        rows.append(("torch.cat", f"cat{i}", {}))
        for branch in "abc":
            rows += [
                ("nn.Conv2d", f"{branch}{i}", {}),
                ("nn.Conv2d", f"{branch}{branch}{i}", {}),
            ]
            wires += [
                (last, f"{branch}{i}"),
                (f"{branch}{i}", f"{branch}{branch}{i}"),
                (f"{branch}{branch}{i}", f"cat{i}", "tensors"),
            ]
        last = f"cat{i}"
    places = arrange(net([*rows, ("output", "y", {})], [*wires, (last, "y")]), {}, 800)
    for i in range(3):
        assert places[f"a{i}"][0] < places[f"aa{i}"][0] < places[f"cat{i}"][0]


def test_what_stands_in_a_frame_stays_in_its_row_and_frames_keep_apart() -> None:
    names = [f"fc{i}" for i in range(6)]
    rows: list[Any] = [
        ("input", "x", {"shape": (8,)}),
        *(("nn.Linear", name, {}) for name in names),
    ]
    project = Project(graph=net(rows, [*zip(["x", *names], names, strict=False)]))
    project = layout.laid_out(project, project.graph.nodes, {})
    spread = edits.move_nodes(
        project,
        {name: (200.0 * i, 400.0 if i < 3 else 900.0) for i, name in enumerate(names)},
    )
    for part in (names[:3], names[3:]):
        spread, _ = comments.frame(spread, part, {}, part[0])
    for width in (4000, 900, 300):
        after = layout.laid_out(spread, spread.graph.nodes, {}, width)
        first, second = after.comments.values()
        assert first.y + first.height < second.y or first.x + first.width < second.x
        held = comments.framed(after.comments, after.positions, {})
        assert list(held.values()) == [tuple(names[:3]), tuple(names[3:])]
        assert (len({after.positions[name][1] for name in names[:3]}) == 1) == (
            width > 300
        )


PAIRS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=24)


def sums(names: list[str], pairs: list[tuple[int, int]]) -> Graph:
    """Nodes of these ids that add up what leads to them, circles included."""
    nodes = {name: Node(name, "torch.cat", name) for name in names}
    edges = [
        Edge(names[a], 0, names[b], "tensors", n)
        for n, (a, b) in enumerate(pairs)
        if a != b
    ]
    return Graph(FrozenMap(nodes), tuple(edges))


@given(PAIRS)
def test_where_nodes_stand_does_not_depend_on_their_ids(
    pairs: list[tuple[int, int]],
) -> None:
    plain, other = [f"n{i}" for i in range(10)], [f"x{(i * 7) % 10}" for i in range(10)]
    places, again = arrange(sums(plain, pairs), {}), arrange(sums(other, pairs), {})
    assert [places[name] for name in plain] == [again[name] for name in other]


@given(
    PAIRS,
    st.lists(
        st.tuples(st.integers(0, 9), st.integers(0, 9)),
        min_size=10,
        max_size=10,
        unique=True,
    ),
    st.sets(st.integers(0, 9), min_size=1, max_size=9),
)
def test_what_has_a_place_keeps_it_but_for_a_row_that_makes_way(
    pairs: list[tuple[int, int]], spots: list[tuple[int, int]], known: set[int]
) -> None:
    names = [f"n{i}" for i in range(10)]
    stands = {names[i]: (240.0 * spots[i][0], 4.0 + 200.0 * spots[i][1]) for i in known}
    graph = sums(names, pairs)
    places = complete(graph, stands, {})
    assert places.keys() == graph.nodes.keys()
    fed = any(
        graph.into(node) and graph.out_of(node) for node in names if node not in stands
    )
    for node, (x, y) in stands.items():
        assert places[node][1] == y and places[node][0] >= x
        assert fed or places[node] == (x, y)


def test_branches_stand_about_what_they_come_from_and_lead_to() -> None:
    branches = ["a", "b", "c"]
    rows = [
        ("input", "x", {"shape": (8,)}),
        *(("nn.ReLU", name, {}) for name in branches),
        ("torch.cat", "cat", {}),
        ("output", "y", {}),
    ]
    wires = [
        *(("x", name) for name in branches),
        *((name, "cat", "tensors") for name in branches),
        ("cat", "y"),
    ]
    places = arrange(net(rows, wires), {})
    assert places["x"][1] == places["b"][1] == places["cat"][1] == places["y"][1]
    assert places["a"][1] < places["b"][1] < places["c"][1]


def test_the_widest_rows_are_taken_only_where_more_is_seen_so() -> None:
    names = [f"n{i}" for i in range(10)]
    chain = sums(names, [(i, i + 1) for i in range(9)])
    for room in (Size(1200, 600, 0), Size(640, 320, 0), Size(3000, 300, 0)):
        made = Arrangement(chain, {})

        def zoom(width: float, made: Arrangement = made, room: Size = room) -> float:
            places = made.places(width).values()
            across, down = (
                max(x for x, _ in places) + 136,
                max(y for _, y in places) - min(y for _, y in places) + 72,
            )
            return min(room.width / across, room.height / down, 1.0)

        best = made.best_width(room)
        assert zoom(best) == max(
            zoom(room.width * times) for times in (1.0, 1.4, 2.0, 2.8, 4.0, 5.6)
        )
        assert all(
            zoom(room.width * t) < zoom(best)
            for t in (1.0, 1.4, 2.0, 2.8, 4.0)
            if room.width * t < best
        )


def test_a_skip_has_room_on_the_side_on_which_the_canvas_leads_it() -> None:
    names = [
        ("input", "x", {"shape": (8,)}),
        ("nn.ReLU", "relu", {}),
        ("operator.add", "sum", {}),
    ]
    below = arrange(
        net(names, [("x", "relu"), ("relu", "sum"), ("x", "sum", "other")]), {}
    )
    above = arrange(
        net(names, [("x", "relu"), ("x", "sum"), ("relu", "sum", "other")]), {}
    )
    assert {y for _, y in below.values()} == {4.0}
    assert {y for _, y in above.values()} == {52.0}
