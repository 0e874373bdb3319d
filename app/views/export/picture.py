"""Paint a drawing to a file: SVG and PDF as vectors, PNG at twice the size.

Used instead of Graphviz where `dot` is not installed. Needs a QApplication, offscreen or not.
"""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import QBuffer, QIODevice, QMarginsF, QPointF, QRectF, QSize, QSizeF, Qt
from PySide6.QtGui import QImage, QPageLayout, QPageSize, QPainter, QPdfWriter, QPen, QPixmap
from PySide6.QtSvg import QSvgGenerator

from app.diagram.diagram import Drawing
from app.diagram.layout import Layout, arrange
from app.graphviz_export import ExportError
from app.util import atomic
from app.views.autograd.graph.arrow_paths import arrow_head, arrow_path
from app.views.autograd.graph.faces import Text, label_of, measure, paint_label
from app.views.ui.theme import Theme, load

MARGIN = 24.0
TITLE = 30.0
DPI = 96
PNG_SCALE = 2.0
LARGEST_PNG = 30_000


def paint(drawing: Drawing, path: Path, theme: Theme | None = None) -> None:
    """Paint a drawing to a file that ends in `.svg`, `.pdf` or `.png`; light unless another theme is given.

    The file is written whole or not at all. Raises `ExportError` for another ending, OSError.
    """
    path = Path(path)
    picture = LaidOutDrawing(drawing, theme or load("light"))
    painters = {".svg": _svg, ".pdf": _pdf, ".png": _png}
    if path.suffix.lower() not in painters:
        raise ExportError(f"{path.name} ends in {path.suffix or 'nothing'}; expected .svg, .pdf or .png")
    atomic.write_bytes(path, painters[path.suffix.lower()](picture))


class LaidOutDrawing:
    """A drawing, measured and laid out, that can be painted on anything. `width` and `height` are in pixels."""

    def __init__(self, drawing: Drawing, theme: Theme, row_width: float | None = None) -> None:
        self.drawing, self.theme = drawing, theme
        self.boxes, self.groups, self.labels, sizes = measure(drawing)
        self.layout: Layout = arrange(drawing, sizes, row_width)
        self.title = Text(drawing.title, "section", MARGIN, MARGIN)
        self._top = MARGIN + (TITLE if drawing.title else 0.0)
        self.width = max(self.layout.width, self.title.width) + 2 * MARGIN
        self.height = self.layout.height + self._top + MARGIN

    def paint(self, painter: QPainter, vector: bool) -> None:
        """Paint everything with the top left corner at the painter's origin."""
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.fillRect(QRectF(0, 0, self.width, self.height), self.theme.canvas)
        if self.drawing.title:
            self.title.paint(painter, self.theme.text, vector)
        painter.translate(MARGIN, self._top)
        for key, rect in self.layout.groups.items():
            painter.translate(rect.x, rect.y)
            self.groups[key].paint(painter, self.theme, (rect.width, rect.height), vector=vector)
            painter.translate(-rect.x, -rect.y)
        self._arrows(painter)
        for key, rect in self.layout.boxes.items():
            painter.translate(rect.x, rect.y)
            self.boxes[key].paint(painter, self.theme, vector=vector)
            painter.translate(-rect.x, -rect.y)
        for arrow, at in zip(self.drawing.arrows, self.layout.labels, strict=True):
            if at is not None and label_of(arrow):
                paint_label(painter, self.labels[label_of(arrow)], QPointF(*at), self.theme, vector)

    def _arrows(self, painter: QPainter) -> None:
        for arrow, route in zip(self.drawing.arrows, self.layout.routes, strict=True):
            color = self.theme.back if arrow.kind == "gradient" else self.theme.wire
            path = arrow_path(route)
            painter.setPen(QPen(color, 1.6))
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.drawPath(path)
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(color)
            painter.drawPath(arrow_head(path))


def _svg(picture: LaidOutDrawing) -> bytes:
    buffer, target = QBuffer(), QSvgGenerator()
    target.setOutputDevice(buffer)
    target.setResolution(DPI)
    target.setSize(QSize(round(picture.width), round(picture.height)))
    target.setViewBox(QRectF(0, 0, picture.width, picture.height))
    target.setTitle(picture.drawing.title)
    target.setDescription("Drawn by Tapedeck")
    painter = QPainter(target)
    picture.paint(painter, vector=True)
    painter.end()
    return bytes(buffer.data().data())


def _pdf(picture: LaidOutDrawing) -> bytes:
    buffer = QBuffer()
    buffer.open(QIODevice.OpenModeFlag.WriteOnly)
    target = QPdfWriter(buffer)
    target.setCreator("Tapedeck")
    target.setTitle(picture.drawing.title)
    target.setResolution(DPI)
    page = QSizeF(picture.width, picture.height) * 72.0 / DPI
    size = QPageSize(page, QPageSize.Unit.Point, "drawing", QPageSize.SizeMatchPolicy.ExactMatch)
    target.setPageLayout(QPageLayout(size, QPageLayout.Orientation.Portrait, QMarginsF(), QPageLayout.Unit.Point))
    painter = QPainter(target)
    picture.paint(painter, vector=True)
    painter.end()
    return bytes(buffer.data().data())


def _png(picture: LaidOutDrawing) -> bytes:
    scale = min(PNG_SCALE, LARGEST_PNG / max(picture.width, picture.height))
    image = QImage(
        max(1, round(picture.width * scale)), max(1, round(picture.height * scale)), QImage.Format.Format_RGB32
    )
    if image.isNull():
        raise ExportError("The picture would be too large. Fold some layers, or save it as SVG.")
    image.setDevicePixelRatio(scale)
    painter = QPainter(image)
    picture.paint(painter, vector=False)
    painter.end()
    return png_bytes(image)


def png_bytes(image: QImage | QPixmap) -> bytes:
    """Encode a picture as a PNG file."""
    buffer = QBuffer()
    buffer.open(QIODevice.OpenModeFlag.WriteOnly)
    image.save(buffer, "PNG")  # type: ignore[call-overload]  # the stubs want the format as bytes
    return bytes(buffer.data().data())
