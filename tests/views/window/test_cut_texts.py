"""No text in the window is cut off without a tool tip that has it whole."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator

import pytest
from PySide6.QtCore import QModelIndex, Qt
from PySide6.QtGui import QFontMetrics, QFontMetricsF
from PySide6.QtWidgets import (
    QAbstractButton,
    QAbstractItemView,
    QApplication,
    QComboBox,
    QGraphicsItem,
    QHeaderView,
    QLabel,
    QListView,
    QStyledItemDelegate,
    QStyleOptionViewItem,
    QWidget,
)
from pytestqt.qtbot import QtBot

from app.views.ui.widgets import Button
from tests.support.whole_window import WholeWindow
from tests.views.window.test_window import ready

ELLIPSIS = "\N{HORIZONTAL ELLIPSIS}"
PIXELS = 2  # by which a text may be wider than its room: bearings


def cut(window: WholeWindow, elided: Collection[str] = ()) -> Iterator[str]:
    """Yield what is in sight and cut, with its place; `elided` are texts that were shortened before they were set."""
    for widget in window.findChildren(QWidget):
        if not widget.isVisible() or widget.visibleRegion().isEmpty():
            continue
        if isinstance(widget, QHeaderView):
            yield from _of_header(widget)
        elif isinstance(widget, QAbstractItemView):
            yield from _of_view(widget)
        elif not widget.toolTip():
            own = widget.text() if isinstance(widget, QLabel | QAbstractButton) else ""
            if text := _cut_text(widget) or (own if own in elided else ""):
                yield f"{text!r} in {_place(widget)}"


class Elisions:
    """What is elided from now on by somebody who has no tool tip for it: painted, and put on a label or a button."""

    def __init__(self) -> None:
        self.painted: set[str] = set()
        self.texts: set[str] = set()

    def watch(self, real: Callable[..., str]) -> Callable[..., str]:
        def elided_text(metrics: object, text: str, *given: object) -> str:
            shown = real(metrics, text, *given)
            if shown != text and shown.strip(ELLIPSIS):
                place = _painter_without_tip()
                if place is None:
                    self.texts.add(shown)
                elif place:
                    self.painted.add(f"{text!r} painted as {shown!r} in {place}")
            return shown

        return elided_text


@pytest.fixture
def elisions(monkeypatch: pytest.MonkeyPatch) -> Elisions:
    made = Elisions()
    for kind in (QFontMetrics, QFontMetricsF):
        monkeypatch.setattr(kind, "elidedText", made.watch(kind.elidedText))
    return made


def _painter_without_tip() -> str | None:
    """Return the widget or delegate that is painting, "" if it shows tool tips; None if nobody paints."""
    frame, names = sys._getframe(2), []
    while frame is not None:
        who, index = frame.f_locals.get("self"), frame.f_locals.get("index")
        names.append(frame.f_code.co_name)
        if isinstance(who, QGraphicsItem):
            return ""  # what is cut in a graph is whole at a larger zoom, and in the inspector
        if isinstance(who, QStyledItemDelegate) and isinstance(index, QModelIndex):
            helps = type(who).helpEvent is not QStyledItemDelegate.helpEvent
            tells = helps or index.data(Qt.ItemDataRole.ToolTipRole)
            return "" if tells else f"{type(who).__name__} of {type(index.model()).__name__}"
        if isinstance(who, QWidget) and "paintEvent" in names:
            handles = any("event" in vars(kind) for kind in type(who).__mro__ if kind.__module__.startswith("app."))
            return "" if who.toolTip() or handles else _place(who)
        frame = frame.f_back
    return None


def _cut_text(widget: QWidget) -> str:
    if isinstance(widget, QLabel):
        return _cut_label(widget)
    if isinstance(widget, Button):
        return ""  # shows the whole text as a tool tip where it is cut
    if isinstance(widget, QAbstractButton) and widget.text():
        return widget.text() if widget.width() < widget.minimumSizeHint().width() - PIXELS else ""
    if isinstance(widget, QComboBox):
        room = widget.width() - 34
        wanted = widget.fontMetrics().horizontalAdvance(widget.currentText())
        return widget.currentText() if wanted > room + PIXELS else ""
    return ""


def _cut_label(label: QLabel) -> str:
    if not label.text() or label.textFormat() == Qt.TextFormat.RichText or not label.pixmap().isNull():
        return ""
    room = label.contentsRect()
    if label.wordWrap():
        return label.text() if label.heightForWidth(label.width()) > label.height() + PIXELS else ""
    wanted = max(map(label.fontMetrics().horizontalAdvance, label.text().split("\n")))
    return label.text() if wanted > room.width() + PIXELS else ""


def _of_header(header: QHeaderView) -> Iterator[str]:
    model = header.model()
    for section in range(header.count()):
        text = str(model.headerData(section, header.orientation()) or "")
        tip = model.headerData(section, header.orientation(), Qt.ItemDataRole.ToolTipRole)
        wide = header.sectionSizeFromContents(section).width()
        if text and not tip and not header.isSectionHidden(section) and wide > header.sectionSize(section) + PIXELS:
            yield f"{text!r} in {_place(header)}"


def _of_view(view: QAbstractItemView) -> Iterator[str]:
    """Yield the cells that the view's own delegate elides."""
    model, option = view.model(), QStyleOptionViewItem()
    top = QModelIndex()
    for row in range(min(model.rowCount(top), 40)) if model is not None else ():
        for column in range(1 if isinstance(view, QListView) else model.columnCount(top)):
            index = model.index(row, column)
            area = view.visualRect(index)
            tip = index.data(Qt.ItemDataRole.ToolTipRole)
            if area.isEmpty() or tip or type(view.itemDelegateForIndex(index)).paint is not QStyledItemDelegate.paint:
                continue
            if view.itemDelegateForIndex(index).sizeHint(option, index).width() > area.width() + PIXELS:
                yield f"cell {index.data()!r} in {_place(view)}"


def _place(widget: QWidget) -> str:
    names = []
    while widget is not None and not widget.isWindow():
        names.append(widget.objectName() or type(widget).__name__)
        widget = widget.parentWidget()
    return " < ".join(names[:5])


@pytest.mark.parametrize("size", [(1280, 800), (1024, 700)])
def test_no_text_is_cut_without_a_tool_tip(
    qtbot: QtBot, window: WholeWindow, elisions: Elisions, size: tuple[int, int]
) -> None:
    window.resize(*size)
    window.files.open_example("digits.tape")
    ready(qtbot, window)
    window.pages.make_all()
    window.selection.set([next(key for key, each in window.sheet.project.graph.nodes.items() if each.name == "conv1")])
    found = set()
    for pane in (window.centre, window.left.pane, window.right.pane, window.bottom.pane):
        for key in pane._keys:
            if pane.tabs.isTabVisible(pane.tabs.index(key)):
                pane.show_page(key)
                QApplication.processEvents()
                found |= {f"{key}: {each}" for each in cut(window, elisions.texts)}
                window.grab()
    found |= elisions.painted
    assert not found, "\n".join(sorted(found))
