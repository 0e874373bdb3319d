"""Pictures of small things, kept until they look different, and let go when there are too many of them."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QPainter, QPixmap

KEPT = 48 * 1024 * 1024  # bytes


@dataclass(frozen=True)
class Sprite:
    """A picture, and where its top left corner lies from the origin of what it shows, in pixels of the view."""

    stamp: Hashable
    pixmap: QPixmap
    corner: QPointF

    @property
    def bytes(self) -> int:
        return 4 * self.pixmap.width() * self.pixmap.height()


class Sprites:
    """Makes pictures at one zoom and resolution at a time and keeps those that were wanted last."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Hashable, Sprite] = OrderedDict()
        self._bytes = 0

    def clear(self) -> None:
        """Fonts or colours are others: every picture is out of date."""
        self._kept.clear()
        self._bytes = 0

    def put_down(
        self,
        painter: QPainter,
        at: QPointF,
        key: Hashable,
        stamp: Hashable,
        extent: QRectF,
        zoom: float,
        ratio: float,
        paint: Callable[[QPainter], None],
    ) -> None:
        """Draw what `paint` paints about its origin, within `extent`, with that origin at a pixel of the view.

        The picture that is kept under `key` is taken if it was made with the same `stamp`. It lies on whole pixels,
        so that letters are as sharp everywhere.
        """
        sprite = self._kept.get(key)
        if sprite is None or sprite.stamp != stamp:
            sprite = self._make(key, stamp, extent, zoom, ratio, paint)
        else:
            self._kept.move_to_end(key)
        x, y = round(at.x() * ratio) / ratio, round(at.y() * ratio) / ratio
        painter.drawPixmap(QPointF(x, y) + sprite.corner, sprite.pixmap)

    def _make(
        self,
        key: Hashable,
        stamp: Hashable,
        extent: QRectF,
        zoom: float,
        ratio: float,
        paint: Callable[[QPainter], None],
    ) -> Sprite:
        scale = zoom * ratio
        left, top = math.floor(extent.left() * scale), math.floor(extent.top() * scale)
        right, bottom = math.ceil(extent.right() * scale), math.ceil(extent.bottom() * scale)
        pixmap = QPixmap(max(right - left, 1), max(bottom - top, 1))
        pixmap.fill(Qt.GlobalColor.transparent)
        painter = QPainter(pixmap)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.translate(-left, -top)
        painter.scale(scale, scale)
        paint(painter)
        painter.end()
        pixmap.setDevicePixelRatio(ratio)
        sprite = Sprite(stamp, pixmap, QPointF(left / ratio, top / ratio))
        self._keep(key, sprite)
        return sprite

    def _keep(self, key: Hashable, sprite: Sprite) -> None:
        before = self._kept.pop(key, None)
        self._bytes += sprite.bytes - (before.bytes if before is not None else 0)
        self._kept[key] = sprite
        while self._bytes > KEPT and len(self._kept) > 1:
            _, oldest = self._kept.popitem(last=False)
            self._bytes -= oldest.bytes
