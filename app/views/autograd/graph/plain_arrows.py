"""Batch-paint all arrows without highlight in one item: one item for each costs Qt more than painting it."""

from __future__ import annotations

from collections.abc import Iterable

from PySide6.QtCore import QLineF, QRectF, Qt
from PySide6.QtGui import QPainter, QPainterPath
from PySide6.QtWidgets import QGraphicsItem, QStyleOptionGraphicsItem, QWidget

from app.views.autograd.graph.items import Bounded, Way, arrow_ink, arrow_way
from app.views.ui.theme import current

TILE = 512.0  # px of the scene

Route = tuple[tuple[float, float], ...]


class PlainArrows:
    """The plain arrows of a scene by number, in one item a square of the scene. Long ones are left out."""

    def __init__(self, parent: QGraphicsItem) -> None:
        self._parent = parent
        self._tiles: dict[tuple[int, int], _Tile] = {}
        self._tile_of: dict[int, _Tile] = {}
        self._opacity = 1.0

    def __contains__(self, number: object) -> bool:
        return number in self._tile_of

    def numbers(self) -> list[int]:
        """The arrows that are here."""
        return list(self._tile_of)

    def add(self, arrows: Iterable[tuple[int, Route]]) -> list[int]:
        """Show these arrows; returns those that are too long, which are left to the caller."""
        left, changed = [], set()
        for number, route in arrows:
            (x, y), (end, low) = route[0], route[-1]
            if len(route) > 4 or abs(end - x) > TILE or abs(low - y) > TILE:
                left.append(number)
                continue
            place = int(x // TILE), int(y // TILE)
            tile = self._tiles.get(place)
            if tile is None:
                tile = self._tiles[place] = _Tile(self._parent)
                tile.setOpacity(self._opacity)
            tile.ways[number] = arrow_way(route)
            self._tile_of[number] = tile
            changed.add(tile)
        for tile in changed:
            tile.remake()
        return left

    def take_out(self, number: int) -> None:
        """An arrow gets an item of its own."""
        tile = self._tile_of.pop(number, None)
        if tile is not None:
            del tile.ways[number]
            tile.remake()

    def set_opacity(self, opacity: float) -> None:
        """Of all of them, and of those to come."""
        self._opacity = opacity
        for tile in self._tiles.values():
            tile.setOpacity(opacity)


class _Tile(Bounded):
    """The arrows that begin in one square. What is painted is put together when it is wanted next."""

    def __init__(self, parent: QGraphicsItem) -> None:
        super().__init__()
        self.ways: dict[int, Way] = {}
        self._lines: list[QLineF] | None = None
        self._bends, self._heads = QPainterPath(), QPainterPath()
        self.setZValue(2)
        self.setAcceptedMouseButtons(Qt.MouseButton.NoButton)
        self.setParentItem(parent)

    def remake(self) -> None:
        """The arrows are others."""
        area = QRectF()
        for way in self.ways.values():
            area = area.united(way.bounds)
        self.setRect(area)
        self._lines = None
        self.update()

    def shape(self) -> QPainterPath:
        return QPainterPath()  # for the pointer there is nothing here

    def paint(self, painter: QPainter, option: QStyleOptionGraphicsItem, widget: QWidget | None = None) -> None:
        if self._lines is None:
            self._lines = [way.line for way in self.ways.values() if way.line is not None]
            self._bends, self._heads = QPainterPath(), QPainterPath()
            self._heads.setFillRule(Qt.FillRule.WindingFill)
            for way in self.ways.values():
                self._heads.addPath(way.head)
                if way.line is None:
                    self._bends.addPath(way.path)
        line, fill = arrow_ink(current(), False)
        painter.setPen(line)
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.drawLines(self._lines)
        if not self._bends.isEmpty():
            painter.drawPath(self._bends)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(fill)
        painter.drawPath(self._heads)
