"""The network's output: a bar per class, the input as the network receives it, and feature maps of layers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from PySide6.QtCore import QRectF, QSize, Qt
from PySide6.QtGui import QFontMetricsF, QImage, QPainter, QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from app.training.evaluation.result import Picture
from app.util.formatting import in_units
from app.views.run.picture_grid import image_of
from app.views.ui import theme
from app.views.ui.widgets.painting import announce, start

MOST, HEIGHT = 10, 21
TILE, SPACE = 40, 4


class Bars(QWidget):
    """A bar for each class in the order of the classes; of many classes the likeliest alone."""

    def __init__(self) -> None:
        super().__init__()
        self._names: tuple[str, ...] = ()
        self._values: NDArray[np.float32] = np.zeros(0, np.float32)
        self._unit = True
        self._called = ""
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Expanding)
        self.setMinimumSize(180, 120)
        self.setAccessibleName("Model output")
        theme.manager().changed.connect(self.update)

    def sizeHint(self) -> QSize:
        return QSize(300, MOST * HEIGHT + 8)

    @property
    def called(self) -> str:
        """The class with the longest bar, "" for none."""
        return self._called

    def show_values(
        self, names: tuple[str, ...], values: NDArray[np.float32], unit: bool
    ) -> None:
        """`unit`: the values are shares of 1; otherwise bars are drawn from the least to the greatest."""
        self._names, self._values, self._unit = names, values, unit
        called = self._name(int(values.argmax())) if len(values) and names else ""
        if called != self._called:
            self._called = called
            announce(self, called)
        self.update()

    def _name(self, number: int) -> str:
        return self._names[number] if number < len(self._names) else f"output {number}"

    def _order(self) -> list[int]:
        if len(self._values) <= MOST + 2:
            return list(range(len(self._values)))
        return np.argsort(-self._values, kind="stable")[:MOST].tolist()

    def paintEvent(self, _event: QPaintEvent) -> None:
        if not len(self._values):
            return
        painter, look = start(self), theme.current()
        painter.setFont(theme.font("label"))
        metrics, order = QFontMetricsF(painter.font()), self._order()
        height = min(HEIGHT, self.height() / len(order))
        left = (
            min(
                max(metrics.horizontalAdvance(self._name(number)) for number in order),
                110,
            )
            + 10
        )
        right = (
            metrics.horizontalAdvance("100.0 %" if self._unit else "-0.0000e+00") + 8
        )
        room = max(self.width() - left - right, 20)
        best = int(self._values.argmax())
        low, high = (
            (0.0, 1.0)
            if self._unit
            else (min(float(self._values.min()), 0.0), float(self._values.max()))
        )
        for row, number in enumerate(order):
            value, top = float(self._values[number]), row * height
            share = (value - low) / (high - low) if high > low else 0.0
            painter.setPen(look.text if number == best else look.text2)
            side = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
            name = metrics.elidedText(
                self._name(number), Qt.TextElideMode.ElideRight, left - 10
            )
            painter.drawText(QRectF(0, top, left - 8, height), side, name)
            text = f"{100 * value:.1f} %" if self._unit else in_units(value)
            painter.drawText(
                QRectF(self.width() - right, top, right - 2, height), side, text
            )
            painter.setPen(Qt.PenStyle.NoPen)
            track = QRectF(left, top + height * 0.2, room, height * 0.6)
            painter.setBrush(look.hover)
            painter.drawRoundedRect(track, 2, 2)
            painter.setBrush(look.accentFill if number == best else look.line3)
            bar = QRectF(
                track.left(),
                track.top(),
                max(room * min(max(share, 0), 1), 1.0),
                track.height(),
            )
            painter.drawRoundedRect(bar, 2, 2)
        painter.end()


class LayerPictures(QWidget):
    """Feature maps of the first layers, a row per layer, each scaled to its own minimum and maximum."""

    def __init__(self) -> None:
        super().__init__()
        self._layers: list[tuple[str, list[QImage]]] = []
        self.setMinimumWidth(120)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Expanding)
        self.setAccessibleName("Activations of the first layers")
        theme.manager().changed.connect(self.update)

    def sizeHint(self) -> QSize:
        return QSize(8 * (TILE + SPACE), 240)

    def show_layers(self, layers: tuple[tuple[str, tuple[Picture, ...]], ...]) -> None:
        self._layers = [
            (name, [image_of(pixels) for pixels in maps]) for name, maps in layers
        ]
        self.update()

    def paintEvent(self, _event: QPaintEvent) -> None:
        painter, look = start(self), theme.current()
        painter.setFont(theme.font("caption"))
        painter.setRenderHint(QPainter.RenderHint.SmoothPixmapTransform, False)
        high = QFontMetricsF(painter.font()).height()  # of a name
        lines = max(min(len(self._layers), int(self.height() // (TILE + high + 3))), 1)
        for line, (name, maps) in enumerate(self._layers[:lines]):
            top = line * (TILE + high + 3)
            painter.setPen(look.text3)
            painter.drawText(
                QRectF(0, top, self.width(), high), Qt.AlignmentFlag.AlignLeft, name
            )
            for column, image in enumerate(maps):
                if (column + 1) * (TILE + SPACE) <= self.width() + SPACE:
                    painter.drawImage(
                        QRectF(column * (TILE + SPACE), top + high, TILE, TILE),
                        image,
                    )
        painter.end()


class InputPicture(QWidget):
    """The input as the network receives it."""

    def __init__(self) -> None:
        super().__init__()
        self._image: QImage | None = None
        self.setFixedSize(92, 92)
        self.setAccessibleName("Model input")
        theme.manager().changed.connect(self.update)

    def show_picture(self, pixels: Picture | None) -> None:
        self._image = image_of(pixels) if pixels is not None else None
        self.update()

    def paintEvent(self, _event: QPaintEvent) -> None:
        painter, look = start(self), theme.current()
        area = QRectF(self.rect())
        painter.fillRect(area, look.sunken)
        if self._image is not None:
            scale = area.width() / max(self._image.width(), self._image.height())
            width, height = self._image.width() * scale, self._image.height() * scale
            painter.setRenderHint(QPainter.RenderHint.SmoothPixmapTransform, scale < 1)
            painter.drawImage(
                QRectF(
                    (area.width() - width) / 2,
                    (area.height() - height) / 2,
                    width,
                    height,
                ),
                self._image,
            )
        painter.setPen(look.line2)
        painter.drawRect(area.adjusted(0.5, 0.5, -0.5, -0.5))
        painter.end()
