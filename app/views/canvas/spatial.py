"""Where the nodes are, asked by area: wires go round them, pointers hit them."""

from __future__ import annotations

from collections import defaultdict

from PySide6.QtCore import QRectF

CELL = 256


class RectIndex:
    """Rectangles by id in a grid of cells, so that a question touches only what is near."""

    def __init__(self) -> None:
        self._rects: dict[str, QRectF] = {}
        self._cells: dict[tuple[int, int], set[str]] = defaultdict(set)

    def __getitem__(self, key: str) -> QRectF:
        return self._rects[key]

    def __contains__(self, key: object) -> bool:
        return key in self._rects

    def put(self, key: str, rect: QRectF) -> None:
        """Add a rectangle or move it."""
        self.remove(key)
        self._rects[key] = QRectF(rect)
        for cell in self._covered(rect):
            self._cells[cell].add(key)

    def remove(self, key: str) -> None:
        """Forget a rectangle; none under the key is no error."""
        rect = self._rects.pop(key, None)
        if rect is not None:
            for cell in self._covered(rect):
                self._cells[cell].discard(key)

    def inside(self, area: QRectF) -> list[str]:
        """The ids of what touches an area, in the order in which they were put."""
        if self._count(area) > len(self._rects):
            return [key for key, rect in self._rects.items() if rect.intersects(area)]
        found: set[str] = set()
        for cell in self._covered(area):
            found |= self._cells.get(cell, set())
        return sorted(key for key in found if self._rects[key].intersects(area))

    @staticmethod
    def _count(area: QRectF) -> float:
        return (area.width() / CELL + 2) * (area.height() / CELL + 2)

    @staticmethod
    def _covered(rect: QRectF) -> list[tuple[int, int]]:
        columns = range(int(rect.left() // CELL), int(rect.right() // CELL) + 1)
        rows = range(int(rect.top() // CELL), int(rect.bottom() // CELL) + 1)
        return [(column, row) for column in columns for row in rows]
