"""A drawing fits together or says what does not."""

import pytest

from app.diagram.diagram import Arrow, Box, Drawing, DrawingError, Group


def test_what_refers_to_nothing_is_refused() -> None:
    a = Box("a", "A")
    with pytest.raises(DrawingError, match="same id"):
        Drawing((a, a))
    with pytest.raises(DrawingError, match="a -> b"):
        Drawing((a,), (Arrow("a", "b"),))
    with pytest.raises(DrawingError, match="group g"):
        Drawing((Box("a", "A", group="g"),))
    with pytest.raises(DrawingError, match="is a child of x"):
        Drawing((Box("a", "A", under="x"),))


def test_groups_nest_without_circles() -> None:
    Drawing((), (), (Group("inner", "Inner", parent="outer"), Group("outer", "Outer")))
    with pytest.raises(DrawingError, match="contains itself"):
        Drawing((), (), (Group("a", "A", parent="b"), Group("b", "B", parent="a")))
    with pytest.raises(DrawingError, match="is in b, which does not exist"):
        Drawing((), (), (Group("a", "A", parent="b"),))
