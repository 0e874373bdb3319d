"""No text in the window is cut off without a tool tip that has it whole."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator

import pytest
from PySide6.QtCore import QEvent, QModelIndex, Qt
from PySide6.QtGui import QFontMetrics, QFontMetricsF, QHelpEvent
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
    QToolTip,
    QWidget,
)
from pytestqt.qtbot import QtBot
from shiboken6 import isValid

from app.views.ui import theme
from app.views.ui.widgets import Button
from app.views.ui.widgets.painting import Words
from tests.support.whole_window import WholeWindow
from tests.views.window.test_window import ready

GRAPH = "a graph"
LOOKS = (
    ((1280, 800), 1.0),
    ((1024, 700), 1.0),
    ((1280, 800), 1.5),
    ((1280, 800), 2.0),
    ((1024, 700), 2.0),
)
ELLIPSIS = "\N{HORIZONTAL ELLIPSIS}"
PASSES = 6  # of the event loop in which nested layouts come to rest
PIXELS = 2  # by which a text may be wider than its room: bearings


def cut(window: WholeWindow, elided: Collection[str] = ()) -> Iterator[str]:
    """Yield what is in sight and cut, with its place; `elided` are texts that were shortened before they were set."""
    for widget in window.findChildren(QWidget):
        if (
            not isValid(widget)
            or not widget.isVisible()
            or widget.visibleRegion().isEmpty()
        ):  # some go meanwhile
            continue
        if isinstance(widget, QHeaderView):
            yield from _of_header(widget)
        elif isinstance(widget, QAbstractItemView):
            yield from _of_view(widget)
        elif not widget.toolTip():
            own = widget.text() if isinstance(widget, QLabel | QAbstractButton) else ""
            text = _cut_text(widget) or (own if own in elided else "")
            if text and (_lacks_lines(widget) or _tip(widget) != text):
                yield f"{text!r} in {_place(widget)}"


def _settled(window: WholeWindow, elisions: Elisions) -> set[str]:
    """Return what stays cut: a text that an answer of the engine has just put is laid out in later turns."""
    found: set[str] = set()
    for _ in range(PASSES):
        QApplication.processEvents()
        if not (found := set(cut(window, elisions.texts))):
            break
    return found


def _tip(widget: QWidget) -> str:
    """Return the tool tip that the window shows for a widget under the pointer."""
    place = widget.visibleRegion().boundingRect().center()
    window = widget.window()
    QToolTip.hideText()
    asked = QHelpEvent(
        QEvent.Type.ToolTip, widget.mapTo(window, place), widget.mapToGlobal(place)
    )
    QApplication.sendEvent(window, asked)
    return QToolTip.text()


def _lacks_lines(widget: QWidget) -> bool:
    return isinstance(widget, QLabel) and widget.wordWrap() and not widget.toolTip()


class Elisions:
    """What is elided from now on by somebody who has no tool tip for it: painted, drawn in a graph, and put on a label
    or a button."""

    def __init__(self) -> None:
        self.painted: set[str] = set()
        self.drawn: set[str] = set()
        self.texts: set[str] = set()

    def watch(self, real: Callable[..., str]) -> Callable[..., str]:
        def elided_text(metrics: object, text: str, *given: object) -> str:
            shown = real(metrics, text, *given)
            if shown != text and shown.strip(ELLIPSIS):
                place = _painter_without_tip()
                if place is None:
                    self.texts.add(shown)
                elif place == GRAPH:
                    self.drawn.add(text)
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
    """Return the widget or delegate that is painting, "" if it shows tool tips, `GRAPH` for an item of a graph; None if
    nobody paints."""
    frame, names = sys._getframe(2), []
    while frame is not None:
        who, index = frame.f_locals.get("self"), frame.f_locals.get("index")
        names.append(frame.f_code.co_name)
        if isinstance(who, QGraphicsItem):
            return GRAPH
        if isinstance(who, QStyledItemDelegate) and isinstance(index, QModelIndex):
            helps = type(who).helpEvent is not QStyledItemDelegate.helpEvent
            tells = helps or index.data(Qt.ItemDataRole.ToolTipRole)
            return (
                ""
                if tells
                else f"{type(who).__name__} of {type(index.model()).__name__}"
            )
        if isinstance(who, QWidget) and "paintEvent" in names:
            handles = any(
                "event" in vars(kind)
                for kind in type(who).__mro__
                if kind.__module__.startswith("app.")
            )
            return (
                ""
                if who.toolTip() or handles or isinstance(who, Words | QComboBox)
                else _place(who)
            )
        frame = frame.f_back
    return None


def _cut_text(widget: QWidget) -> str:
    if isinstance(widget, QLabel):
        return _cut_label(widget)
    if isinstance(widget, Button):
        return ""  # shows the whole text as a tool tip where it is cut
    if isinstance(widget, QAbstractButton) and widget.text():
        return (
            widget.text()
            if widget.width() < widget.minimumSizeHint().width() - PIXELS
            else ""
        )
    if isinstance(widget, QComboBox):
        room = widget.width() - 34
        wanted = widget.fontMetrics().horizontalAdvance(widget.currentText())
        return widget.currentText() if wanted > room + PIXELS else ""
    return ""


def _cut_label(label: QLabel) -> str:
    if (
        not label.text()
        or label.textFormat() == Qt.TextFormat.RichText
        or not label.pixmap().isNull()
    ):
        return ""
    room = label.contentsRect()
    if label.wordWrap():
        return (
            label.text()
            if label.heightForWidth(label.width()) > label.height() + PIXELS
            else ""
        )
    wanted = max(map(label.fontMetrics().horizontalAdvance, label.text().split("\n")))
    return label.text() if wanted > room.width() + PIXELS else ""


def _of_header(header: QHeaderView) -> Iterator[str]:
    model = header.model()
    for section in range(header.count()):
        text = str(model.headerData(section, header.orientation()) or "")
        tip = model.headerData(
            section, header.orientation(), Qt.ItemDataRole.ToolTipRole
        )
        wide = header.sectionSizeFromContents(section).width()
        if (
            text
            and not tip
            and not header.isSectionHidden(section)
            and wide > header.sectionSize(section) + PIXELS
        ):
            yield f"{text!r} in {_place(header)}"


def _of_view(view: QAbstractItemView) -> Iterator[str]:
    """Yield the cells that the view's own delegate elides."""
    model, option = view.model(), QStyleOptionViewItem()
    top = QModelIndex()
    for row in range(min(model.rowCount(top), 40)) if model is not None else ():
        for column in range(
            1 if isinstance(view, QListView) else model.columnCount(top)
        ):
            index = model.index(row, column)
            area = view.visualRect(index)
            tip = index.data(Qt.ItemDataRole.ToolTipRole)
            if (
                area.isEmpty()
                or tip
                or type(view.itemDelegateForIndex(index)).paint
                is not QStyledItemDelegate.paint
            ):
                continue
            if (
                view.itemDelegateForIndex(index).sizeHint(option, index).width()
                > area.width() + PIXELS
            ):
                yield f"cell {index.data()!r} in {_place(view)}"


def _place(widget: QWidget) -> str:
    names = []
    while widget is not None and not widget.isWindow():
        names.append(widget.objectName() or type(widget).__name__)
        widget = widget.parentWidget()
    return " < ".join(names[:5])


def _tips_of_graphs(window: WholeWindow) -> str:
    """Return the tool tips of all nodes, groups and notes in graphs, one after the other."""
    canvas = window.canvas.scene
    parts = [item.text for item in canvas.nodes.values()]
    parts += [note.text for note in canvas.notes.comments.values()]
    for scene in (window.room.scene, window.diff.structure.scene):
        parts += [
            part.tooltip for part in (*scene.boxes.values(), *scene.groups.values())
        ]
    return "\n".join(parts)


def test_no_text_is_cut_without_a_tool_tip_in_any_size_and_text_size(
    qtbot: QtBot, window: WholeWindow, elisions: Elisions
) -> None:
    window.files.open_example("digits.tape")
    ready(qtbot, window)
    window.furnish()
    window.selection.set(
        [
            next(
                key
                for key, each in window.sheet.project.graph.nodes.items()
                if each.name == "conv1"
            )
        ]
    )
    for feature in window.features:
        for page in feature.pages():
            if page.dock == "centre":
                window.pages.show(page.key)
    found = set()
    try:
        for size, text in LOOKS:
            window.resize(*size)
            theme.manager().set_scale(text)
            QApplication.processEvents()
            for pane in (
                window.centre,
                window.left.pane,
                window.right.pane,
                window.bottom.pane,
            ):
                for key in pane._keys:
                    if pane.tabs.isTabVisible(pane.tabs.index(key)):
                        pane.show_page(key)
                        found |= {
                            f"{size} {text} {key}: {each}"
                            for each in _settled(window, elisions)
                        }
                        window.grab()
        tips = _tips_of_graphs(window)
        found |= elisions.painted | {
            f"{each!r} in a graph" for each in elisions.drawn if each not in tips
        }
    finally:
        theme.manager().set_scale(1.0)
    assert not found, "\n".join(sorted(found))
