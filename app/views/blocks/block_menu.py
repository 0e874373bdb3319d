"""The context menu of an op in the palette."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QPoint
from PySide6.QtWidgets import QMenu

from app.builder.blocks import block_of
from app.builder.catalog.custom import is_custom, module_of
from app.project.library import KEY as LIBRARY
from app.views.ui import icons

if TYPE_CHECKING:
    from app.views.main_window import MainWindow


def op_menu(window: MainWindow, key: str, spot: QPoint) -> QMenu:
    """Return the menu of an op; a block of the project can be edited, one of the library shown in its folder."""
    menu = QMenu(window)
    menu.setObjectName("opMenu")
    menu.addAction(icons.icon("add"), "Put on the Canvas", lambda: window.canvas.add_op(key))
    name = block_of(key)
    control, library = window.block_control, window.library_control
    at = window.mapFromGlobal(spot)
    if name in window.document.project.blocks:
        menu.addAction(icons.icon("block"), "Edit", lambda: control.edit(name))
        menu.addSeparator()
        menu.addAction("Rename…", lambda: control.rename(name, at))
        menu.addAction(icons.icon("copy"), "Duplicate", lambda: control.duplicate(name))
        menu.addAction(icons.icon("save"), "Save to Library…", lambda: library.save(name, at))
        menu.addSeparator()
        menu.addAction(icons.icon("trash"), "Delete", lambda: control.delete(name))
    elif key.startswith(LIBRARY):
        menu.addAction(icons.icon("folder"), "Show Library Folder", library.show_folder)
    elif is_custom(key):
        menu.addAction(icons.icon("eye"), "View Its File…", lambda: window.layers.look(module_of(key)))
    return menu


def show_op_menu(window: MainWindow, key: str, spot: QPoint) -> None:
    """Open the menu of an op at a spot of the screen."""
    menu = op_menu(window, key, spot)
    menu.aboutToHide.connect(menu.deleteLater)
    menu.popup(spot)
