"""Feature "blocks": the Block menu, the library, and the palette's menu for a block."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from app.views.blocks.block_control import BlockControl
from app.views.blocks.block_menu import BlockMenu
from app.views.blocks.library_control import LibraryControl
from app.views.feature import Action, Feature
from app.views.workspace import Workspace


class BlocksFeature(Feature):
    rank = 70

    def __init__(self, workspace: Workspace) -> None:
        super().__init__(workspace)
        self.block_control = BlockControl(workspace)
        self.library_control = LibraryControl(workspace, self.block_control.target_block)
        workspace.drawing.of_op.append(BlockMenu(workspace.document, self.block_control, self.library_control).fill)

    def actions(self) -> Iterable[Action]:
        control, library = self.block_control, self.library_control
        return (
            Action("block.make", "&Make Block…", control.make, "Ctrl+G", "block"),
            Action("block.expand", "&Expand Block", control.expand, "Ctrl+Shift+G"),
            Action("block.in", "Go &In", control.go_in, "Alt+Down"),
            Action("block.out", "Go &Out", control.go_out, "Alt+Up"),
            Action("block.params", "Edit &Parameters of the Instance", control.edit_params, "Alt+Return", "inspector"),
            Action("block.repeat", "&Repeat…", control.repeat, "Ctrl+Shift+R"),
            Action("block.unique", "Make &Unique", control.make_unique, "Ctrl+U"),
            Action("block.expose", "E&xpose Parameter…", control.expose, "Ctrl+Shift+X"),
            Action("block.rename", "Re&name Block…", control.rename, "Shift+F2"),
            Action("block.save", "&Save to Library…", library.save, icon="save"),
            Action("block.folder", "Show &Library Folder", library.show_folder, icon="folder"),
            Action("block.choose", "&Choose Library Folder…", library.choose_folder),
        )

    def begin(self) -> None:
        self.block_control.enable()

    def finish(self) -> Iterator[None] | None:
        self.library_control.read()
        return None
