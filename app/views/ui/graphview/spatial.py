"""Spatial index: finds items by area, for routing, hit testing and painting."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Mapping
from typing import Any, Generic, TypeVar

from PySide6.QtCore import QRectF

CELL = 256
COARSER = 4  # times the cells of a grid for what is too large for them
GRIDS = 7  # the cells of the last are 2^20 pixels
MANY_CELLS = 12  # what covers more goes into a coarser grid, so that long wires neither fill cells nor are always asked

EVERYWHERE = QRectF(
    -1e6, -1e6, 2e6, 2e6
)  # the bounds of what paints whatever there is: they never grow

SIZES = tuple(CELL * COARSER**grid for grid in range(GRIDS))

K = TypeVar("K", bound=Hashable)
Span = tuple[
    int, int, int, int, int
]  # the grid, and the first and last column and row of its cells: as a rectangle


class RectIndex(Generic[K]):
    """Rectangles by key in grids of cells, larger ones in coarser grids, so that a query visits only nearby ones.

    Insertions are deferred to the next query: many moves without a query, as in undoing a layout, cost little.
    """

    def __init__(self) -> None:
        self._rects: dict[K, QRectF] = {}
        self._waiting: set[K] = set()  # put since the last question
        self._cells: dict[tuple[int, int, int], set[K]] = defaultdict(
            set
        )  # by grid, column and row
        self._spans: dict[K, Span] = {}
        self._used: set[int] = set()  # grids

    def __getitem__(self, key: K) -> QRectF:
        return self._rects[key]

    def __contains__(self, key: object) -> bool:
        return key in self._rects

    def __len__(self) -> int:
        return len(self._rects)

    def put(self, key: K, rect: QRectF) -> None:
        """Add a rectangle or move it. It is the index's own from then on: the caller does not change it."""
        self._rects[key] = rect
        self._waiting.add(key)

    def remove(self, key: K) -> None:
        """Forget a rectangle; none under the key is no error."""
        if self._rects.pop(key, None) is not None:
            self._waiting.discard(key)
            span = self._spans.pop(key, None)
            if span is not None:
                self._take_out(key, span)

    def remove_all(self, keys: Collection[K]) -> None:
        """Forget some; where they are most, it is quicker than one by one."""
        if 2 * len(keys) > len(self._rects):
            for key in keys:
                self._rects.pop(key, None)
            rects = self._rects.copy()
            self.clear()
            self._rects, self._waiting = rects, set(rects)
        else:
            for key in keys:
                self.remove(key)

    def clear(self) -> None:
        """Forget all of them."""
        self._rects.clear()
        self._waiting.clear()
        self._cells.clear()
        self._spans.clear()
        self._used.clear()

    def _sort_in(self) -> None:
        """Put what waits into its cells."""
        if 2 * len(self._waiting) > len(
            self._rects
        ):  # taking out one by one would take longer
            self._cells.clear()
            self._spans.clear()
            self._used.clear()
            self._waiting = set(self._rects)
        rects, spans, cells = self._rects, self._spans, self._cells
        for key in self._waiting:
            grid, left, top, right, bottom = span = _span(rects[key])
            before = spans.get(key)
            if before == span:
                continue
            if before is not None:
                self._take_out(key, before)
            spans[key] = span
            self._used.add(grid)
            if left == right and top == bottom:
                cells[grid, left, top].add(key)
            else:
                for column in range(left, right + 1):
                    for row in range(top, bottom + 1):
                        cells[grid, column, row].add(key)
        self._waiting = set()

    def _take_out(self, key: K, span: Span) -> None:
        grid, left, top, right, bottom = span
        for column in range(left, right + 1):
            for row in range(top, bottom + 1):
                self._cells[grid, column, row].discard(key)

    def build(self) -> None:
        """Do now what the next query would do first: of very many rectangles it takes seconds."""
        if self._waiting:
            self._sort_in()

    def inside(self, area: QRectF) -> list[K]:
        """Return the keys of all rectangles that intersect an area, unordered."""
        self.build()
        rects, cells = self._rects, self._cells
        spans = [_cells_of(area, grid) for grid in self._used]
        if sum(map(_cells_in, spans)) > len(rects):
            return [key for key, rect in rects.items() if rect.intersects(area)]
        candidates: set[K] = set()
        for grid, left, top, right, bottom in spans:
            for column in range(left, right + 1):
                for row in range(top, bottom + 1):
                    here = cells.get((grid, column, row))
                    if here:
                        candidates |= here
        return [key for key in candidates if rects[key].intersects(area)]


def _span(rect: QRectF) -> Span:
    """Return the cells that a rectangle covers, in the finest grid in which they are few."""
    span = _cells_of(rect, 0)
    while _cells_in(span) > MANY_CELLS and span[0] + 1 < GRIDS:
        span = _cells_of(rect, span[0] + 1)
    return span


def _cells_of(rect: QRectF, grid: int) -> Span:
    size = SIZES[grid]
    coordinates: Any = rect.getCoords()  # in one call, for there are very many
    left, top, right, bottom = coordinates
    return (
        grid,
        int(left // size),
        int(top // size),
        int(right // size),
        int(bottom // size),
    )


def _cells_in(span: Span) -> int:
    return (span[3] - span[1] + 1) * (span[4] - span[2] + 1)


LEFT, RIGHT, UP, DOWN = (-1, 0), (1, 0), (0, -1), (0, 1)


def nearest(
    centers: Mapping[K, tuple[float, float]], key: K, direction: tuple[int, int]
) -> K | None:
    """Return what is nearest in a direction, by centres; sideways distance counts twice."""
    x, y = centers[key]
    best, least = None, float("inf")
    for other, (other_x, other_y) in centers.items():
        dx, dy = other_x - x, other_y - y
        ahead = dx * direction[0] + dy * direction[1]
        aside = abs(dx * direction[1]) + abs(dy * direction[0])
        if other != key and ahead > 8 and ahead + 2 * aside < least:
            best, least = other, ahead + 2 * aside
    return best


def bounds(rects: Iterable[QRectF]) -> QRectF:
    """Return their bounding rectangle."""
    bounding_rect = QRectF()
    for rect in rects:
        bounding_rect = bounding_rect.united(rect)
    return bounding_rect
