"""Sprite cache: pixmaps of small items, kept until their appearance changes, evicted least recently used first."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from time import perf_counter
from typing import NamedTuple, Protocol

from msgspec import Struct
from PySide6.QtCore import QPointF, QRectF, Qt, QTimer
from PySide6.QtGui import QPaintEngine, QPainter, QPixmap, QTransform
from PySide6.QtWidgets import QGraphicsItem, QStyleOptionGraphicsItem, QWidget

from app.util.lru import LruCache
from app.views.ui.graphview.spatial import EVERYWHERE

KEPT = 48 * 1024 * 1024  # bytes
AT_ONCE = (
    0.003  # seconds of a frame for redrawing sprites that were cached at another zoom
)
SMALLER, LARGER = (
    0.55,
    1.8,
)  # by how much a picture made at another zoom is stretched at most
FIRST_GUESS = 0.0002  # seconds that a picture takes
DEEP = 4  # of more things in one place than this, those at the bottom are not drawn: the others cover them
REST = 90  # milliseconds
PICTURES = 200  # redrawn per paint of a window; those at the bottom follow in the next
MANY = 100  # missing sprites above which covered items are skipped

Scale = tuple[float, float]  # zoom, pixels of the screen for one of the view


class Hashed:
    """A value as a key that is asked for in every frame: its hash is worked out once."""

    __slots__ = ("_hash", "_value")

    def __init__(self, value: Hashable) -> None:
        self._value = value
        self._hash = hash(value)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, Hashed) and self._value == other._value
        )


class SpriteRequest(NamedTuple):
    """Something to draw with its origin at `at`, a point of the view: `paint` paints it about its origin in `extent`.

    Its picture is kept under `key` for as long as `version` is the same.
    """

    at: QPointF
    key: Hashable
    version: int
    extent: QRectF
    paint: Callable[[QPainter], None]
    opacity: float = 1.0


class Sprite(Struct, frozen=True):
    """A pixmap, and the offset of its top left corner from the item's origin, in pixels of the view."""

    version: int
    scale: Scale
    pixmap: QPixmap
    corner: QPointF

    @property
    def bytes(self) -> int:
        return 4 * self.pixmap.width() * self.pixmap.height()


class Sprites:
    """An LRU cache of pictures.

    While a view zooms, redrawing all pictures in each frame would take longer than the frame: those cached at another
    zoom are stretched instead. A picture is never stale, only less sharp.
    """

    def __init__(self) -> None:
        self._kept: LruCache[Sprite] = LruCache(KEPT, lambda sprite: sprite.bytes)
        self._cost = FIRST_GUESS

    def clear(self) -> None:
        """Clear the cache after a change of fonts or colours."""
        self._kept.clear()

    def draw(
        self,
        painter: QPainter,
        things: Sequence[SpriteRequest],
        scale: Scale,
        hurry: bool,
        most: int | None = None,
    ) -> bool:
        """Draw things in order; return whether all are there and sharp.

        In a `hurry` all are stretched if not all can be made. Where more than `most` pictures are missing, what lies
        at the bottom is left out; what all pictures that are kept have no room for always is.
        """
        sprites = [self._usable(thing, scale) for thing in things]
        missing = [number for number, sprite in enumerate(sprites) if sprite is None]
        left_out: list[int] = []
        room = math.inf
        if most is not None and len(missing) > MANY:
            missing = _in_sight(things, missing)
            left_out = missing[:-most]
            room = KEPT - sum(sprite.bytes for sprite in sprites if sprite is not None)
        for number in reversed(missing[len(left_out) :]):
            if room <= 0:
                left_out = []  # they would take the room of those that lie over them
                break
            sprite = sprites[number] = self._usable(
                things[number], scale
            ) or self._make(things[number], scale)
            room -= sprite.bytes
        blunt = sum(sprite is not None and sprite.scale != scale for sprite in sprites)
        left = math.inf if blunt * self._cost <= AT_ONCE else 0.0 if hurry else AT_ONCE
        sharp = not left_out
        for thing, had in zip(things, sprites, strict=True):
            if had is None:
                continue
            sprite = had
            if sprite.scale != scale and left > 0:
                sprite = self._make(thing, scale)
                left -= self._cost
            painter.setOpacity(thing.opacity)
            if sprite.scale == scale:
                painter.drawPixmap(
                    _on_pixel_grid(thing.at, scale[1]) + sprite.corner, sprite.pixmap
                )
            else:
                sharp = False
                _stretch(painter, thing.at, sprite, scale[0] / sprite.scale[0])
        painter.setOpacity(1.0)
        return sharp

    def _usable(self, thing: SpriteRequest, scale: Scale) -> Sprite | None:
        """Return the cached picture of a thing if it is up to date and need not be stretched too far, else None."""
        sprite = self._kept.get(thing.key)
        if (
            sprite is None
            or sprite.version != thing.version
            or sprite.scale[1] != scale[1]
        ):
            return None
        return sprite if SMALLER <= scale[0] / sprite.scale[0] <= LARGER else None

    def _make(self, thing: SpriteRequest, scale: Scale) -> Sprite:
        began = perf_counter()
        zoom, ratio = scale
        fine, extent = zoom * ratio, thing.extent
        left, top = math.floor(extent.left() * fine), math.floor(extent.top() * fine)
        right, bottom = (
            math.ceil(extent.right() * fine),
            math.ceil(extent.bottom() * fine),
        )
        pixmap = QPixmap(max(right - left, 1), max(bottom - top, 1))
        pixmap.fill(Qt.GlobalColor.transparent)
        painter = QPainter(pixmap)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.translate(-left, -top)
        painter.scale(fine, fine)
        thing.paint(painter)
        painter.end()
        pixmap.setDevicePixelRatio(ratio)
        sprite = Sprite(
            thing.version, scale, pixmap, QPointF(left / ratio, top / ratio)
        )
        self._kept.put(thing.key, sprite)
        self._cost += 0.1 * (min(perf_counter() - began, 10 * FIRST_GUESS) - self._cost)
        return sprite


class InSight(Protocol):
    """What a part of a graph has in sight: lines, and over them sprites."""

    def paint(self, painter: QPainter) -> None:
        """Paint what lies below the sprites."""

    def things(self, view: QTransform) -> Iterable[SpriteRequest]:
        """Return the sprites in their order, mapped by `view`."""
        ...


class NearLayer(QGraphicsItem):
    """The graph in detail: what a scene paints as lines, and over it sprites. Thousands of Qt items would be asked for
    their bounds in every frame; here a spatial index of the scene finds what is in sight."""

    def __init__(self, see: Callable[[QRectF, float], InSight], rest: QTimer) -> None:
        """`see(area, zoom)` finds what is in an area.

        `rest` is the scene's: it runs until zooming pauses and stretched sprites are rendered sharp.
        """
        super().__init__()
        self._see = see
        self._sprites = Sprites()
        self._zoom = 0.0
        self._rest = rest
        rest.setSingleShot(True)
        rest.timeout.connect(self.update)
        self.setFlag(QGraphicsItem.GraphicsItemFlag.ItemUsesExtendedStyleOption)
        self.setAcceptedMouseButtons(Qt.MouseButton.NoButton)

    def boundingRect(self) -> QRectF:
        return EVERYWHERE

    def forget(self) -> None:
        """Clear the cache after a change of fonts or colours."""
        self._sprites.clear()
        self.update()

    def paint(
        self,
        painter: QPainter,
        option: QStyleOptionGraphicsItem,
        widget: QWidget | None = None,
    ) -> None:
        view = painter.worldTransform()
        zoom = view.m11()
        sight = self._see(option.exposedRect, zoom)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        sight.paint(painter)
        painter.setOpacity(1.0)
        vectors = painter.paintEngine().type() != QPaintEngine.Type.Raster
        if vectors or view.m12() or view.m21():
            for thing in sight.things(QTransform()):
                painter.save()
                painter.translate(thing.at)
                painter.setOpacity(thing.opacity)
                thing.paint(painter)
                painter.restore()
            return
        scale = (zoom, painter.device().devicePixelRatio())
        painter.setWorldTransform(QTransform())
        painter.setRenderHint(QPainter.RenderHint.SmoothPixmapTransform)
        painter.setRenderHint(
            QPainter.RenderHint.Antialiasing, False
        )  # their edges are clear, and it takes long
        hurry, self._zoom = zoom != self._zoom or self._rest.isActive(), zoom
        things = list(sight.things(view))
        most = None if widget is None else PICTURES  # an image has no next painting
        sharp = self._sprites.draw(painter, things, scale, hurry, most)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setWorldTransform(view)
        if not sharp:
            self._rest.start(REST if hurry else 0)


def _on_pixel_grid(at: QPointF, ratio: float) -> QPointF:
    """Round a point to device pixels, so that text is equally sharp everywhere."""
    return QPointF(round(at.x() * ratio) / ratio, round(at.y() * ratio) / ratio)


def _in_sight(things: Sequence[SpriteRequest], numbers: Sequence[int]) -> list[int]:
    """Return the things that are not covered by several others of the same size (occlusion culling)."""
    over: dict[tuple[int, int], list[QRectF]] = defaultdict(list)
    visible = []
    for number in reversed(numbers):
        thing = things[number]
        here = over[round(thing.at.x()), round(thing.at.y())]
        if sum(extent.contains(thing.extent) for extent in here) < DEEP:
            here.append(thing.extent)
            visible.append(number)
    return visible[::-1]


def _stretch(painter: QPainter, at: QPointF, sprite: Sprite, factor: float) -> None:
    size = sprite.pixmap.deviceIndependentSize() * factor
    painter.drawPixmap(
        QRectF(at + sprite.corner * factor, size),
        sprite.pixmap,
        QRectF(sprite.pixmap.rect()),
    )
