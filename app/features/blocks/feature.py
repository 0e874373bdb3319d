"""Feature "blocks": the Block menu, the library, and the palette's menu for a block."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from PySide6.QtCore import QPoint
from PySide6.QtWidgets import QMenu

from app.builder.blocks import block_of
from app.features.blocks.block_control import BlockControl
from app.features.blocks.library_control import LibraryControl
from app.project.library import KEY as LIBRARY
from app.views.feature import Action, Feature
from app.views.ui import icons
from app.views.workspace import Workspace

if TYPE_CHECKING:
    from app.project.document import Document


class BlocksFeature(Feature):
    rank = 70

    def __init__(self, workspace: Workspace) -> None:
        super().__init__(workspace)
        self.block_control = BlockControl(workspace)
        self.library_control = LibraryControl(
            workspace, self.block_control.target_block
        )
        workspace.drawing.of_op.append(
            _BlockMenu(
                workspace.document, self.block_control, self.library_control
            ).fill
        )

    def actions(self) -> Iterable[Action]:
        control, library = self.block_control, self.library_control
        return (
            Action(
                "block.make",
                "&Make block…",
                control.make,
                "Ctrl+G",
                "block",
                menu="block.make",
            ),
            Action(
                "block.expand",
                "&Expand block",
                control.expand,
                "Ctrl+Shift+G",
                menu="block.make",
            ),
            Action("block.in", "Go &in", control.go_in, "Alt+Down", menu="block.go"),
            Action("block.out", "Go &out", control.go_out, "Alt+Up", menu="block.go"),
            Action(
                "block.params",
                "Edit &parameters of the instance",
                control.edit_params,
                "Alt+Return",
                "inspector",
                menu="block.instance",
            ),
            Action(
                "block.repeat",
                "&Repeat…",
                control.repeat,
                "Ctrl+Shift+R",
                menu="block.instance",
            ),
            Action(
                "block.unique",
                "Make &unique",
                control.make_unique,
                "Ctrl+U",
                menu="block.instance",
            ),
            Action(
                "block.expose",
                "E&xpose parameter…",
                control.expose,
                "Ctrl+Shift+X",
                menu="block.instance",
            ),
            Action(
                "block.rename",
                "Re&name block…",
                control.rename,
                "Shift+F2",
                menu="block.instance",
            ),
            Action(
                "block.save",
                "&Save to library…",
                library.save,
                icon="save",
                menu="block.library",
            ),
            Action(
                "block.folder",
                "Show &library folder",
                library.show_folder,
                icon="folder",
                menu="block.library",
            ),
            Action(
                "block.choose",
                "&Choose library folder…",
                library.choose_folder,
                menu="block.library",
            ),
        )

    def begin(self) -> None:
        self.block_control.enable()
        self.library_control.read()


class _BlockMenu:
    """Context menu of a block: one of the project can be edited, one of the library shown in its folder."""

    def __init__(
        self, document: Document, control: BlockControl, library: LibraryControl
    ) -> None:
        self._document, self._control, self._library = document, control, library

    def fill(self, menu: QMenu, key: str, at: QPoint) -> None:
        """Add what can be done with the op `key`; what asks for a name asks at a spot of the window."""
        name, control, library = block_of(key), self._control, self._library
        if name in self._document.project.blocks:
            menu.addAction(icons.icon("block"), "Edit", lambda: control.edit(name))
            menu.addSeparator()
            menu.addAction("Rename…", lambda: control.rename(name, at))
            menu.addAction(
                icons.icon("copy"), "Duplicate", lambda: control.duplicate(name)
            )
            menu.addAction(
                icons.icon("save"), "Save to library…", lambda: library.save(name, at)
            )
            menu.addSeparator()
            menu.addAction(icons.icon("trash"), "Delete", lambda: control.delete(name))
        elif key.startswith(LIBRARY):
            menu.addAction(
                icons.icon("folder"), "Show library folder", library.show_folder
            )
