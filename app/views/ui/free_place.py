"""Place an overlay on a widget where it covers nothing clickable."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

from PySide6.QtCore import QPoint, QRect, QSize
from PySide6.QtWidgets import QAbstractButton, QAbstractSlider, QAbstractSpinBox, QComboBox, QLineEdit, QTabBar, QWidget

from app.util.late_numpy import np
from app.views.ui.graphview.minimap import Minimap

if TYPE_CHECKING:
    from numpy.typing import NDArray

Rects: TypeAlias = "NDArray[np.float64]"  # n×4: left, top, right, bottom in pixels of the host
CONTROLS = (QAbstractButton, QAbstractSlider, QAbstractSpinBox, QComboBox, QLineEdit, QTabBar, Minimap)
STRIDE = 8  # pixels from one place that is tried to the next
WORSE = 1000.0  # weight of a covered control, in nodes


def free_place(host: QWidget, size: QSize, margin: int, taken: Sequence[QRect] = ()) -> QRect:
    """Return the position of an overlay of `size` on `host` that covers the least: no control, few nodes.

    From the bottom right upwards, then at the left and in the middle. What is `taken` is avoided like a control.
    """
    left, right = margin, max(host.width() - margin - size.width(), margin)
    bottom = max(host.height() - margin - size.height(), margin)
    tops = np.arange(bottom, margin - 1, -STRIDE, dtype=np.float64)
    places = np.array([(x, y) for x in (right, left, (left + right) // 2) for y in tops])
    areas = np.hstack([places, places + [size.width(), size.height()]])
    controls = [*_controls(host), *taken]
    covered = WORSE * _covered(areas, np.array([_corners(one) for one in controls]).reshape(-1, 4))
    covered += _covered(areas, _nodes(host))
    return QRect(QPoint(*(int(one) for one in places[covered.argmin()])), size)


def _controls(host: QWidget) -> list[QRect]:
    """Return the areas of the visible controls, without overlays on `host` itself."""
    found = []
    for kind in CONTROLS:
        for one in host.findChildren(kind):
            if one.isVisible():
                found.append(QRect(one.mapTo(host, QPoint(0, 0)), one.size()))
    return found


def _nodes(host: QWidget) -> Rects:
    """Return the areas of the nodes in sight, as the map of their graph knows them."""
    seen = [np.empty((0, 4))]
    for one in host.findChildren(Minimap):
        corner = one.view.mapTo(host, QPoint(0, 0))
        if one.view.isVisible():
            seen.append(one.nodes_in_view() + [corner.x(), corner.y(), corner.x(), corner.y()])
    return np.concatenate(seen)


def _corners(rect: QRect) -> tuple[float, float, float, float]:
    return rect.left(), rect.top(), rect.left() + rect.width(), rect.top() + rect.height()


def _covered(areas: Rects, others: Rects) -> Rects:
    """Return how many of the others each area touches."""
    a, b = areas[:, None], others[None]
    apart = (a[..., 0] >= b[..., 2]) | (b[..., 0] >= a[..., 2]) | (a[..., 1] >= b[..., 3]) | (b[..., 1] >= a[..., 3])
    counts: Rects = (~apart).sum(axis=1).astype(np.float64)
    return counts
