"""Tab order from top to bottom, independent of when the widgets were created."""

from __future__ import annotations

from PySide6.QtCore import QPoint, Qt
from PySide6.QtWidgets import QWidget

_SAME_LINE = 6  # widgets with centres nearer than this are on one line, px


class TabDown(QWidget):
    """A page with a focus order by lines, left to right in each."""

    def focusNextPrevChild(self, forward: bool) -> bool:
        order = in_reading_order(self)
        here = self.window().focusWidget()
        if here not in order:
            return super().focusNextPrevChild(forward)
        index = order.index(here) + (1 if forward else -1)
        target = (
            order[index] if 0 <= index < len(order) else _outside(self, here, forward)
        )
        if target is None:
            return super().focusNextPrevChild(forward)
        target.setFocus(
            Qt.FocusReason.TabFocusReason
            if forward
            else Qt.FocusReason.BacktabFocusReason
        )
        return True


def in_reading_order(page: QWidget) -> list[QWidget]:
    """Return the widgets of a page that Tab reaches, line by line."""
    reachable = [
        (widget.mapTo(page, widget.rect().center()), widget)
        for widget in page.findChildren(QWidget)
        if _takes_tab(widget) and widget.isVisibleTo(page)
    ]
    reachable.sort(key=lambda pair: pair[0].y())
    lines: list[list[tuple[QPoint, QWidget]]] = []
    for center, widget in reachable:
        if not lines or center.y() - lines[-1][0][0].y() > _SAME_LINE:
            lines.append([])
        lines[-1].append((center, widget))
    return [
        widget
        for line in lines
        for _, widget in sorted(line, key=lambda pair: pair[0].x())
    ]


def _takes_tab(widget: QWidget) -> bool:
    tabs = bool(widget.focusPolicy() & Qt.FocusPolicy.TabFocus)
    return (
        tabs
        and widget.isEnabled()
        and widget.focusProxy() is None
        and not widget.isWindow()
    )


def _outside(page: QWidget, here: QWidget, forward: bool) -> QWidget | None:
    """Return the next widget of the window outside the page."""
    widget: QWidget | None = here
    while widget is not None:
        widget = widget.nextInFocusChain() if forward else widget.previousInFocusChain()
        if widget is None or widget is here:
            break
        if not page.isAncestorOf(widget) and _takes_tab(widget) and widget.isVisible():
            return widget
    return None
