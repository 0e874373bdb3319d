"""What can be done with a block of the palette, by the right mouse button or the menu key."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QPoint
from PySide6.QtWidgets import QMenu

from app.builder.blocks import block_of
from app.project.library import KEY as LIBRARY
from app.views.ui import icons

if TYPE_CHECKING:
    from app.project.document import Document
    from app.views.blocks.block_control import BlockControl
    from app.views.blocks.library_control import LibraryControl


class BlockMenu:
    """Context menu of a block: one of the project can be edited, one of the library shown in its folder."""

    def __init__(self, document: Document, control: BlockControl, library: LibraryControl) -> None:
        self._document, self._control, self._library = document, control, library

    def fill(self, menu: QMenu, key: str, at: QPoint) -> None:
        """Add what can be done with the op `key`; what asks for a name asks at a spot of the window."""
        name, control, library = block_of(key), self._control, self._library
        if name in self._document.project.blocks:
            menu.addAction(icons.icon("block"), "Edit", lambda: control.edit(name))
            menu.addSeparator()
            menu.addAction("Rename…", lambda: control.rename(name, at))
            menu.addAction(icons.icon("copy"), "Duplicate", lambda: control.duplicate(name))
            menu.addAction(icons.icon("save"), "Save to library…", lambda: library.save(name, at))
            menu.addSeparator()
            menu.addAction(icons.icon("trash"), "Delete", lambda: control.delete(name))
        elif key.startswith(LIBRARY):
            menu.addAction(icons.icon("folder"), "Show library folder", library.show_folder)
