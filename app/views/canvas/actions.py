"""The canvas's actions, for its keys, its context menus, the main window's menus and the list of commands."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from PySide6.QtCore import Qt
from PySide6.QtGui import QAction, QKeySequence
from PySide6.QtWidgets import QWidget

from app.views import icons


@dataclass(frozen=True)
class Row:
    """One action: the key it is asked for by, its words, its shortcuts, its icon."""

    key: str
    text: str
    shortcuts: tuple[str, ...] = ()
    icon: str = ""


ROWS = (
    Row("search", "Add Layer…", ("Tab",), "add"),
    Row("cut", "Cut", ("Ctrl+X",), "cut"),
    Row("copy", "Copy", ("Ctrl+C",), "copy"),
    Row("paste", "Paste", ("Ctrl+V",), "paste"),
    Row("duplicate", "Duplicate", ("Ctrl+D",)),
    Row("delete", "Delete", ("Delete", "Backspace"), "trash"),
    Row("delete_reconnect", "Delete and Reconnect", ("Ctrl+Delete", "Ctrl+Backspace")),
    Row("select_all", "Select All", ("Ctrl+A",)),
    Row("edit", "Edit Parameters", ("Return", "Enter"), "inspector"),
    Row("rename", "Rename…", ("F2",)),
    Row("lay_out", "Lay Out", ("L",), "tree"),
    Row("frame_selection", "Frame Selection", ("F", "."), "frame"),
    Row("frame_all", "Frame Everything", ("Home",), "frame"),
    Row("zoom_in", "Zoom In", ("+", "=", "Ctrl++", "Ctrl+="), "add"),
    Row("zoom_out", "Zoom Out", ("-", "Ctrl+-"), "remove"),
    Row("zoom_100", "Zoom to 100 %", ("Ctrl+0",)),
    Row("cancel", "Cancel or Select Nothing", ("Esc",)),
    Row("left", "Walk Left along the Wire", ("Left",)),
    Row("right", "Walk Right along the Wire", ("Right",)),
    Row("up", "Walk to the Node Above", ("Up",)),
    Row("down", "Walk to the Node Below", ("Down",)),
    Row("nudge_left", "Nudge Left", ("Shift+Left",)),
    Row("nudge_right", "Nudge Right", ("Shift+Right",)),
    Row("nudge_up", "Nudge Up", ("Shift+Up",)),
    Row("nudge_down", "Nudge Down", ("Shift+Down",)),
)


def make(widget: QWidget, does: dict[str, Callable[[], object]]) -> dict[str, QAction]:
    """The actions by key, added to a widget so that their shortcuts work in it and in its children alone."""
    actions = {}
    for row in ROWS:
        action = QAction(row.text, widget)
        action.setObjectName(f"canvas.{row.key}")
        action.setShortcuts([QKeySequence(keys) for keys in row.shortcuts])
        action.setShortcutContext(Qt.ShortcutContext.WidgetWithChildrenShortcut)
        if row.icon:
            action.setIcon(icons.icon(row.icon))
        action.triggered.connect(_caller(does[row.key]))
        widget.addAction(action)
        actions[row.key] = action
    return actions


def _caller(function: Callable[[], object]) -> Callable[[], None]:
    """Without the `checked` that `triggered` brings along."""

    def call() -> None:
        function()

    return call
