"""The line of a series in a chart."""

from __future__ import annotations

import numpy as np
import pyqtgraph as pg
from PySide6.QtCore import QPointF, Qt
from PySide6.QtGui import QColor, QPainter, QPen
from PySide6.QtWidgets import QStyleOptionGraphicsItem, QWidget

from app.views.training.charts.plot import PlotLayer, StepPlot
from app.views.training.charts.series import Floats
from app.views.ui import theme

FAR = 10_000.0  # pixels outside of the view that a line is drawn to at most: the rasteriser counts in 32 bits
ALONE = 6.0  # pixels across a single value, which makes no line
CLEAR = 0.62  # the least opacity in a theme of high contrast


class Curve(PlotLayer):
    """A line of one series, broken where it is not finite; series -1 has the colour of text.

    It is computed in pixels when painted, and kept as a picture until it changes: the cursor moves over it. pyqtgraph's
    own item is transformed with the view's ranges, which costs more than the line itself and requests another repaint
    of the chart during a repaint.
    """

    def __init__(
        self,
        plot: StepPlot,
        series: int,
        width: float = 1.0,
        opacity: float = 1.0,
        *,
        dashed: bool = False,
        smooth: bool = True,
    ) -> None:
        super().__init__(plot, 0)
        self._series, self._width, self._opacity, self._dashed, self._smooth = (
            series,
            width,
            opacity,
            dashed,
            smooth,
        )
        self._x: Floats = np.empty(0)
        self._y: Floats = np.empty(0)
        self._level: float | None = None
        self._share = 0.0
        self.restyle()
        plot.curves.append(self)
        plot.view.sigRangeChanged.connect(self._range_changed)

    def _range_changed(self, _view: object, _ranges: object, _changed: object) -> None:
        self.update()

    @property
    def color(self) -> QColor:
        return (
            theme.current().series[self._series]
            if self._series >= 0
            else theme.current().text
        )

    def restyle(self) -> None:
        """Take the colour from the theme in force."""
        self._pen = QPen(
            theme.faded(
                self.color,
                max(self._opacity, CLEAR)
                if theme.current().contrast
                else self._opacity,
            ),
            self._width * theme.manager().strokes,
        )
        self._pen.setJoinStyle(Qt.PenJoinStyle.RoundJoin)
        if self._dashed:
            self._pen.setDashPattern([5, 3])
        self.update()

    def fill_to(self, level: float, opacity: float) -> None:
        """Fill down to `level`, in the view's y."""
        if (level, opacity) != (self._level, self._share):
            self._level, self._share = level, opacity
            self.update()

    def set_points(self, x: Floats, y: Floats) -> None:
        """Set the points in the view's x and y, both of shape (points,)."""
        if len(x) or len(self._x):
            self._x, self._y = x, y
            cache_mode = (
                self.CacheMode.DeviceCoordinateCache
                if len(x)
                else self.CacheMode.NoCache
            )
            if self.cacheMode() != cache_mode:
                self.setCacheMode(cache_mode)
            self.update()

    def clear(self) -> None:
        self.set_points(np.empty(0), np.empty(0))

    def points(self) -> tuple[Floats, Floats]:
        return self._x, self._y

    def paint(
        self,
        painter: QPainter,
        option: QStyleOptionGraphicsItem,
        widget: QWidget | None = None,
    ) -> None:
        if not len(self._x):
            return
        rect = self.boundingRect()
        (x0, x1), (y0, y1) = self._plot.view.viewRange()
        scale = rect.height() / (y1 - y0)
        x = np.clip(
            rect.left() + (self._x - x0) * (rect.width() / (x1 - x0)), -FAR, FAR
        )
        y = np.clip(rect.bottom() - (self._y - y0) * scale, -FAR, FAR)
        path = pg.arrayToQPath(x, y, connect="finite", finiteCheck=True)
        painter.setClipRect(rect)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing, self._smooth)
        if self._level is not None:
            floor = np.clip(rect.bottom() - (self._level - y0) * scale, -FAR, FAR)
            below = pg.arrayToQPath(
                np.concatenate([x, x[[-1, 0]]]), np.concatenate([y, [floor, floor]])
            )
            painter.fillPath(below, theme.faded(self.color, self._share))
        painter.setPen(self._pen)
        painter.drawPath(path)
        if len(x) == 1 and np.isfinite(y[0]):
            painter.setPen(
                QPen(
                    self._pen.color(),
                    ALONE,
                    Qt.PenStyle.SolidLine,
                    Qt.PenCapStyle.RoundCap,
                )
            )
            painter.drawPoint(QPointF(x[0], y[0]))
