"""The text size put on widgets that exist: their fonts, and the heights and widths that were fixed for the design's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from PySide6.QtCore import Qt
from PySide6.QtGui import QFont
from PySide6.QtWidgets import (
    QAbstractButton,
    QAbstractItemView,
    QAbstractSpinBox,
    QApplication,
    QComboBox,
    QHeaderView,
    QLineEdit,
    QWidget,
)
from shiboken6 import isValid

FRAME = 48  # of the window manager and its panels, px
TEXT_HEIGHTS = range(
    18, 61
)  # fixed heights of what has one line of text in it; the others are of pictures
TEXT_WIDTHS = range(44, 261)
DESIGNED = (
    "designedSize"  # a property: fixed height and width as they were before they grew
)
RESTORED = "_q_styleSheetWidgetFont"  # what Qt's stylesheets set on a widget when it is styled again
FIELDS = (QLineEdit, QComboBox, QAbstractSpinBox)


def scale_fonts(
    widgets: Sequence[QWidget], fonts: Mapping[str, QFont], share: float
) -> None:
    """Set every explicit font of these widgets at another text size.

    `fonts` are those that the theme has for fonts of the size before, by their keys; others become `share` as large.
    """
    for widget in widgets:
        if not isValid(widget):
            continue
        if widget.testAttribute(Qt.WidgetAttribute.WA_SetFont):
            font = fonts.get(widget.font().key()) or _scaled(widget.font(), share)
            widget.setFont(font)
            if widget.property(RESTORED) is not None:
                widget.setProperty(RESTORED, font)
        if (
            isinstance(widget, QHeaderView)
            and widget.orientation() == Qt.Orientation.Horizontal
        ):
            _scale_columns(widget, share)


def _scale_columns(header: QHeaderView, share: float) -> None:
    """Make columns whose widths were measured or chosen as much wider as their text."""
    for section in range(header.count()):
        fixed = header.sectionResizeMode(section) == QHeaderView.ResizeMode.Interactive
        if fixed and not (
            header.stretchLastSection()
            and header.visualIndex(section) == header.count() - 1
        ):
            header.resizeSection(section, round(header.sectionSize(section) * share))


def _scaled(font: QFont, share: float) -> QFont:
    result = QFont(font)
    if font.pixelSize() > 0:
        result.setPixelSize(max(round(font.pixelSize() * share), 1))
    elif font.pointSizeF() > 0:
        result.setPointSizeF(font.pointSizeF() * share)
    return result


def fit_all(scale: float) -> None:
    """Fit all windows to a text size."""
    for window in QApplication.topLevelWidgets():
        fit(window, scale)


def fit(root: QWidget, scale: float) -> None:
    """Give controls in a widget the size that their text needs, and their containers; at the design's size its own."""
    if scale != 1.0:
        _grew.add(True)
    elif not _grew:
        return
    for widget in (
        *reversed(root.findChildren(QWidget)),
        root,
    ):  # children before parents
        if not isValid(widget):
            continue
        layout = widget.layout()
        if layout is not None:
            layout.invalidate()
        _fit_one(widget, scale)
        if isinstance(widget, QAbstractItemView):
            widget.doItemsLayout()  # rows know their height again


_grew: set[bool] = set()  # whether anything ever did


def _fit_one(widget: QWidget, scale: float) -> None:
    if getattr(widget, "fits_text", False):  # by itself
        return
    designed = widget.property(DESIGNED)
    height, width = (
        designed
        if designed is not None
        else (_fixed(widget, True), _fixed(widget, False))
    )
    if designed is None:
        if height not in TEXT_HEIGHTS and width not in TEXT_WIDTHS:
            return
        widget.setProperty(DESIGNED, (height, width))
    pictured = (
        isinstance(widget, QAbstractButton) and not widget.text() and width == height
    )
    if height in TEXT_HEIGHTS and not pictured:
        widget.setFixedHeight(max(height, _needed(widget)) if scale != 1.0 else height)
    if width in TEXT_WIDTHS and isinstance(widget, FIELDS):
        widget.setFixedWidth(round(width * scale))


def _needed(widget: QWidget) -> int:
    layout = widget.layout()
    if layout is not None and layout.count():
        return max(layout.minimumSize().height() + 2, widget.fontMetrics().height() + 6)
    return widget.fontMetrics().height() + 8


def _fixed(widget: QWidget, high: bool) -> int:
    """Return the fixed height or width of a widget, 0 if it is free.

    The stylesheet of a text size raises the least height of a field above the most that was fixed for the design's.
    """
    least, most = widget.minimumSize(), widget.maximumSize()
    low, top = (
        (least.height(), most.height()) if high else (least.width(), most.width())
    )
    return top if low >= top else 0
