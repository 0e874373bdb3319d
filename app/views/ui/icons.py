"""Icons, drawn from `resources/icons` in the theme's colours and sharp at every scale.

An icon resolves its colour when it is painted, so it follows the theme.
"""

from __future__ import annotations

import math
from functools import cache

from PySide6.QtCore import QByteArray, QPoint, QPointF, QRect, QRectF, QSize, Qt
from PySide6.QtGui import QColor, QIcon, QIconEngine, QPainter, QPixmap, QPixmapCache
from PySide6.QtSvg import QSvgRenderer

from app.views.ui.theme import RESOURCES, current, svg

# Icons with a fixed colour; every other icon is `text2`, a category's has the category's colour.
STATE_COLORS = {
    "record": "error",
    "error": "error",
    "warning": "warn",
    "info": "accent",
    "check": "run",
}


@cache
def names() -> tuple[str, ...]:
    """Return the names of all icons."""
    return tuple(
        sorted(f.stem for f in (RESOURCES / "icons").glob("*.svg") if f.stem != "app")
    )


@cache
def _renderer(name: str, color: str) -> QSvgRenderer:
    renderer = QSvgRenderer(QByteArray(svg(name, QColor(color))))
    renderer.setAspectRatioMode(Qt.AspectRatioMode.KeepAspectRatio)
    return renderer


def pixmap(
    name: str, color: str | QColor, size: float = 16, dpr: float = 1.0
) -> QPixmap:
    """Return an icon as a pixmap of `size` logical pixels, for a screen of `dpr` device pixels each. Cached.

    Raises:
        FileNotFoundError: there is no such icon.
        KeyError: there is no such colour.
    """
    shade = current().color(color).name()
    side = max(1, round(size * dpr))
    key = f"tapedeck/{name}/{shade}/{side}/{dpr}"
    result = QPixmap()
    if QPixmapCache.find(key, result):
        return result
    result = QPixmap(side, side)
    result.fill(Qt.GlobalColor.transparent)
    painter = QPainter(result)
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    _renderer(name, shade).render(painter, QRectF(0, 0, side, side))
    painter.end()
    result.setDevicePixelRatio(dpr)
    QPixmapCache.insert(key, result)
    return result


def draw(
    painter: QPainter,
    name: str,
    color: str | QColor,
    x: float,
    y: float,
    size: float = 16,
) -> None:
    """Paint an icon with its top left corner at about (x, y), from the cache, on whole device pixels.

    Where the painter is zoomed, the picture is the next larger of quarter steps, so that the cache stays small.
    """
    scale = abs(painter.deviceTransform().m11()) or 1.0
    sharp = min(max(math.ceil(scale * 4) / 4, 1.0), 8.0)
    picture = pixmap(name, color, size, sharp)
    if sharp == scale:
        painter.drawPixmap(
            QPointF(round(x * scale) / scale, round(y * scale) / scale), picture
        )
        return
    smooth = painter.testRenderHint(QPainter.RenderHint.SmoothPixmapTransform)
    painter.setRenderHint(QPainter.RenderHint.SmoothPixmapTransform)
    painter.drawPixmap(QRectF(x, y, size, size), picture, QRectF(picture.rect()))
    painter.setRenderHint(QPainter.RenderHint.SmoothPixmapTransform, smooth)


class ThemedEngine(QIconEngine):
    """Paints one icon in the theme in force at that moment."""

    def __init__(self, name: str, color: str, size: int) -> None:
        super().__init__()
        self._name = name
        self._color = color
        self._size = size

    def _shade(self, mode: QIcon.Mode) -> str:
        return "text4" if mode == QIcon.Mode.Disabled else self._color

    def paint(
        self, painter: QPainter, rect: QRect, mode: QIcon.Mode, state: QIcon.State
    ) -> None:
        side = min(rect.width(), rect.height())
        corner = rect.center() - QPoint((side - 1) // 2, (side - 1) // 2)
        draw(painter, self._name, self._shade(mode), corner.x(), corner.y(), side)

    def pixmap(self, size: QSize, mode: QIcon.Mode, state: QIcon.State) -> QPixmap:
        return pixmap(self._name, self._shade(mode), min(size.width(), size.height()))

    def scaledPixmap(
        self, size: QSize, mode: QIcon.Mode, state: QIcon.State, scale: float
    ) -> QPixmap:
        return pixmap(
            self._name, self._shade(mode), min(size.width(), size.height()), scale
        )

    def actualSize(self, size: QSize, mode: QIcon.Mode, state: QIcon.State) -> QSize:
        side = min(size.width(), size.height())
        return QSize(side, side)

    def availableSizes(
        self, mode: QIcon.Mode = QIcon.Mode.Normal, state: QIcon.State = QIcon.State.Off
    ) -> list[QSize]:
        return [QSize(self._size, self._size)]

    def iconName(self) -> str:
        return self._name

    def key(self) -> str:
        return "tapedeck"

    def isNull(self) -> bool:
        return False

    def clone(self) -> QIconEngine:
        return ThemedEngine(self._name, self._color, self._size)


@cache
def _icon(name: str, color: str, size: int) -> QIcon:
    svg(
        name, QColor("#000000")
    )  # an unknown name is an error here, not at the first paint
    current().color(color)
    return QIcon(ThemedEngine(name, color, size))


def default_color(name: str) -> str:
    """Return the token of the colour that an icon has by default."""
    if name in current().categories:
        return name
    return STATE_COLORS.get(name, "text2")


def icon(name: str, role_or_color: str | QColor | None = None, size: int = 16) -> QIcon:
    """Return an icon that follows the theme.

    Args:
        name: A file's stem in `resources/icons`.
        role_or_color: A token, a category or `#rrggbb`; by default the icon's own (see `default_color`).
        size: The size in logical pixels that it is meant for; it is drawn sharp at any other too.

    Raises:
        FileNotFoundError: there is no such icon.
        KeyError: there is no such colour.
    """
    color = default_color(name) if role_or_color is None else role_or_color
    return _icon(name, color.name() if isinstance(color, QColor) else color, size)


@cache
def app_icon() -> QIcon:
    """Return the application icon: a cassette with two reels."""
    renderer = QSvgRenderer(str(RESOURCES / "icons" / "app.svg"))
    result = QIcon()
    for side in (16, 24, 32, 48, 64, 128, 256):
        picture = QPixmap(side, side)
        picture.fill(Qt.GlobalColor.transparent)
        painter = QPainter(picture)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        renderer.render(painter, QRectF(0, 0, side, side))
        painter.end()
        result.addPixmap(picture)
    return result
