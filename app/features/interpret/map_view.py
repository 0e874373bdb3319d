"""One head at size: its weights with the axes of queries and keys, and what one query looks at on the picture."""

from __future__ import annotations

import math

import numpy as np
from PySide6.QtCore import QPointF, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QImage, QKeyEvent, QMouseEvent, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QSizePolicy, QWidget

from app.features.interpret.head_grid import heat_image
from app.features.interpret.values import AttentionReading, SampleLook
from app.util.language import marked, tr
from app.views.run.picture_grid import heat_colors, image_of
from app.views.ui import theme
from app.views.ui.widgets.painting import elided, start

LEFT, TOP = 58, 22  # of the axes, at the design's text size


class MapView(QWidget):
    """`chosen(query)` comes when a row of the map is clicked, or reached with the arrow keys."""

    chosen = Signal(int)

    def __init__(self) -> None:
        super().__init__()
        self._values: np.ndarray | None = None
        self._image: QImage | None = None
        self._labels: tuple[str, ...] = ()
        self._pooled = 1
        self.query = 0
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Preferred)
        self.setAccessibleName("Attention map: queries by keys")
        theme.manager().changed.connect(self.update)

    def show_head(
        self,
        reading: AttentionReading | None,
        group: int,
        head: int,
        labels: tuple[str, ...],
    ) -> None:
        """Show the map of a head; `labels` name the tokens, () where they have none."""
        self._values = (
            reading.maps[group, head]
            if reading is not None and reading.maps is not None
            else None
        )
        self._image = heat_image(self._values) if self._values is not None else None
        self._pooled = reading.pooled if reading is not None else 1
        same = reading is not None and reading.queries == reading.keys == len(labels)
        self._labels = labels if same and self._pooled == 1 else ()
        rows = len(self._values) if self._values is not None else 1
        self.query = min(self.query, rows - 1)
        self.update()

    @staticmethod
    def _axes() -> tuple[int, int]:
        """Return the room left of the map and above it."""
        scale = theme.manager().scale
        return round(LEFT * scale), round(TOP * scale)

    def _area(self) -> QRectF:
        rows, columns = self._values.shape if self._values is not None else (1, 1)
        left, top = self._axes()
        wide, high = self.width() - left - 6, self.height() - top - 6
        scale = max(min(wide / columns, high / rows), 0.01)
        return QRectF(left, top, columns * scale, rows * scale)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        area = self._area()
        if self._values is not None and area.contains(event.position()):
            self._choose(
                int(
                    (event.position().y() - area.top())
                    / area.height()
                    * len(self._values)
                )
            )

    def keyPressEvent(self, event: QKeyEvent) -> None:
        step = {Qt.Key.Key_Up: -1, Qt.Key.Key_Down: 1}.get(Qt.Key(event.key()), 0)
        if step and self._values is not None:
            self._choose(self.query + step)
        else:
            super().keyPressEvent(event)

    def _choose(self, query: int) -> None:
        if self._values is not None:
            self.query = min(max(query, 0), len(self._values) - 1)
            self.update()
            self.chosen.emit(self.query)

    def sizeHint(self) -> QSize:
        return QSize(180, 120)

    def minimumSizeHint(self) -> QSize:
        return QSize(150, 100)

    def paintEvent(self, _event: QPaintEvent) -> None:
        if self._values is None or self._image is None:
            return
        left, _top = self._axes()
        painter, look, area = start(self), theme.current(), self._area()
        rows, columns = self._values.shape
        painter.setRenderHint(
            QPainter.RenderHint.SmoothPixmapTransform, columns > area.width()
        )
        painter.drawImage(area, self._image)
        elided("keys", "caption", area.width()).draw(
            painter, area.left(), 3, look.text3
        )
        elided("queries", "caption", left - 8).draw(painter, 2, 3, look.text3)
        unit = area.height() / rows
        every = max(math.ceil(14 / unit), 1)
        for row in range(0, rows, every):
            name = self._labels[row] if self._labels else str(row * self._pooled)
            line = QRectF(
                0,
                area.top() + row * unit,
                left - 8,
                unit * every if unit < 14 else unit,
            )
            text = elided(name, "axis", left - 8)
            text.draw_in(
                painter,
                left - 6 - text.width,
                QRectF(line.left(), line.top(), line.width(), max(unit, 1)),
                look.text2 if row == self.query else look.text3,
            )
        step, first = (
            area.width() / columns,
            elided("keys", "caption", area.width()).width + 8,
        )
        every = max(math.ceil(26 / step), 1)
        for column in range(every if columns > 3 else 0, columns, every):
            name = self._labels[column] if self._labels else str(column * self._pooled)
            text = elided(name, "axis", max(every * step - 4, 10))
            text_left = area.left() + (column + 0.5) * step - text.width / 2
            if (
                text_left > area.left() + first
                and text_left + text.width < self.width()
            ):
                text.draw(painter, text_left, 3, look.text3)
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.setPen(QPen(look.accent, 2 if self.hasFocus() else 1.5))
        painter.drawRect(
            QRectF(
                area.left(), area.top() + self.query * unit, area.width(), max(unit, 2)
            )
        )
        painter.end()


class OverlayView(QWidget):
    """The picture of a sample, under a wash of values that lie over it."""

    def __init__(self) -> None:
        super().__init__()
        self._picture: QImage | None = None
        self._wash: QImage | None = None
        self._mark: QRectF | None = (
            None  # of the patch that looks, in shares of the picture
        )
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Preferred)
        self.setAccessibleName("Sample")
        theme.manager().changed.connect(self.update)

    @property
    def washed(self) -> bool:
        """Whether values lie over the picture."""
        return self._wash is not None

    def show_look(
        self,
        picture: np.ndarray | None,
        wash: QImage | None = None,
        mark: QRectF | None = None,
    ) -> None:
        """Show a picture (H, W, 3) of bytes, and values over it as an image with transparency."""
        self._picture = None if picture is None else image_of(picture)
        self._wash, self._mark = wash, mark
        self.setVisible(self._picture is not None)
        self.update()

    def sizeHint(self) -> QSize:
        return QSize(120, 96)

    def minimumSizeHint(self) -> QSize:
        return QSize(90, 90)

    def paintEvent(self, _event: QPaintEvent) -> None:
        if self._picture is None:
            return
        painter, look = start(self), theme.current()
        wide, high = self._picture.width(), self._picture.height()
        scale = min(self.width() / wide, self.height() / high)
        area = QRectF(0, 0, wide * scale, high * scale)
        painter.setRenderHint(QPainter.RenderHint.SmoothPixmapTransform, scale < 1)
        painter.drawImage(area, self._picture)
        if self._wash is not None:
            painter.setRenderHint(QPainter.RenderHint.SmoothPixmapTransform, False)
            painter.drawImage(area, self._wash)
        if self._mark is not None:
            mark = self._mark
            painter.setPen(QPen(look.accent, 2))
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.drawRect(
                QRectF(
                    QPointF(mark.left() * area.width(), mark.top() * area.height()),
                    QPointF(mark.right() * area.width(), mark.bottom() * area.height()),
                )
            )
        painter.end()


def attention_wash(
    reading: AttentionReading, group: int, head: int, query: int, sample: SampleLook
) -> tuple[QImage | None, QRectF | None, str]:
    """Return what a query looks at as an image over the picture, the patch of the query, and a sentence on both."""
    if sample.picture is None or reading.maps is None or reading.grid is None:
        text = tr("Head {head}.", head=head)
        if reading.groups > 1 and sample.picture is not None:
            text += f" {tr('Windows are not placed on the picture.')}"
        return None, None, text
    extra, rows, columns = reading.grid
    weights = reading.maps[group, head, query, extra:].reshape(rows, columns)
    share = weights / max(float(weights.max()), 1e-12)
    opacity = (40 + 170 * share).astype(np.uint8)
    wash = image_of(np.dstack([heat_colors(share), opacity]))
    patch = query - extra if reading.queries == reading.keys else -1
    if patch < 0:
        text = (
            marked(
                "Head {head}: what query {query}, a token before the patches, looks at."
            )
            if reading.queries == reading.keys
            else marked("Head {head}: what query {query} looks at.")
        )
        return wash, None, tr(text, head=head, query=query)
    mark = QRectF(
        patch % columns / columns, patch // columns / rows, 1 / columns, 1 / rows
    )
    text = tr(
        "Head {head}: what query {query}, patch {row}, {column}, looks at.",
        head=head,
        query=query,
        row=patch // columns,
        column=patch % columns,
    )
    return wash, mark, text
