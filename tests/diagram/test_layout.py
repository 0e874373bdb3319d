"""Nothing overlaps, groups stay together, arrows touch what they join, and size is no obstacle."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.diagram import layered
from app.diagram.diagram import Arrow, Box, Drawing, Group
from app.diagram.layout import KnownPlaces, Layout, Rect, Sizes, arrange
from app.diagram.layout_model import Placed, Rows


@st.composite
def drawings(draw: st.DrawFn, groups: bool = False) -> tuple[Drawing, Sizes, float]:
    """Random graphs, circles and self-arrows included, with boxes of all sizes and some hanging under others."""
    count = draw(st.integers(1, 24))
    numbers = st.integers(0, count - 1)
    pairs = draw(st.lists(st.tuples(numbers, numbers), max_size=50))
    names = [f"g{n}" for n in range(draw(st.integers(1, 5)))] if groups else []
    boxes = []
    for number in range(count):
        group = draw(st.sampled_from([None, *names])) if names else None
        under = (
            draw(st.one_of(st.none(), st.integers(0, number - 1))) if number else None
        )
        hang = str(under) if under is not None and draw(st.booleans()) else None
        boxes.append(Box(str(number), f"Box{number}", group=group, under=hang))
    parents = [draw(st.sampled_from([None, *names[:n]])) for n in range(len(names))]
    frames = tuple(
        Group(name, name, parent=parent)
        for name, parent in zip(names, parents, strict=True)
    )
    arrows = tuple(
        Arrow(str(a), str(b), draw(st.sampled_from(["", "8×8"]))) for a, b in pairs
    )
    side = st.floats(6, 200)
    sizes = Sizes(
        {box.id: (draw(side), draw(side)) for box in boxes},
        {name: draw(side) for name in names},
        {"8×8": 40.0},
    )
    direction = draw(st.sampled_from(["LR", "RL"]))
    return (
        Drawing(tuple(boxes), arrows, frames, direction),
        sizes,
        draw(st.sampled_from([150.0, 600.0, 5000.0])),
    )


def overlap(a: Rect, b: Rect) -> bool:
    slack = 0.01
    return (
        a.x + slack < b.right
        and b.x + slack < a.right
        and a.y + slack < b.bottom
        and b.y + slack < a.bottom
    )


def inside(inner: Rect, outer: Rect) -> bool:
    slack = 0.01
    return (
        inner.x >= outer.x - slack
        and inner.y >= outer.y - slack
        and inner.right <= outer.right + slack
        and inner.bottom <= outer.bottom + slack
    )


def touches(point: tuple[float, float], box: Rect) -> bool:
    x, y = point
    return (
        box.x - 0.02 <= x <= box.right + 0.02 and box.y - 0.02 <= y <= box.bottom + 0.02
    )


def check(drawing: Drawing, sizes: Sizes, layout: Layout) -> None:
    for a, b in itertools.combinations(layout.boxes, 2):
        assert not overlap(layout.boxes[a], layout.boxes[b]), (a, b)
    for key, rect in layout.boxes.items():
        assert (rect.width, rect.height) == sizes.boxes[key]
        assert inside(rect, Rect(0, 0, layout.width, layout.height))
    for arrow, route in zip(drawing.arrows, layout.routes, strict=True):
        assert touches(route[0], layout.boxes[arrow.source]) and touches(
            route[-1], layout.boxes[arrow.target]
        )


@given(drawings())
def test_boxes_never_overlap(case: tuple[Drawing, Sizes, float]) -> None:
    drawing, sizes, width = case
    check(drawing, sizes, arrange(drawing, sizes, width))


@given(drawings(groups=True))
def test_groups_are_rectangles_with_nothing_foreign_in_them(
    case: tuple[Drawing, Sizes, float],
) -> None:
    drawing, sizes, width = case
    layout = arrange(drawing, sizes, width)
    check(drawing, sizes, layout)
    parents = {group.id: group.parent for group in drawing.groups}

    def around(group: str | None) -> list[str]:
        chain = []
        while group is not None:
            chain.append(group)
            group = parents[group]
        return chain

    for box in drawing.boxes:
        homes = around(box.group)
        for name, rect in layout.groups.items():
            assert (
                inside(layout.boxes[box.id], rect)
                if name in homes
                else not overlap(layout.boxes[box.id], rect)
            )
    for a, b in itertools.combinations(layout.groups, 2):
        related = a in around(b) or b in around(a)
        assert related or not overlap(layout.groups[a], layout.groups[b])


def chain(count: int, direction: str = "LR") -> Drawing:
    return Drawing(
        tuple(Box(str(n), "Backward") for n in range(count)),
        tuple(Arrow(str(n), str(n + 1)) for n in range(count - 1)),
        (),
        direction,  # type: ignore[arg-type]
    )


def test_a_chain_reads_like_lines_of_text() -> None:
    layout = arrange(
        chain(12), Sizes({str(n): (100.0, 40.0) for n in range(12)}), width=600
    )
    rows: dict[float, list[int]] = {}
    for key, rect in layout.boxes.items():
        rows.setdefault(rect.y, []).append(int(key))
    assert len(rows) > 2
    assert [number for _, row in sorted(rows.items()) for number in row] == list(
        range(12)
    )
    left = {int(key): rect.x for key, rect in layout.boxes.items()}
    assert all(
        left[a] < left[b] for row in rows.values() for a, b in itertools.pairwise(row)
    )


def test_gradients_run_from_right_to_left() -> None:
    drawing = Drawing(
        (Box("layer", "Layer"), Box("loss", "Loss")),
        (Arrow("loss", "layer"),),
        (),
        "RL",
    )
    layout = arrange(drawing)
    assert layout.boxes["layer"].right < layout.boxes["loss"].x
    ((start, *_, end),) = layout.routes
    assert start[0] == layout.boxes["loss"].x and end[0] == layout.boxes["layer"].right
    assert start[1] == end[1]


def test_a_skip_goes_round_and_the_main_way_stays_straight() -> None:
    boxes = tuple(Box(n, n) for n in ("a", "b", "c", "d"))
    arrows = (Arrow("a", "b"), Arrow("b", "c"), Arrow("c", "d"), Arrow("a", "d"))
    layout = arrange(Drawing(boxes, arrows))
    assert len({round(rect.center[1], 3) for rect in layout.boxes.values()}) == 1
    skip = layout.routes[3]
    for name in ("b", "c"):
        rect = layout.boxes[name]
        level = [y for x, y in skip if rect.x - 1 <= x <= rect.right + 1]
        assert level and all(y <= rect.y or y >= rect.bottom for y in level)


def test_parameters_hang_under_their_operation() -> None:
    drawing = Drawing(
        (
            Box("op", "Addmm"),
            Box("t", "T", under="op"),
            Box("w", "w", shape="leaf", under="t"),
            Box("b", "b", shape="leaf", under="op"),
        ),
        (Arrow("op", "t"), Arrow("t", "w"), Arrow("op", "b")),
        (),
        "RL",
    )
    layout = arrange(drawing)
    op, t, w, b = (layout.boxes[key] for key in ("op", "t", "w", "b"))
    assert op.bottom < t.y and t.bottom < w.y and w.y == b.y


def test_an_empty_drawing_is_no_error() -> None:
    layout = arrange(Drawing(()))
    assert (layout.boxes, layout.width) == ({}, 0.0)


def test_twenty_thousand_in_a_row_need_no_deep_stack() -> None:
    layout = arrange(chain(20_000, "RL"))
    assert len(layout.boxes) == 20_000
    assert layout.width > layout.height / 3


def test_a_wide_fan_and_long_links_stay_small() -> None:
    count = 400
    boxes = tuple(Box(str(n), "x") for n in range(count))
    arrows = tuple(
        Arrow(str(a), str(b))
        for a in range(0, count, 4)
        for b in range(a + 1, count, 7)
    )
    layout = arrange(Drawing(boxes, arrows))
    assert len(layout.routes) == len(arrows)


def test_a_drawing_takes_the_rows_with_which_it_fills_a_page_better() -> None:
    """Eight blocks with a skip each: rows of whole blocks, and no wider than a page is for its height."""
    boxes, arrows = [], []
    for block in range(8):
        first, *_, last = names = [f"{block}.{n}" for n in range(5)]
        boxes += [Box(name, "Backward", lines=("128 KiB held",)) for name in names]
        arrows += [Arrow(a, b) for a, b in itertools.pairwise(names)] + [
            Arrow(first, last)
        ]
        arrows += [Arrow(f"{block - 1}.4", first)] if block else []
    layout = arrange(Drawing(tuple(boxes), tuple(arrows)), page=(1000.0, 600.0))
    rows = [
        {layout.boxes[f"{block}.{n}"].center[1] for n in range(5)} for block in range(8)
    ]
    assert all(max(row) - min(row) < 1 for row in rows)
    assert 1.0 < layout.width / layout.height < 3.0


def test_equal_groups_are_placed_alike_and_known_places_change_nothing() -> None:
    boxes = [
        Box(f"{group}{box}", f"{group}{box}", group=group)
        for group in "abc"
        for box in range(5)
    ]
    arrows = [
        Arrow(one.id, other.id, "8x8") for one, other in itertools.pairwise(boxes)
    ]
    arrows += [Arrow(f"{group}0", f"{group}4") for group in "abc"]
    drawing = Drawing(
        tuple(boxes), tuple(arrows), tuple(Group(group, group) for group in "abc")
    )
    known: KnownPlaces = {}
    heard: list[float] = []
    made = arrange(drawing, known=known, progress=heard.append)
    assert arrange(drawing, known=known) == arrange(drawing) == made
    spots = [
        [
            (
                round(made.boxes[f"{group}{box}"].x - made.groups[group].x, 3),
                round(made.boxes[f"{group}{box}"].y - made.groups[group].y, 3),
            )
            for box in range(5)
        ]
        for group in "bc"
    ]
    assert spots[0] == spots[1]
    assert heard == sorted(heard) and 0.0 <= heard[0] < heard[-1] <= 1.0


def test_a_layout_ends_when_its_progress_raises() -> None:
    class Enough(Exception):
        pass

    def stop(_done: float) -> None:
        raise Enough

    with pytest.raises(Enough):
        arrange(chain(4), progress=stop)


def _nested(levels: int) -> Drawing:
    """A box within so many groups, one in the other, and one beside them that feeds it."""
    groups = tuple(
        Group(f"g{n}", "g", "block", f"g{n - 1}" if n else None) for n in range(levels)
    )
    boxes = (
        Box("a", "a", category="act"),
        Box("b", "b", category="act", group=f"g{levels - 1}"),
    )
    return Drawing(boxes, (Arrow("a", "b", ""),), groups)


def test_a_level_wire_has_no_points_at_the_borders_that_it_crosses() -> None:
    ((*points,),) = arrange(_nested(100)).routes
    assert len(points) < 10


def test_a_group_in_one_row_is_placed_once_for_all_widths(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drawing, known, placed = _nested(50), KnownPlaces(), list[int]()
    before = layered.Layered.arrange

    def counted(self: layered.Layered, rows: Rows) -> Placed:
        placed.append(1)
        return before(self, rows)

    monkeypatch.setattr(layered.Layered, "arrange", counted)
    first = arrange(drawing, width=5000.0, known=known)
    placed.clear()
    assert arrange(drawing, width=6000.0, known=known) == first
    assert len(placed) == 1  # the drawing itself
