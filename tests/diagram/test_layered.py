"""The engine below every layout: boxes apart and in order, the same for the same graph, on the grid, within rows."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.diagram.layered import Layered
from app.diagram.layout_model import Link, Rows, Spacing, Vertex
from app.diagram.rows import break_costs, break_into_rows

GRID = Spacing(
    column=104, box=40, bend=24, band=72, frame=104, fold=64, edge=24, track=36, grid=8
)


@st.composite
def nets(draw: st.DrawFn) -> tuple[list[Vertex], list[Link]]:
    """Boxes of all sizes with links forward, as nets have them."""
    count = draw(st.integers(1, 20))
    sides = st.integers(10, 260)
    boxes = [Vertex(float(draw(sides)), float(draw(sides))) for _ in range(count)]
    boxes = [box._replace(line=box.height / 2) for box in boxes]
    numbers = st.integers(0, count - 1)
    pairs = dict.fromkeys(draw(st.lists(st.tuples(numbers, numbers), max_size=40)))
    links = [
        Link(a, b, boxes[a].line, boxes[b].line, below=draw(st.booleans()))
        for a, b in sorted(pairs)
        if a < b
    ]
    return boxes, links


def placed(
    boxes: list[Vertex], links: list[Link], limit: float
) -> list[tuple[float, float]]:
    return (
        Layered(boxes, links, GRID, routed=False)
        .arrange(Rows(limit, 1.4, folds=True))
        .corners
    )


@given(nets(), st.sampled_from([300.0, 1080.0, 9000.0]))
def test_boxes_on_a_grid_keep_apart_and_their_lines_stand_on_it(
    case: tuple[list[Vertex], list[Link]], limit: float
) -> None:
    boxes, links = case
    corners = placed(boxes, links, limit)
    for (a, (ax, ay)), (b, (bx, by)) in itertools.combinations(
        zip(boxes, corners, strict=True), 2
    ):
        assert (
            ax + a.width <= bx
            or bx + b.width <= ax
            or ay + a.height <= by
            or by + b.height <= ay
        )
    assert all(
        x % 8 == 0 and (y + box.line) % 8 == 0
        for box, (x, y) in zip(boxes, corners, strict=True)
    )


@given(nets(), st.sampled_from([300.0, 1e6]))
def test_links_lead_to_the_right_in_a_row_and_downwards_to_the_next(
    case: tuple[list[Vertex], list[Link]], limit: float
) -> None:
    boxes, links = case
    corners = Layered(boxes, links, GRID, routed=False).arrange(Rows(limit)).corners
    for link in links:
        (x, y), (to_x, to_y) = corners[link.tail], corners[link.head]
        assert x + boxes[link.tail].width < to_x or (limit < 1e6 and y < to_y)


@given(nets(), st.sampled_from([300.0, 1080.0]))
def test_one_engine_used_for_several_widths_tells_the_same_as_one_for_each(
    case: tuple[list[Vertex], list[Link]], limit: float
) -> None:
    boxes, links = case
    engine = Layered(boxes, links, GRID, routed=False)
    tries = [Rows(limit * times, 1.4, folds=True) for times in (1.0, 2.0, 4.0)]
    promised = engine.by_scale_bound(tries, (1200.0, 700.0))
    for most, rows in promised:
        got = engine.arrange(rows)
        assert (
            got.corners
            == Layered(boxes, links, GRID, routed=False).arrange(rows).corners
        )
        right = max(
            x + box.width for box, (x, _) in zip(boxes, got.corners, strict=True)
        )
        low = max(
            y + box.height for box, (_, y) in zip(boxes, got.corners, strict=True)
        )
        assert (
            min(1200.0 / right, 700.0 / (low + 1)) <= most
        )  # a line may go back to the grid by half a pixel
    assert [most for most, _ in promised] == sorted(
        (most for most, _ in promised), reverse=True
    )


def cost(
    rows: list[tuple[int, int]],
    widths: list[float],
    gap: float,
    crossing: list[float],
    limit: float,
) -> float:
    """What a way to break a paragraph costs."""
    total = 0.0
    for a, b in rows:
        width = sum(widths[a:b]) + gap * (b - a - 1)
        over = max(0.0, width / limit - 1)
        slack = (
            1 + 2 * over
            if over
            else (1 - width / limit) ** 2 * (0.3 if b == len(widths) else 1)
        )
        total += (
            slack + 0.2 + (2 * max(0.0, crossing[b] - 1) if b < len(widths) else 0.0)
        )
    return total


@given(
    st.lists(
        st.tuples(st.integers(20, 300), st.sampled_from([1.0, 1.25, 2.0, 4.0])),
        min_size=1,
        max_size=9,
    ),
    st.sampled_from([1.0, 1.4]),
)
def test_no_other_way_to_break_the_rows_costs_less(
    layers: list[tuple[int, float]], widest: float
) -> None:
    widths, crossing = (
        [float(width) for width, _ in layers],
        [*(values for _, values in layers), 1.0],
    )
    gap, limit, count = 50.0, 600.0, len(layers)
    found = break_into_rows(widths, [gap] * count, crossing, Rows(limit, widest))
    assert [n for a, b in found for n in range(a, b)] == list(range(count))
    ways = []
    for cuts in itertools.chain.from_iterable(
        itertools.combinations(range(1, count), n) for n in range(count)
    ):
        rows = list(itertools.pairwise([0, *cuts, count]))
        if all(
            b - a == 1 or sum(widths[a:b]) + gap * (b - a - 1) <= widest * limit
            for a, b in rows
        ):
            ways.append(cost(rows, widths, gap, crossing, limit))
    assert cost(found, widths, gap, crossing, limit) == pytest.approx(min(ways))


def test_a_value_that_goes_on_counts_once_and_its_further_ends_a_little() -> None:
    links = [Link(0, 1, 0, 0), Link(0, 2, 0, 0), Link(1, 2, 0, 0), Link(2, 3, 0, 0)]
    assert break_costs([0, 1, 2, 3], links) == [0.0, 1.25, 2.0, 1.0, 0.0]


def test_a_parameter_stands_beside_what_takes_it_with_all_that_is_made_of_it() -> None:
    # 0 -> 1 -> 2 -> 3, and a parameter 4 -> 5 -> 3
    links = [Link(a, b, 10, 10) for a, b in ((0, 1), (1, 2), (2, 3), (4, 5), (5, 3))]
    corners = placed([Vertex(100, 20, line=10)] * 6, links, 1e6)
    assert corners[4][0] == corners[1][0] and corners[5][0] == corners[2][0]
    # A branch of the main way stays where it begins.
    links = [Link(a, b, 10, 10) for a, b in ((0, 1), (1, 2), (2, 3), (0, 4), (4, 3))]
    corners = placed([Vertex(100, 20, line=10)] * 5, links, 1e6)
    assert corners[4][0] == corners[1][0]


def test_a_gutter_has_room_for_all_wires_that_run_back_in_it() -> None:
    """Four branches that all begin a row: each wire has a track of its own above them."""
    boxes = (
        [Vertex(500, 40, line=20)] * 2
        + [Vertex(300, 40, line=20)] * 4
        + [Vertex(300, 40, line=20)]
    )
    ends = [
        (0, 1),
        *((1, branch) for branch in range(2, 6)),
        *((branch, 6) for branch in range(2, 6)),
    ]
    corners = placed(boxes, [Link(a, b, 20, 20) for a, b in ends], 500.0)
    assert min(y for _, y in corners[2:6]) - (corners[1][1] + 40) >= 4 * 36
