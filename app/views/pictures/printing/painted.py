"""A sheet as PDF, with its fonts embedded, or as PNG with its resolution; both have the sheet's physical size."""

from __future__ import annotations

from PySide6.QtCore import QBuffer, QIODevice, QMarginsF, QPointF, QRectF, QSizeF, Qt
from PySide6.QtGui import (
    QColor,
    QImage,
    QPageLayout,
    QPageSize,
    QPainter,
    QPainterPath,
    QPdfWriter,
    QPen,
    QPixmap,
)

from app.views.pictures.printing.faces import paper_font
from app.views.pictures.printing.paper import Frame, Mark, Path, Plate, Sheet

LARGEST = 20_000  # pixels of a side
MOST_PIXELS = 120_000_000


def to_pdf(sheet: Sheet) -> bytes:
    """Return the PDF file."""
    buffer = QBuffer()
    buffer.open(QIODevice.OpenModeFlag.WriteOnly)
    target = QPdfWriter(buffer)
    target.setCreator("Tapedeck")
    target.setTitle(sheet.plate.title)
    target.setResolution(1200)
    page = QPageSize(
        QSizeF(sheet.width, sheet.height),
        QPageSize.Unit.Point,
        "",
        QPageSize.SizeMatchPolicy.ExactMatch,
    )
    target.setPageLayout(
        QPageLayout(
            page, QPageLayout.Orientation.Portrait, QMarginsF(), QPageLayout.Unit.Point
        )
    )
    painter = QPainter(target)
    painter.scale(1200 / 72, 1200 / 72)
    _paint(painter, sheet)
    painter.end()
    return bytes(buffer.data().data())


def to_image(sheet: Sheet, dpi: int) -> QImage:
    """Return the sheet as an image of this resolution, less if it would be very large."""
    scale = min(
        dpi / 72,
        LARGEST / max(sheet.width, sheet.height),
        (MOST_PIXELS / sheet.width / sheet.height) ** 0.5,
    )
    image = QImage(
        max(1, round(sheet.width * scale)),
        max(1, round(sheet.height * scale)),
        QImage.Format.Format_RGB32,
    )
    image.fill(
        Qt.GlobalColor.white
    )  # a rounded size leaves a part of its last pixels unpainted
    meters = round(scale * 72 / 0.0254)
    image.setDotsPerMeterX(meters)
    image.setDotsPerMeterY(meters)
    painter = QPainter(image)
    painter.scale(scale, scale)
    _paint(painter, sheet)
    painter.end()
    return image


def png_bytes(image: QImage | QPixmap) -> bytes:
    """Encode a picture as a PNG file."""
    buffer = QBuffer()
    buffer.open(QIODevice.OpenModeFlag.WriteOnly)
    image.save(buffer, "PNG")  # type: ignore[call-overload]  # the stubs want the format as bytes
    return bytes(buffer.data().data())


def _paint(painter: QPainter, sheet: Sheet) -> None:
    painter.setRenderHints(
        QPainter.RenderHint.Antialiasing | QPainter.RenderHint.TextAntialiasing
    )
    painter.fillRect(QRectF(0, 0, sheet.width, sheet.height), Qt.GlobalColor.white)
    painter.translate(sheet.x, sheet.y)
    painter.scale(sheet.scale, sheet.scale)
    paint(painter, sheet.plate)


def paint(painter: QPainter, plate: Plate) -> None:
    """Paint a plate with its corner at the painter's origin."""
    for mark in plate.marks:
        _paint_mark(painter, mark)


def _paint_mark(painter: QPainter, mark: Mark) -> None:
    if isinstance(mark, Frame | Path):
        pen = QPen(Qt.PenStyle.NoPen)
        if mark.line:
            dashed = isinstance(mark, Frame) and mark.dashed
            pen = QPen(
                QColor(mark.line),
                mark.thick,
                Qt.PenStyle.DashLine if dashed else Qt.PenStyle.SolidLine,
            )
        painter.setPen(pen)
        painter.setBrush(QColor(mark.fill) if mark.fill else Qt.BrushStyle.NoBrush)
        if isinstance(mark, Frame):
            painter.drawRoundedRect(
                QRectF(mark.x, mark.y, mark.width, mark.height),
                mark.radius,
                mark.radius,
            )
        else:
            painter.drawPath(_path(mark))
        return
    painter.setFont(paper_font(mark.size, mark.bold))
    painter.setPen(QColor(mark.color))
    painter.drawText(QPointF(mark.left, mark.y), mark.text)


def _path(mark: Path) -> QPainterPath:
    path = QPainterPath()
    for kind, points in mark.segments:
        at = [QPointF(x, y) for x, y in points]
        if kind == "M":
            path.moveTo(at[0])
        elif kind == "L":
            path.lineTo(at[0])
        else:
            path.cubicTo(*at)
    if mark.fill:
        path.closeSubpath()
    return path
