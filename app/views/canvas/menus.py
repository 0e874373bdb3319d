"""The context menus: of a node, of a wire, of nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QPoint
from PySide6.QtGui import QAction
from PySide6.QtWidgets import QMenu

from app.views import icons
from app.views.canvas.scene import Hit

if TYPE_CHECKING:
    from app.views.canvas.canvas import Canvas

NODE = (
    "edit", "rename", "replace", "mute", "freeze", None, "cut", "copy", "duplicate", None, "delete",
    "delete_reconnect", None, "frame_selection",
)  # fmt: skip
EMPTY = ("search", "paste", None, "select_all", "lay_out", None, "frame_all", "zoom_100")


def menu_for(canvas: Canvas, hit: Hit, spot: QPoint) -> QMenu:
    """The menu for what was clicked with the right button, at a spot of the screen."""
    menu = QMenu(canvas)
    if hit.wire is not None:
        wire = hit.wire
        canvas.commands.select(())
        canvas.scene.select_wires([wire])
        point = canvas.view.mapToScene(canvas.view.mapFromGlobal(spot))
        cut = QAction(icons.icon("cut"), "Cut Wire", menu)
        cut.triggered.connect(lambda: canvas.commands.cut_wire(wire))
        insert = QAction(icons.icon("add"), "Insert Layer…", menu)
        insert.triggered.connect(lambda: canvas.finder.for_wire(wire, point))
        menu.addActions([insert, cut])
        return menu
    if hit.node is not None and hit.node not in canvas.selection.ids:
        canvas.commands.select([hit.node])
    for key in EMPTY if hit.node is None else NODE:
        if key is None:
            menu.addSeparator()
        elif key == "paste":
            menu.addAction(_paste_here(canvas, menu, spot))
        else:
            menu.addAction(canvas.actions[key])
    return menu


def _paste_here(canvas: Canvas, menu: QMenu, spot: QPoint) -> QAction:
    """Pasting from the menu puts things where the menu was opened."""
    point = canvas.view.mapToScene(canvas.view.mapFromGlobal(spot))
    action = QAction(icons.icon("paste"), "Paste Here", menu)
    action.triggered.connect(lambda: canvas.commands.paste(point))
    return action
