"""Place an overlay on a widget where it covers nothing clickable."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from PySide6.QtCore import QPoint, QRect, QSize, Qt
from PySide6.QtWidgets import (
    QAbstractButton,
    QAbstractSlider,
    QAbstractSpinBox,
    QComboBox,
    QLabel,
    QLineEdit,
    QTabBar,
    QWidget,
)

from app.views.ui.graphview.minimap import Minimap
from app.views.ui.widgets.banner import Banner
from app.views.ui.widgets.empty import EmptyState
from app.views.ui.widgets.toast import Toast

# n×4: left, top, right, bottom in pixels of the host
Rects: TypeAlias = NDArray[np.float64]


class Legend(QWidget):
    """An overlay that explains what is drawn: messages leave it in sight, unless they would cover nodes instead."""


CONTROLS = (
    QAbstractButton,
    QAbstractSlider,
    QAbstractSpinBox,
    QComboBox,
    QLineEdit,
    QTabBar,
    Minimap,
)
OVERLAYS = (Banner, Toast)
STRIDE = 8  # pixels from one place that is tried to the next
EDGE = 0.2  # of the height of a page: an overlay further from its edges lies in the middle of the graph
AMID, FINE = (
    0.5,
    0.01,
)  # weights of a place amid the work, and of its distance from the edge
WORSE, LEGEND = (
    1000.0,
    0.75,
)  # weights of a covered control and of a covered legend or text, in nodes


def free_place(
    host: QWidget, sizes: Sequence[QSize], margin: int, occupied: Sequence[QRect] = ()
) -> QRect:
    """Return the area of an overlay on `host` that covers the least: no control, few nodes and words. Of several sizes
    the first that covers no more than the others.

    From the bottom right upwards, then at the left and in the middle; where there are several sizes, close to the upper
    or lower edge of the page. What is `occupied` is avoided like a control.
    """
    controls = np.concatenate([_areas(host, _controls(host)), _rects(occupied)])
    nodes, page = _nodes(host), _page(host)
    legends = np.concatenate(
        [
            _areas(
                host,
                [legend for legend in host.findChildren(Legend) if legend.isVisible()],
            ),
            _texts(host),
        ]
    )
    candidates: list[tuple[float, QRect]] = []
    for size in sizes:
        left, right = margin, max(host.width() - margin - size.width(), margin)
        bottom = max(host.height() - margin - size.height(), margin)
        tops = np.arange(bottom, margin - 1, -STRIDE, dtype=np.float64)
        corners = np.array(
            [(x, y) for x in (right, left, (left + right) // 2) for y in tops]
        )
        areas = np.hstack([corners, corners + [size.width(), size.height()]])
        covered = (
            WORSE * _covered(areas, controls)
            + _covered(areas, nodes)
            + LEGEND * _covered(areas, legends)
        )
        if len(sizes) > 1:
            inwards = np.minimum(
                areas[:, 1] - page.top(), page.bottom() - areas[:, 3]
            ) / max(page.height(), 1)
            covered += np.where(inwards > EDGE, AMID, 0.0) + inwards.clip(0, 0.5) * FINE
        best = covered.argmin()
        candidates.append(
            (
                float(round(covered[best] / AMID) * AMID),
                QRect(QPoint(*(int(coordinate) for coordinate in corners[best])), size),
            )
        )
    return min(candidates, key=lambda candidate: candidate[0])[1]


def _controls(host: QWidget) -> list[QWidget]:
    """Return the visible controls in `host`, without its own overlays, and other overlays over it."""
    overlays = [
        widget
        for kind in OVERLAYS
        for widget in host.findChildren(
            kind, options=Qt.FindChildOption.FindDirectChildrenOnly
        )
    ]
    controls: list[QWidget] = [
        widget
        for kind in OVERLAYS
        for widget in host.window().findChildren(kind)
        if widget not in overlays
    ]
    for kind in CONTROLS:
        controls += [
            widget
            for widget in host.findChildren(kind)
            if not any(overlay.isAncestorOf(widget) for overlay in overlays)
        ]
    return [widget for widget in controls if widget.isVisible()]


def _areas(host: QWidget, widgets: Sequence[QWidget]) -> Rects:
    """Return the areas of widgets of the same window in pixels of `host`."""
    corner = host.mapTo(host.window(), QPoint(0, 0))
    return _rects(
        [
            QRect(widget.mapTo(host.window(), QPoint(0, 0)) - corner, widget.size())
            for widget in widgets
        ]
    )


def _rects(areas: Sequence[QRect]) -> Rects:
    return np.array([_corners(area) for area in areas], np.float64).reshape(-1, 4)


def _texts(host: QWidget) -> Rects:
    """Return the areas of the texts in sight on a page, without those of overlays and of empty pages."""
    apart = [
        widget
        for kind in (*OVERLAYS, EmptyState, Legend)
        for widget in host.findChildren(kind)
    ]
    labels = [
        widget
        for widget in host.findChildren(QLabel)
        if widget.isVisible()
        and widget.text()
        and not any(ancestor.isAncestorOf(widget) for ancestor in apart)
    ]
    written = [
        min(widget.fontMetrics().horizontalAdvance(widget.text()), widget.width())
        for widget in labels
    ]
    return _rects(
        [
            QRect(widget.mapTo(host, QPoint(0, 0)), QSize(width, widget.height()))
            for widget, width in zip(labels, written, strict=True)
        ]
    )


def _nodes(host: QWidget) -> Rects:
    """Return the areas of the nodes in sight, as the map of their graph knows them, and of what empty pages say."""
    areas = [np.empty((0, 4))]
    for minimap in host.findChildren(Minimap):
        corner = minimap.view.mapTo(host, QPoint(0, 0))
        if minimap.view.isVisible():
            areas.append(
                minimap.nodes_in_view()
                + [corner.x(), corner.y(), corner.x(), corner.y()]
            )
    for empty in host.findChildren(EmptyState):
        if empty.isVisible():
            area = QRect(
                empty.mapTo(host, empty.childrenRect().topLeft()),
                empty.childrenRect().size(),
            )
            areas.append(np.array([_corners(area)], np.float64))
    return np.concatenate(areas)


def _page(host: QWidget) -> QRect:
    """Return the area of the graph in sight, else of all of `host`."""
    views = [
        minimap.view
        for minimap in host.findChildren(Minimap)
        if minimap.view.isVisible()
    ]
    return (
        QRect(views[0].mapTo(host, QPoint(0, 0)), views[0].size())
        if views
        else host.rect()
    )


def _corners(rect: QRect) -> tuple[float, float, float, float]:
    return (
        rect.left(),
        rect.top(),
        rect.left() + rect.width(),
        rect.top() + rect.height(),
    )


def _covered(areas: Rects, others: Rects) -> Rects:
    """Return how many of the others each area touches."""
    a, b = areas[:, None], others[None]
    apart = (
        (a[..., 0] >= b[..., 2])
        | (b[..., 0] >= a[..., 2])
        | (a[..., 1] >= b[..., 3])
        | (b[..., 1] >= a[..., 3])
    )
    counts: Rects = (~apart).sum(axis=1).astype(np.float64)
    return counts
