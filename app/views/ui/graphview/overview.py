"""Level of detail: the zoomed-out graph as one item, blocks and thin lines painted in a few calls.

Painting a thousand nodes one by one takes longer than a frame, and zoomed out they cannot be distinguished. They are
cached in batches: an edit rebuilds one batch, a few milliseconds per paint, and batches out of sight are not painted.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any, Generic, Protocol, TypeVar
from weakref import ref

import numpy as np
from PySide6.QtCore import QRectF, Qt, QTimer
from PySide6.QtGui import QColor, QPainter, QPainterPath, QPen
from PySide6.QtWidgets import QGraphicsItem, QStyleOptionGraphicsItem, QWidget
from shiboken6 import isValid

from app.views.ui import theme
from app.views.ui.graphview.minimap import MapRects
from app.views.ui.graphview.spatial import EVERYWHERE
from app.views.ui.theme import Theme

SLICE = 0.004  # seconds of a paint for rebuilding stale batches
QUICK = 0.004  # seconds: what paints longer waits twice as long before it paints again
A_FEW = 8  # minimum of batches in a minimap
BATCH = 64  # members of a batch
STRIPS = 4  # areas that are painted for themselves

T = TypeVar("T")
B = TypeVar("B", bound="Batch[Any]")
Pen = tuple[int, float]  # colour, pixels of the screen
Rects = list[tuple[float, ...]]


class RepaintTarget(Protocol):
    """Collects changed areas: what a node or a wire asks for repaints."""

    def touch(self, item: object, area: QRectF) -> None:
        """Mark an item as changed within an area of the scene."""
        ...


class PaintLayer:
    """Filled rectangles by colour, over them outlines, over these lines by colour and width."""

    __slots__ = ("fills", "lines", "outlines")

    def __init__(self) -> None:
        self.fills: dict[int, list[QRectF]] = defaultdict(list)
        self.outlines: dict[Pen, list[QRectF]] = defaultdict(list)
        self.lines: dict[Pen, QPainterPath] = defaultdict(QPainterPath)

    def paint(self, painter: QPainter) -> None:
        painter.setPen(Qt.PenStyle.NoPen)
        for color, rects in self.fills.items():
            painter.setBrush(QColor.fromRgba(color))
            painter.drawRects(rects)
        painter.setBrush(Qt.BrushStyle.NoBrush)
        for pen, rects in self.outlines.items():
            painter.setPen(_cosmetic(pen))
            painter.drawRects(rects)
        for pen, path in self.lines.items():
            painter.strokePath(path, _cosmetic(pen))


class Batch(ABC, Generic[T]):
    """Items that are painted together from a cache; `stale` once one of them looks different."""

    LAYERS = 1

    def __init__(self, members: Sequence[T]) -> None:
        self.members = members
        self.stale = True
        self.layers: list[PaintLayer] | None = None  # once it was made
        self.area = QRectF()
        self.mapped: list[MapRects] | None = None

    def spoil(self) -> None:
        """Mark the cache as stale: a member looks different."""
        self.stale, self.mapped = True, None

    def remake(self, now: Theme) -> None:
        self.layers = [PaintLayer() for _ in range(self.LAYERS)]
        self.area = self.fill(self.layers, now)
        self.stale = False

    @abstractmethod
    def fill(self, layers: list[PaintLayer], now: Theme) -> QRectF:
        """Add all members to empty layers; return the area that they cover."""

    def map(self, now: Theme, most: int) -> tuple[Rects, Rects]:
        """Return rectangles for a map, see `MapShapes`: the bottom ones, then others. Beyond `most`, some may be left
        out.

        Items without a map have none.
        """
        return [], []


class Overview(QGraphicsItem):
    """Paints batches, layer by layer. A subclass says which there are."""

    def __init__(self, area: QRectF = EVERYWHERE) -> None:
        super().__init__()
        self._area = area
        self._margin = 0.0  # of outlines around their items, on the scene
        self._took = 0.0  # seconds that the last painting took
        self._rest = QTimer(singleShot=True)
        # A weak reference: the garbage collector does not see what a signal holds. The scene may go before this does.
        me = ref(self)
        self._rest.timeout.connect(
            lambda: (item := me()) and isValid(item) and item.update()
        )
        self.setFlag(QGraphicsItem.GraphicsItemFlag.ItemUsesExtendedStyleOption)
        self.setAcceptedMouseButtons(Qt.MouseButton.NoButton)

    def batches(self) -> Sequence[Batch[Any]]:
        """Return all batches in paint order; none unless a subclass has some."""
        return ()

    def mapped_batches(self) -> Sequence[Batch[Any]]:
        """Return the batches that a map shows."""
        return self.batches()

    def layer_opacity(self, number: int) -> float:
        """Return the opacity of a layer, 0 to 1."""
        return 1.0

    def forget(self) -> None:
        """Invalidate all batches after a theme change."""
        for batch in self.batches():
            batch.spoil()
        self.update()

    def refresh(self, area: QRectF | None = None) -> None:
        """Repaint an area, or all: at once, or debounced if a paint takes long."""
        if self._took < QUICK:
            self.update(
                area.adjusted(-self._margin, -self._margin, self._margin, self._margin)
                if area
                else self._area
            )
        else:
            self._wait()

    def _wait(self) -> None:
        if not self._rest.isActive():
            self._rest.start(max(1, round(2000 * self._took)))

    def map_rects(self, most: int = 4000) -> tuple[MapRects, bool]:
        """Return the rectangles for a map, and whether they are complete: of very many some are left for later."""
        now, end = theme.current(), perf_counter() + SLICE
        batches = self.mapped_batches()
        new = 0
        for batch in batches:
            if batch.mapped is None:
                new += 1
                if new > A_FEW and perf_counter() > end:
                    break
                batch.mapped = [
                    np.array(rects, float).reshape(-1, 5)
                    for rects in batch.map(now, most)
                ]
        mapped = [batch.mapped for batch in batches if batch.mapped is not None]
        layers = [both[layer] for layer in (0, 1) for both in mapped]
        rects = np.concatenate(layers) if layers else np.empty((0, 5))
        return rects, len(mapped) == len(batches)

    def boundingRect(self) -> QRectF:
        return self._area

    def paint(
        self,
        painter: QPainter,
        option: QStyleOptionGraphicsItem,
        widget: QWidget | None = None,
    ) -> None:
        began, batches = perf_counter(), self.batches()
        self._make(
            batches, math.inf if widget is None else SLICE
        )  # an image has no next painting
        out = self._margin
        areas = [
            area.adjusted(-out, -out, out, out) for area in _exposed(painter, option)
        ]
        shown = [
            batch.layers
            for batch in batches
            if batch.layers and any(map(batch.area.intersects, areas))
        ]
        painter.setRenderHint(QPainter.RenderHint.Antialiasing, False)
        plain = painter.opacity()
        for number in range(max(map(len, shown), default=0)):
            painter.setOpacity(plain * self.layer_opacity(number))
            for layers in shown:
                if number < len(layers):
                    layers[number].paint(painter)
        painter.setOpacity(plain)
        self._took = perf_counter() - began

    def _make(self, batches: Sequence[Batch[Any]], seconds: float) -> None:
        """Rebuild stale batches within `seconds`; the rest is left to the next paints."""
        now, end = theme.current(), perf_counter() + seconds
        for batch in batches:
            if batch.stale:
                batch.remake(now)
                if perf_counter() > end:
                    self._wait()
                    return


def _exposed(painter: QPainter, option: QStyleOptionGraphicsItem) -> list[QRectF]:
    """Return the areas to paint: of a view that was scrolled both ways two strips, not all that they span."""
    if (
        painter.hasClipping()
        and 1 < (region := painter.clipRegion()).rectCount() <= STRIPS
    ):
        rects: Any = region  # iterable, though its stub does not say so
        areas = [
            QRectF(rect).adjusted(-1, -1, 1, 1).intersected(option.exposedRect)
            for rect in rects
        ]
        return [area for area in areas if not area.isEmpty()]
    return [option.exposedRect]


def batched(
    members: Sequence[Any],
    before: Sequence[B],
    kind: Callable[[Any], B],
    size: int = BATCH,
) -> list[B]:
    """Split members into batches, reusing those whose members are unchanged."""
    parts = [members[i : i + size] for i in range(0, len(members), size)]
    old: list[B | None] = [*before, *([None] * len(parts))]
    return [
        batch if batch is not None and batch.members == chunk else kind(chunk)
        for chunk, batch in zip(parts, old, strict=False)
    ]


def _cosmetic(pen: Pen) -> QPen:
    """Return a cosmetic pen, whose width does not depend on zoom."""
    cosmetic_pen = QPen(QColor.fromRgba(pen[0]), pen[1])
    cosmetic_pen.setCosmetic(True)
    return cosmetic_pen
