"""Rows of an op or a node: an icon in the colour of the category, a name, and a small hint at the right."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from msgspec import Struct
from PySide6.QtCore import QModelIndex, QPersistentModelIndex, QRect, QRectF, QSize, Qt
from PySide6.QtGui import QFont, QFontMetrics, QPainter, QPaintEvent, QPixmap
from PySide6.QtWidgets import QStyle, QStyledItemDelegate, QStyleOptionViewItem, QWidget

from app.builder.catalog.catalog import OpSpec
from app.views.ui import icons, theme
from app.views.ui.widgets.painting import TextLine, box, start

Index = QModelIndex | QPersistentModelIndex

CATEGORY_NAMES = {
    "conv": "Convolution",
    "linear": "Linear",
    "act": "Activation",
    "norm": "Normalisation",
    "shape": "Pooling & shape",
    "drop": "Regularisation",
    "merge": "Merge",
    "seq": "Sequence & attention",
    "io": "Input & output",
    "block": "Blocks",
    "own": "My layers",
    "loss": "Loss",
}

OP_ROW, CATEGORY_ROW = 23, 25


class OpRow(Struct, frozen=True):
    """Content of a row: `faint` follows the name, `hint` is at the right; `heading` rows fold, `locked` are dimmed."""

    text: str
    category: str
    faint: str = ""
    hint: str = ""
    heading: bool = False
    open: bool = False
    grip: bool = False
    locked: bool = False


def row_size(heading: bool = False) -> QSize:
    """Return the size of a row at the text size in force."""
    return QSize(60, _row_height(heading, theme.manager().scale))


@cache
def _row_height(heading: bool, scale: float) -> int:
    text = QFontMetrics(theme.font_at("label", scale)).height() + 6
    return max(text, CATEGORY_ROW if heading else OP_ROW)


class RowPainter(QStyledItemDelegate):
    """Paints the `OpRow` that `row_of` returns for an index; the model provides its height."""

    def __init__(self, row_of: Callable[[Index], OpRow | None]) -> None:
        super().__init__()
        self._row_of = row_of

    def paint(
        self, painter: QPainter, option: QStyleOptionViewItem, index: Index
    ) -> None:
        row = self._row_of(index)
        if row is None:
            return
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        self._paint_ground(painter, option)
        area = option.rect.adjusted(6, 0, -6, 0)
        if row.heading:
            self._paint_heading(painter, area, row)
        else:
            self._paint_row(painter, option, area, row)
        painter.restore()

    @staticmethod
    def _paint_ground(painter: QPainter, option: QStyleOptionViewItem) -> None:
        colors = theme.current()
        ground = QRectF(option.rect.adjusted(5, 0, -5, 0))
        selected = bool(option.state & QStyle.StateFlag.State_Selected)
        hovered = bool(option.state & QStyle.StateFlag.State_MouseOver)
        focused = selected and option.widget is not None and option.widget.hasFocus()
        if selected:
            box(
                painter,
                ground,
                5,
                colors.accentBg,
                colors.accent if focused else colors.outline(colors.accent),
            )
        elif hovered:
            box(painter, ground, 5, colors.hover)

    @staticmethod
    def _paint_heading(painter: QPainter, area: QRect, row: OpRow) -> None:
        colors = theme.current()
        middle = area.center().y()
        chevron = "chevron-down" if row.open else "chevron-right"
        icons.draw(painter, chevron, "text3", area.left() + 2, middle - 5, 11)
        box(
            painter,
            QRectF(area.left() + 19, middle - 4, 9, 9),
            2,
            theme.category_color(row.category),
        )
        write(
            painter,
            area.adjusted(34, 0, 0, 0),
            row.text,
            theme.font("tab"),
            colors.text,
        )
        write(
            painter,
            area.adjusted(0, 0, -6, 0),
            row.hint,
            theme.font("caption"),
            colors.text3,
            right=True,
        )

    @staticmethod
    def _paint_row(
        painter: QPainter, option: QStyleOptionViewItem, area: QRect, row: OpRow
    ) -> None:
        colors = theme.current()
        hovered = bool(option.state & QStyle.StateFlag.State_MouseOver)
        marked = hovered or bool(option.state & QStyle.StateFlag.State_Selected)
        left = area.left() + (16 if row.grip or row.locked else 8)
        icon, tone = ("lock", "warn") if row.locked else (row.category, row.category)
        icons.draw(painter, icon, tone, left, area.center().y() - 6, 14)
        right = -6
        if row.grip:
            grip_left = area.right() - 14
            icons.draw(
                painter,
                "grip",
                "text2" if hovered else "text4",
                grip_left,
                area.center().y() - 6,
                13,
            )
            right = -20
        room = area.adjusted(left - area.left() + 22, 0, right, 0)
        hint_width = write(
            painter, room, row.hint, theme.font("caption"), colors.text3, right=True
        )
        room.setRight(room.right() - hint_width - (8 if hint_width else 0))
        color = colors.text if marked else colors.text3 if row.locked else colors.text2
        used = write(painter, room, row.text, theme.font("label"), color)
        room.setLeft(room.left() + used + 8)
        if row.faint and room.width() > 20:
            write(painter, room, row.faint, theme.font("caption"), colors.text3)


def write(
    painter: QPainter,
    area: QRect,
    text: str,
    font: QFont,
    color: object,
    right: bool = False,
) -> int:
    """Write one line in the middle of an area's height, cut where it must be; returns the width used."""
    if not text or area.width() <= 0:
        return 0
    metrics = QFontMetrics(font)
    shown = metrics.elidedText(text, Qt.TextElideMode.ElideRight, area.width())
    painter.setFont(font)
    painter.setPen(color)
    side = Qt.AlignmentFlag.AlignRight if right else Qt.AlignmentFlag.AlignLeft
    painter.drawText(
        area, side | Qt.AlignmentFlag.AlignVCenter | Qt.TextFlag.TextSingleLine, shown
    )
    return metrics.horizontalAdvance(shown)


class RowDelegate(RowPainter):
    """A `RowPainter` for models that do not provide heights."""

    def sizeHint(self, option: QStyleOptionViewItem, index: Index) -> QSize:
        return row_size()


def node_picture(spec: OpSpec, dpr: float = 1.0) -> QPixmap:
    """Return the drag pixmap: the node that a drop would create."""
    colors = theme.current()
    name, kind = TextLine(spec.stem, "node"), TextLine(spec.label, "label")
    width = min(160.0, max(76.0, name.width + 30 + 12, kind.width + 22))
    picture = QPixmap(round(width * dpr), round(50 * dpr))
    picture.setDevicePixelRatio(dpr)
    picture.fill(Qt.GlobalColor.transparent)
    painter = QPainter(picture)
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    area = QRectF(0, 0, width, 50)
    box(painter, area, 6, colors.raised)
    painter.save()
    painter.setClipRect(QRectF(0, 0, width, 27))
    box(painter, area, 6, theme.header_fill(spec.category))
    painter.setClipRect(QRectF(0, 0, width, 3))
    box(painter, area, 6, theme.category_color(spec.category))
    painter.restore()
    box(painter, area, 6, line=colors.accent, width=1.5)
    icons.draw(painter, spec.category, spec.category, 8, 8, 14)
    name.draw_in(painter, 28, QRectF(0, 3, width, 24), colors.text)
    kind.draw_in(painter, 11, QRectF(0, 28, width, 21), colors.text2)
    painter.end()
    return picture


class Tile(QWidget):
    """The icon of an op on a square of its category's colour."""

    def __init__(self) -> None:
        super().__init__()
        self.setFixedSize(32, 32)
        self._category = "block"

    def set_category(self, category: str) -> None:
        self._category = category
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = start(self)
        box(painter, QRectF(self.rect()), 5, theme.tile_fill(self._category))
        icons.draw(painter, self._category, self._category, 7, 7, 18)
        painter.end()
