"""The line of a series in a chart."""

from __future__ import annotations

import numpy as np
from PySide6.QtCore import QByteArray, QDataStream, Qt
from PySide6.QtGui import QColor, QPainter, QPainterPath, QPen

from app.views.training.charts.plot import PlotLayer, StepPlot
from app.views.training.charts.series import Floats
from app.views.ui import theme

FAR = 10_000.0  # pixels outside of the view that a line is drawn to at most: the rasteriser counts in 32 bits


class Curve(PlotLayer):
    """A line of one series, broken where it is not finite; series -1 has the colour of text.

    It is computed in pixels when painted.
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
        self._series, self._width, self._opacity, self._dashed, self._smooth = series, width, opacity, dashed, smooth
        self._x: Floats = np.empty(0)
        self._y: Floats = np.empty(0)
        self._level: float | None = None
        self._share = 0.0
        self.restyle()
        plot.curves.append(self)

    @property
    def color(self) -> QColor:
        return theme.current().series[self._series] if self._series >= 0 else theme.current().text

    def restyle(self) -> None:
        """Take the colour from the theme in force."""
        self._pen = QPen(theme.faded(self.color, self._opacity), self._width)
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
            self.update()

    def clear(self) -> None:
        self.set_points(np.empty(0), np.empty(0))

    def points(self) -> tuple[Floats, Floats]:
        return self._x, self._y

    def paint(self, painter: QPainter) -> None:
        if not len(self._x):
            return
        rect = self.rect()
        (x0, x1), (y0, y1) = self._plot.view.ranges()
        scale = rect.height() / (y1 - y0)
        x = np.clip(rect.left() + (self._x - x0) * (rect.width() / (x1 - x0)), -FAR, FAR)
        y = np.clip(rect.bottom() - (self._y - y0) * scale, -FAR, FAR)
        path = path_through(x, y)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing, self._smooth)
        if self._level is not None:
            floor = np.clip(rect.bottom() - (self._level - y0) * scale, -FAR, FAR)
            below = path_through(np.concatenate([x, x[[-1, 0]]]), np.concatenate([y, [floor, floor]]))
            painter.fillPath(below, theme.faded(self.color, self._share))
        painter.setPen(self._pen)
        painter.drawPath(path)


# A path as `QDataStream` writes it: elements, each of what it is, x and y.
ELEMENT = np.dtype([("kind", ">i4"), ("x", ">f8"), ("y", ">f8")])
MOVE, LINE = 0, 1


def path_through(x: Floats, y: Floats) -> QPainterPath:
    """Return the path through points, in pixels, broken at those that are not finite.

    Point by point, a curve as wide as a screen would take milliseconds.

    >>> path = path_through(np.array([0.0, 1, 2, 3]), np.array([5.0, np.nan, 6, 7]))
    >>> [(path.elementAt(i).x, path.elementAt(i).isMoveTo()) for i in range(path.elementCount())]
    [(0.0, True), (2.0, True), (3.0, False)]
    """
    finite = np.isfinite(x) & np.isfinite(y)
    starts = np.empty(len(x), bool)
    starts[:1], starts[1:] = True, ~finite[:-1]
    elements = np.empty(int(finite.sum()), ELEMENT)
    elements["kind"] = np.where(starts[finite], MOVE, LINE)
    elements["x"], elements["y"] = x[finite], y[finite]
    path = QPainterPath()
    if len(elements):
        count, start, fill = len(elements).to_bytes(4), (0).to_bytes(4), (0).to_bytes(4)
        QDataStream(QByteArray(count + elements.tobytes() + start + fill)) >> path
    return path
