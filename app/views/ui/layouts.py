"""Layouts declared by their contents."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from PySide6.QtCore import QCoreApplication, QEvent, Qt
from PySide6.QtWidgets import QBoxLayout, QHBoxLayout, QLayout, QVBoxLayout, QWidget

Part = QWidget | QLayout
Parts = Part | int | tuple[Part, int] | tuple[Part, int, Qt.AlignmentFlag]
Margins = int | tuple[int, int, int, int]
_Box = TypeVar("_Box", bound=QBoxLayout)

if TYPE_CHECKING:
    _Widget = QWidget
else:
    _Widget = object


class PaintedLaidOut(_Widget):
    """Mixin of windows that are painted once all is laid out.

    A layout asks the next outer one for room by a posted event. Qt may paint between two of them, and rows that were
    added stand over one another until the next turn.
    """

    def event(self, event: QEvent) -> bool:
        if event.type() == QEvent.Type.UpdateRequest:
            QCoreApplication.sendPostedEvents(None, QEvent.Type.LayoutRequest)
        return super().event(event)


def hbox(
    *parts: Parts,
    on: QWidget | None = None,
    margins: Margins | None = None,
    spacing: int | None = None,
) -> QHBoxLayout:
    """Lay parts out in a row, which is the layout of `on` if it is given.

    A part is a widget or a layout, with its stretch and its alignment if it has some; a number is a stretch between
    parts. `margins` (one number, or left, top, right and bottom) and `spacing` are px; None is the style's.
    """
    return _filled(
        QHBoxLayout() if on is None else QHBoxLayout(on), parts, margins, spacing
    )


def vbox(
    *parts: Parts,
    on: QWidget | None = None,
    margins: Margins | None = None,
    spacing: int | None = None,
) -> QVBoxLayout:
    """Lay parts out in a column; arguments as for `hbox`."""
    return _filled(
        QVBoxLayout() if on is None else QVBoxLayout(on), parts, margins, spacing
    )


def _filled(
    box: _Box, parts: tuple[Parts, ...], margins: Margins | None, spacing: int | None
) -> _Box:
    if margins is not None:
        box.setContentsMargins(
            *((margins,) * 4 if isinstance(margins, int) else margins)
        )
    if spacing is not None:
        box.setSpacing(spacing)
    for entry in parts:
        if isinstance(entry, int):
            box.addStretch(entry)
            continue
        child, *how = entry if isinstance(entry, tuple) else (entry,)
        add: Callable[..., None] = (
            box.addWidget if isinstance(child, QWidget) else box.addLayout
        )
        add(child, *how)
    return box
