"""The map of a graph in its corner: every thing is a pixel at least, later ones lie on top, and a press goes there."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PySide6.QtCore import QPoint, QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QColor, QImage
from PySide6.QtWidgets import QGraphicsScene

from app.views.ui import theme
from app.views.ui.graphview.minimap import THIN, MapShapes, Minimap, rastered
from app.views.ui.graphview.pan_zoom_view import PanZoomView

RED, BLUE = 0xFFFF0000, 0xFF0000FF
sides = st.integers(-30, 230)
rectangles = st.lists(
    st.tuples(sides, sides, st.integers(0, 90), st.integers(0, 90)), max_size=30
)


@given(found=rectangles)
def test_every_rectangle_is_put_down_whole_and_is_seen(
    found: list[tuple[int, int, int, int]],
) -> None:
    colors = [0xFF000001 + number for number in range(len(found))]
    corners = [(x, y, x + width, y + height) for x, y, width, height in found]
    rects = np.array(
        [(*corner, color) for corner, color in zip(corners, colors, strict=True)], float
    ).reshape(-1, 5)
    for number in range(len(found)):
        image = rastered(rects[number : number + 1], 0.5, QPointF(0, 0), QSize(100, 80))
        seen = np.count_nonzero(pixels(image) == colors[number])
        sides = []
        for low, high, most in ((0, 2, 100), (1, 3, 80)):
            begin, end = (
                round(corners[number][low] / 2),
                round(corners[number][high] / 2),
            )
            end += end - begin < THIN
            begin = min(max(begin, 0), most - 1)
            sides.append(max(min(end, most) - begin, 1))
        assert seen == sides[0] * sides[1]
    whole = rastered(rects, 0.5, QPointF(0, 0), QSize(100, 80))
    assert len({*pixels(whole).flat} - {0}) <= len(found)


def pixels(image: QImage) -> np.ndarray:
    """The colours of a picture, row by row."""
    assert (
        image.format() == QImage.Format.Format_ARGB32
        and image.bytesPerLine() == 4 * image.width()
    )
    return np.frombuffer(image.constBits(), np.uint32).reshape(
        image.height(), image.width()
    )


def test_what_comes_later_lies_on_top() -> None:
    small = np.array([(0, 0, 3, 3, RED), (1, 1, 5, 5, BLUE), (2, 2, 3, 3, RED)], float)
    image = rastered(small, 1.0, QPointF(0, 0), QSize(6, 6))
    assert [image.pixel(i, i) for i in range(6)] == [RED, BLUE, RED, RED, BLUE, 0]


class Graph(QGraphicsScene):
    """Two things far from each other."""

    def __init__(self) -> None:
        super().__init__()
        self.rects = np.array(
            [(0, 0, 400, 400, RED), (3600, 1600, 4000, 2000, BLUE)], float
        )

    def content_rect(self) -> QRectF:
        return QRectF(0, 0, 4000, 2000)

    def map_shapes(self) -> MapShapes:
        return MapShapes(self.rects)


class View(PanZoomView):
    def whole_area(self) -> QRectF:
        return QRectF(0, 0, 4000, 2000)


@pytest.fixture
def parts(qtbot, qapp) -> tuple[Graph, View, Minimap]:
    theme.apply(qapp, "dark")
    graph = Graph()
    view = View(graph)
    qtbot.addWidget(view)
    minimap = Minimap(view, graph, view)
    view.resize(1000, 600)
    view.show()
    minimap.follow()
    return graph, view, minimap


def test_a_press_goes_there_and_the_colours_are_the_things(qtbot, parts) -> None:
    graph, view, minimap = parts
    view.zoom_to(1.0)
    picture = minimap.grab().toImage()
    spots = [
        QPoint(x, y)
        for x in range(minimap.width())
        for y in range(minimap.height())
        if picture.pixelColor(x, y) == QColor.fromRgba(BLUE)
    ]
    middle = spots[len(spots) // 2]
    qtbot.mouseClick(minimap, Qt.MouseButton.LeftButton, pos=middle)
    assert QRectF(3500, 1500, 600, 600).contains(view.visible_area().center())


def test_a_map_steps_aside_where_it_would_cover_the_view(parts) -> None:
    _, view, minimap = parts
    sizes = []
    for width, height in ((1000, 600), (600, 300), (400, 300)):
        view.resize(width, height)
        sizes.append(minimap.width() if minimap.isVisible() else 0)
        assert QRectF(view.rect()).contains(QRectF(minimap.geometry())) or not sizes[-1]
    assert sizes[0] > sizes[1] > sizes[2] == 0
