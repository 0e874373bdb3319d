"""The page "Playground": the plane, coloured by what the net says of it, with the points, and one map a unit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from PySide6.QtCore import QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QColor, QFontMetrics, QImage, QPainter, QPaintEvent, QPixmap
from PySide6.QtWidgets import QScrollArea, QStackedWidget, QWidget

from app.features.playground.values import LOGIT, PROBABILITY, SCORES, Plane
from app.util.formatting import significant
from app.views.ui import theme
from app.views.ui.layouts import hbox, vbox
from app.views.ui.widgets import ChoiceField, EmptyState, Toggle
from app.views.ui.widgets.painting import label

LEFT, BOTTOM, GAP = 46, 26, 10  # px around the map
POINT = 3.2  # radius of a point, px
UNIT = 84  # px of the map of a unit
COARSE = 2  # a map of a unit has every second point of the grid
FAINT, STRONG = (
    0.15,
    0.75,
)  # share of a class's colour where the net is unsure, and sure
NOTHING = (
    "No plane yet",
    "Run the network, or wait for its weights: each point of the plane gets the colour of the class that the net sees "
    "there.",
)


def class_image(plane: Plane, colors: Sequence[QColor], ground: QColor) -> QImage:
    """Return the map of the outputs: the colours of the classes, stronger where the net is surer; values from the
    first colour to the second."""
    shares = class_shares(plane)
    palette = np.array([_rgb(color) for color in colors])
    palette = palette[np.arange(shares.shape[-1]) % len(palette)]
    mixed = shares @ palette
    count = shares.shape[-1]
    sure = (shares.max(-1, keepdims=True) - 1 / count) / (1 - 1 / count)
    share = FAINT + (STRONG - FAINT) * sure
    return _image(_rgb(ground) * (1 - share) + mixed * share)


def class_shares(plane: Plane) -> Any:
    """Return the share of each class at each point of the grid, (size, size, classes); of a value how high it is."""
    outputs = np.asarray(plane.outputs, dtype=np.float64)
    if plane.kind == SCORES:
        raised = np.exp(outputs - outputs.max(-1, keepdims=True))
        shares: Any = raised / raised.sum(-1, keepdims=True)
        return shares
    first = outputs[..., :1]
    if plane.kind == LOGIT:
        first = 1 / (1 + np.exp(-np.clip(first, -60, 60)))
    elif plane.kind == PROBABILITY:
        first = np.clip(first, 0, 1)
    else:
        low, high = _range(first, plane.labels)
        first = np.clip((first - low) / (high - low), 0, 1)
    return np.concatenate([1 - first, first], axis=-1)


def unit_images(units: Any, colors: Sequence[QColor], ground: QColor) -> list[QImage]:
    """Return the map of each unit: above 0 in the second colour, below in the first, as strong as it is large."""
    values = np.nan_to_num(np.asarray(units[::COARSE, ::COARSE], dtype=np.float32))
    values = np.moveaxis(values, -1, 0)
    most = np.maximum(np.abs(values).max((1, 2), keepdims=True), 1e-12)
    share = (np.abs(values) / most)[..., None] * STRONG
    color = np.where(values[..., None] >= 0, _rgb(colors[1]), _rgb(colors[0]))
    return [_image(image) for image in _rgb(ground) * (1 - share) + color * share]


def _range(values: Any, labels: Any) -> tuple[float, float]:
    low = float(min(np.min(values), np.min(labels)))
    high = float(max(np.max(values), np.max(labels)))
    return (low, high) if high > low else (low, low + 1.0)


def _rgb(color: QColor) -> Any:
    return np.array([color.red(), color.green(), color.blue()], dtype=np.float64)


def _image(colors: Any) -> QImage:
    """Return an image whose first row is the last one of an array (height, width, 3) of 0 to 255."""
    data = np.ascontiguousarray(colors[::-1].round().clip(0, 255).astype(np.uint8))
    height, width = data.shape[:2]
    return QImage(
        data.tobytes(), width, height, 3 * width, QImage.Format.Format_RGB888
    ).copy()


class PlaneView(QWidget):
    """The map with its axes and points."""

    def __init__(self) -> None:
        super().__init__()
        self.plane: Plane | None = None
        self.shows_points = True
        self._names = ("", "")
        self._image: QImage | None = None
        self._points = QPixmap()
        self._points_look: tuple[Any, ...] = ()
        self.setMinimumSize(220, 180)
        self.setAccessibleName("Decision surface")
        theme.manager().changed.connect(self._draw)

    def show_plane(self, plane: Plane | None, names: tuple[str, str]) -> None:
        """Show a plane; `names` are those of its axes."""
        self.plane, self._names = plane, names
        self._draw()
        if plane is not None:
            classes = ", ".join(plane.classes[:8])
            self.setAccessibleDescription(
                f"{names[0]} by {names[1]}, {len(plane.points)} points"
                + (f" of {classes}" if classes else "")
            )

    def _draw(self) -> None:
        now = theme.current()
        self._image = (
            class_image(self.plane, now.series, now.plot)
            if self.plane is not None
            else None
        )
        self.update()

    def sizeHint(self) -> QSize:
        return QSize(520, 460)

    def map_rect(self) -> QRectF:
        """The square of the map."""
        side = max(
            40.0,
            min(self.width() - LEFT - GAP, self.height() - BOTTOM - GAP),
        )
        left = LEFT + max(0.0, (self.width() - LEFT - GAP - side) / 2)
        return QRectF(left, GAP, side, side)

    def paintEvent(self, _event: QPaintEvent) -> None:
        if self.plane is None or self._image is None:
            return
        now, rect = theme.current(), self.map_rect()
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.SmoothPixmapTransform)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.drawImage(rect, self._image)
        if self.shows_points:
            painter.drawPixmap(rect.topLeft(), self._points_picture(rect))
        painter.setPen(now.line3)
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.drawRect(rect)
        self._paint_axes(painter, rect)
        painter.end()

    def _points_picture(self, rect: QRectF) -> QPixmap:
        """Return the points, which are painted again where they, the size or the theme changed."""
        plane, now = self.plane, theme.current()
        assert plane is not None
        look = (rect.size(), now.name, plane.low, plane.high, plane.points.tobytes())
        if look != self._points_look:
            self._points_look, ratio = look, self.devicePixelRatioF()
            self._points = QPixmap((rect.size() * ratio).toSize())
            self._points.setDevicePixelRatio(ratio)
            self._points.fill(Qt.GlobalColor.transparent)
            painter = QPainter(self._points)
            painter.setRenderHint(QPainter.RenderHint.Antialiasing)
            painter.setPen(now.plot)
            low, high = np.array(plane.low), np.array(plane.high)
            places = (np.asarray(plane.points) - low) / (high - low)
            colors = self._point_colors(plane)
            for (x, y), color in zip(places.tolist(), colors, strict=True):
                painter.setBrush(color)
                center = QPointF(x * rect.width(), (1 - y) * rect.height())
                painter.drawEllipse(center, POINT, POINT)
            painter.end()
        return self._points

    def _point_colors(self, plane: Plane) -> list[QColor]:
        series, labels = theme.current().series, np.asarray(plane.labels)
        if plane.kind in (SCORES, LOGIT, PROBABILITY):
            return [series[int(label) % len(series)] for label in labels.tolist()]
        low, high = _range(plane.outputs[..., 0], labels)
        return [
            theme.mix(series[0], series[1], (value - low) / (high - low))
            for value in labels.tolist()
        ]

    def _paint_axes(self, painter: QPainter, rect: QRectF) -> None:
        plane, now = self.plane, theme.current()
        assert plane is not None
        font = theme.font("axis")
        metrics = QFontMetrics(font)
        painter.setFont(font)
        painter.setPen(now.text3)
        (left, low), (right, high) = plane.shown_low, plane.shown_high
        ends = [significant(value, 3) for value in (left, right, low, high)]
        under = rect.bottom() + metrics.height()
        painter.drawText(QPointF(rect.left(), under), ends[0])
        width = metrics.horizontalAdvance(ends[1])
        painter.drawText(QPointF(rect.right() - width, under), ends[1])
        name = metrics.elidedText(
            self._names[0], Qt.TextElideMode.ElideRight, int(rect.width() / 2)
        )
        middle = rect.center().x() - metrics.horizontalAdvance(name) / 2
        painter.drawText(QPointF(middle, under), name)
        for text, y in (
            (ends[3], rect.top() + metrics.ascent()),
            (ends[2], rect.bottom()),
        ):
            painter.drawText(
                QPointF(rect.left() - 6 - metrics.horizontalAdvance(text), y), text
            )
        painter.save()
        painter.translate(rect.left() - 10, rect.center().y())
        painter.rotate(-90)
        name = metrics.elidedText(
            self._names[1], Qt.TextElideMode.ElideRight, int(rect.height() / 2)
        )
        painter.drawText(QPointF(-metrics.horizontalAdvance(name) / 2, 0), name)
        painter.restore()


class UnitsView(QWidget):
    """A small map for each unit of a layer."""

    def __init__(self) -> None:
        super().__init__()
        self._units: Any = None
        self._images: list[QImage] = []
        self.setAccessibleName("Units of the layer")
        theme.manager().changed.connect(self._draw)

    def show_units(self, units: Any) -> None:
        """Show the outputs (size, size, U) of the units, None for none."""
        self._units = units
        self._draw()
        count = 0 if units is None else units.shape[-1]
        self.setAccessibleDescription(f"{count} units")

    def _draw(self) -> None:
        now, units = theme.current(), self._units
        self._images = [] if units is None else unit_images(units, now.series, now.plot)
        self.setMinimumHeight(self._rows() * (UNIT + GAP))
        self.update()

    @property
    def _across(self) -> int:
        return max(1, (self.width() + GAP) // (UNIT + GAP))

    def _rows(self) -> int:
        return math.ceil(len(self._images) / self._across)

    def paintEvent(self, _event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.SmoothPixmapTransform)
        painter.setPen(theme.current().line3)
        for number, image in enumerate(self._images):
            row, column = divmod(number, self._across)
            rect = QRectF(column * (UNIT + GAP), row * (UNIT + GAP), UNIT, UNIT)
            painter.drawImage(rect, image)
            painter.drawRect(rect)
        painter.end()


class PlaygroundPage(QStackedWidget):
    """The plane, and beside it the units of a chosen layer."""

    def __init__(self) -> None:
        super().__init__()
        self._has_layers = False  # once there were some, the choice is the user's
        self.view = PlaneView()
        self.units = UnitsView()
        self.layer = ChoiceField([("", "No layer")], "", pairs=True)
        self.layer.setAccessibleName("Layer whose units are shown")
        self.points = Toggle("Points")
        self.points.set_value(True)
        self.points.edited.connect(self._show_points)
        self.note = label("", "caption", "text3")
        self.empty = EmptyState("curves", *NOTHING)
        area = QScrollArea()
        area.setWidgetResizable(True)
        area.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        area.setWidget(self.units)
        area.setMinimumWidth(2 * (UNIT + GAP) + 12)  # with the scroll bar
        side = vbox(
            label("Units of", "caption", "text3"), self.layer, (area, 1), spacing=6
        )
        head = hbox(self.note, 1, self.points, spacing=8)
        left = vbox(head, (self.view, 1), spacing=4)
        inside = QWidget()
        hbox((left, 3), (side, 1), on=inside, margins=12, spacing=16)
        self.addWidget(self.empty)
        self.addWidget(inside)

    def _show_points(self, on: bool) -> None:
        self.view.shows_points = on
        self.view.update()

    def show_plane(self, plane: Plane, names: tuple[str, str], weights: str) -> None:
        """Show a plane; `weights` says whose it is."""
        self.setCurrentIndex(1)
        self.note.setText(weights)
        self.view.show_plane(plane, names)
        self.units.show_units(plane.units)

    def show_reason(self, title: str, reason: str) -> None:
        """Show why there is no plane."""
        self.empty.set_text(title, reason)
        self.setCurrentIndex(0)

    def set_layers(self, paths: Sequence[str]) -> None:
        """Offer the layers of the net, the first one at first; one that is gone is no longer chosen."""
        chosen = self.layer.value()
        if self.layer.choices() == ("", *paths):
            return
        self.layer.clear_choices()
        self.layer.add_choice("", "No layer")
        for path in paths:
            self.layer.add_choice(path)
        is_first = not self._has_layers and bool(paths)
        self._has_layers = self._has_layers or bool(paths)
        self.layer.set_value(
            paths[0] if is_first else chosen if chosen in paths else ""
        )
