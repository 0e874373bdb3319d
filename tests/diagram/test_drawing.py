"""A drawing fits together or says what does not."""

import pytest

from app.diagram.diagram import Arrow, BadDrawing, Box, Drawing, Group, bytes_text, shape_text


def test_what_refers_to_nothing_is_refused() -> None:
    a = Box("a", "A")
    with pytest.raises(BadDrawing, match="same id"):
        Drawing((a, a))
    with pytest.raises(BadDrawing, match="a -> b"):
        Drawing((a,), (Arrow("a", "b"),))
    with pytest.raises(BadDrawing, match="group g"):
        Drawing((Box("a", "A", group="g"),))
    with pytest.raises(BadDrawing, match="hangs under x"):
        Drawing((Box("a", "A", under="x"),))


def test_groups_nest_without_circles() -> None:
    Drawing((), (), (Group("inner", "Inner", parent="outer"), Group("outer", "Outer")))
    with pytest.raises(BadDrawing, match="stands in itself"):
        Drawing((), (), (Group("a", "A", parent="b"), Group("b", "B", parent="a")))
    with pytest.raises(BadDrawing, match="stands in b, which is not there"):
        Drawing((), (), (Group("a", "A", parent="b"),))


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.00 KiB"), (1024 * 1024 - 1, "1.00 MiB"), (10 * 1024, "10.0 KiB"),
     (27 << 20, "27.0 MiB"), (5 << 40, "5.00 TiB"), (5000 << 40, "5000 TiB")],
)  # fmt: skip
def test_memory_reads_in_three_figures(count: int, text: str) -> None:
    assert bytes_text(count) == text


def test_shapes_read_with_real_signs() -> None:
    assert shape_text((1, 28, 28)) == "1×28×28"
    assert shape_text(()) == "scalar"
