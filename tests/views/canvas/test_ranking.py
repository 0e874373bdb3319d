"""What a search lists first, and bends that keep a wire on its route."""

from __future__ import annotations

from PySide6.QtCore import QPointF, QRectF

from app.builder.catalog.catalog import catalog
from app.builder.value_types import Dim, TensorType
from app.views.canvas.finder import by_kind, by_shape
from app.views.ui.graphview.routes import nearest_on, route, through


def test_a_search_lists_first_what_fits_the_shape() -> None:
    ops = catalog()
    keys = ("nn.Conv2d", "nn.Conv1d", "nn.Linear", "nn.ReLU", "nn.BatchNorm1d")
    flat, picture = TensorType((Dim(1), 64)), TensorType((Dim(1), 3, 8, 8))
    assert by_shape(ops, keys, flat) == [
        "nn.Linear",
        "nn.ReLU",
        "nn.BatchNorm1d",
        "nn.Conv2d",
        "nn.Conv1d",
    ]
    assert by_shape(ops, keys, picture)[0] == "nn.Conv2d" and by_shape(
        ops, keys, None
    ) == list(keys)


def test_replace_lists_the_same_kind_first() -> None:
    ops = catalog()
    first = by_kind(ops, "nn.ReLU")[:12]
    assert all(ops[key].category == "act" for key in first) and "nn.ReLU" not in first


def test_a_first_bend_leaves_a_wire_on_its_route() -> None:
    start, end = QPointF(700, 40), QPointF(0, 240)
    source, target = QRectF(600, 15, 100, 50), QRectF(0, 215, 100, 50)
    before = route(start, end, source, target)
    assert before.backward
    held = nearest_on(before.path, QPointF(350, 150))
    turns = [*before.turns[:2], held, *before.turns[2:]]
    after = through(start, end, turns, source, target)
    for i in range(0, 101, 2):
        on = after.path.pointAtPercent(i / 100)
        assert (nearest_on(before.path, on) - on).manhattanLength() < 6
