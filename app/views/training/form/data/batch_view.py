"""One real batch: images with their classes, rows of a table, or sequences of text."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QRectF, QSize, Qt
from PySide6.QtGui import QFontMetricsF, QImage, QPainter, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from app.data.spec import BatchPreview
from app.views.run.picture_grid import image_of
from app.views.ui.theme import current, font
from app.views.ui.widgets.painting import start

CELL, GAP, CAPTION, LINE = 60, 8, 16, 18
BETWEEN = 12.0  # pixels between two columns of a table


class BatchView(QWidget):
    """Shows a BatchPreview; empty without one."""

    def __init__(self) -> None:
        super().__init__()
        self._preview: BatchPreview | None = None
        self._images: list[QImage] = []
        self._before: list[
            QImage
        ] = []  # the same ones before their transforms, painted above them
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)

    @property
    def preview(self) -> BatchPreview | None:
        return self._preview

    def show_preview(self, preview: BatchPreview | None) -> None:
        self._preview = preview
        pictures, before = (preview.pictures, preview.before) if preview else ((), ())
        self._images = [image_of(picture) for picture in pictures]
        self._before = [image_of(picture) for picture in before]
        self.setAccessibleName(_caption(preview) if preview is not None else "")
        self.setVisible(preview is not None)
        self._fit()
        self.update()

    def resizeEvent(self, event: QResizeEvent) -> None:
        self._fit()

    def _fit(self) -> None:
        self.setFixedHeight(max(self._height(), 1))

    def _across(self) -> int:
        return max((self.width() + GAP) // (CELL + GAP), 1)

    def _height(self) -> int:
        if self._preview is None:
            return 0
        if self._images:
            lines = -(-len(self._images) // self._across())
            return lines * self._line()
        return LINE * (len(self._preview.rows) or len(self._preview.texts))

    def _line(self) -> int:
        return CELL + CAPTION + GAP + (CELL + 2 if self._before else 0)

    def sizeHint(self) -> QSize:
        return QSize(280, self._height())

    def paintEvent(self, _event: QPaintEvent) -> None:
        if self._preview is None:
            return
        painter = start(self)
        if self._images:
            self._paint_pictures(painter, self._preview)
        elif self._preview.rows:
            self._paint_rows(painter, self._preview)
        else:
            painter.setFont(font("code"))
            painter.setPen(current().color("text"))
            for number, text in enumerate(self._preview.texts):
                self._write(painter, text, QRectF(0, number * LINE, self.width(), LINE))
        painter.end()

    def _write(
        self, painter: QPainter, text: str, box: QRectF, right: bool = False
    ) -> None:
        text = QFontMetricsF(painter.font()).elidedText(
            text, Qt.TextElideMode.ElideRight, box.width()
        )
        side = Qt.AlignmentFlag.AlignRight if right else Qt.AlignmentFlag.AlignLeft
        painter.drawText(
            box, side | Qt.AlignmentFlag.AlignVCenter | Qt.TextFlag.TextSingleLine, text
        )

    def _paint_pictures(self, painter: QPainter, preview: BatchPreview) -> None:
        painter.setFont(font("caption"))
        painter.setPen(current().color("text2"))
        across = self._across()
        for number, image in enumerate(self._images):
            left, top = number % across * (CELL + GAP), number // across * self._line()
            if self._before:
                _paint(painter, self._before[number], left, top)
                top += CELL + 2
            _paint(painter, image, left, top)
            self._write(
                painter,
                preview.captions[number],
                QRectF(left, top + CELL, CELL, CAPTION),
            )

    def _paint_rows(self, painter: QPainter, preview: BatchPreview) -> None:
        heads = preview.spec.target_name or "target", *preview.captions
        rows = [(*row, target) for row, target in zip(preview.rows, heads, strict=True)]
        fonts = [font("caption"), *[font("code")] * (len(rows) - 1)]
        texts = [
            [QFontMetricsF(shown).horizontalAdvance(text) for text in row]
            for shown, row in zip(fonts, rows, strict=True)
        ]
        least = cut_widths(
            [max(column) + BETWEEN for column in zip(*texts[1:], strict=True)],
            self.width(),
        )
        natural_widths = [
            max(head + BETWEEN, width)
            for head, width in zip(texts[0], least, strict=True)
        ]
        more = [head - width for head, width in zip(natural_widths, least, strict=True)]
        more = cut_widths(more, self.width() - sum(least))  # numbers are cut last
        spare = (self.width() - sum(least) - sum(more)) / len(least)
        widths = [
            width + added + spare for width, added in zip(least, more, strict=True)
        ]
        for line, row in enumerate(rows):
            painter.setFont(fonts[line])
            painter.setPen(current().color("text3" if not line else "text"))
            left = 0.0
            for text, width in zip(row, widths, strict=True):
                self._write(
                    painter,
                    text,
                    QRectF(left, line * LINE, width - 6, LINE),
                    right=True,
                )
                left += width


def cut_widths(natural_widths: Sequence[float], room: float) -> list[float]:
    """Return the widths of columns; where the room is too narrow, the widest ones are cut to one width.

    >>> cut_widths([10, 20], 40), cut_widths([10, 90, 50], 90)
    ([10, 20], [10, 40.0, 40.0])
    """
    left, cut = max(room, 0.0), max(natural_widths, default=0.0)
    for number, width in enumerate(sorted(natural_widths)):
        share = left / (len(natural_widths) - number)
        if width > share:
            cut = share
            break
        left -= width
    return [min(width, cut) for width in natural_widths]


def _paint(painter: QPainter, image: QImage, left: float, top: float) -> None:
    """Paint an image in the middle of its cell, as large as fits."""
    scale = CELL / max(image.width(), image.height())
    width, height = image.width() * scale, image.height() * scale
    painter.drawImage(
        QRectF(left + (CELL - width) / 2, top + (CELL - height) / 2, width, height),
        image,
    )


def _caption(preview: BatchPreview) -> str:
    content = (
        "images"
        if preview.pictures
        else "rows of the table"
        if preview.rows
        else "sequences of the text"
    )
    caption = f"{content[:1].upper()}{content[1:]} of the first batch"
    return f"{caption}: {', '.join(preview.captions)}" if preview.captions else caption
