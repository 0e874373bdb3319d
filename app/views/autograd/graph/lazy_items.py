"""Boxes and groups of a scene that are created when first needed: most of a large graph is never seen close up."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, TypeVar

from PySide6.QtCore import QRectF

from app.diagram.diagram import Drawing
from app.diagram.layout import Layout, Rect
from app.views.ui.graphview.spatial import RectIndex

T = TypeVar("T")
# ("box", id), ("group", id), ("arrow", number) or ("label", number)
Place = tuple[str, Any]


def places(drawing: Drawing, layout: Layout) -> RectIndex[Place]:
    """Where everything of a picture is, so that what comes into sight is found."""
    index: RectIndex[Place] = RectIndex()
    for kind, rects in (("box", layout.boxes), ("group", layout.groups)):
        for key, rect in rects.items():
            index.put((kind, key), QRectF(*rect))
    for number, route in enumerate(layout.routes):
        xs, ys = [x for x, _ in route], [y for _, y in route]
        left, top = min(xs), min(ys)
        index.put(("arrow", number), QRectF(left - 4, top - 4, max(xs) - left + 8, max(ys) - top + 8))
    for number, at in enumerate(layout.labels):
        if at is not None and drawing.arrows[number].label:
            index.put(("label", number), QRectF(at[0] - 60, at[1] - 10, 120, 20))
    return index


class Parts(Mapping[str, T], Generic[T]):
    """Items by key; one that is asked for and not there yet is made. `made` are those that are."""

    def __init__(self, rects: Mapping[str, Rect], make: Callable[[str], T]) -> None:
        self.rects = rects
        self.made: dict[str, T] = {}
        self._make = make

    def __getitem__(self, key: str) -> T:
        item = self.made.get(key)
        if item is None:
            if key not in self.rects:
                raise KeyError(key)
            item = self.made[key] = self._make(key)
        return item

    def __contains__(self, key: object) -> bool:
        return key in self.rects

    def __iter__(self) -> Iterator[str]:
        return iter(self.rects)

    def __len__(self) -> int:
        return len(self.rects)
