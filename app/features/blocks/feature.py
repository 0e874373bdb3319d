"""Feature "blocks": the Block menu, the library, and the palette's menu for a block."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QFileSystemWatcher, QObject, QPoint, QUrl
from PySide6.QtGui import QDesktopServices
from PySide6.QtWidgets import QFileDialog, QMenu

from app.builder.blocks import BlockError, block_of
from app.builder.edits import blocks as block_edits
from app.features.blocks.block_control import BlockControl
from app.project import library
from app.project.file import ProjectFileError
from app.project.library import KEY as LIBRARY
from app.views.feature import Action, Feature
from app.views.ui import icons
from app.views.workspace import Workspace

if TYPE_CHECKING:
    from app.project.document import Document

# --- The library of blocks in the window: lists its folder, and stores blocks in it


class LibraryControl(QObject):
    """Rereads the folder when it changes. Each invalid file is reported once."""

    def __init__(self, workspace: Workspace, meant: Callable[[], str]) -> None:
        """`meant` returns the block that a command applies to; without one, "" after it showed a message."""
        super().__init__(workspace.window)
        self._workspace, self._meant = workspace, meant
        self._said: set[Path] = set()
        self._watcher = QFileSystemWatcher(self)
        self._watcher.directoryChanged.connect(lambda _path: self.read())
        workspace.settings.changed.connect(self._setting_changed)

    @property
    def folder(self) -> Path:
        return self._workspace.settings.library_folder

    def read(self) -> None:
        """Offer the current contents of the folder."""
        content = library.read(self.folder)
        self._workspace.catalog.set_library(content)
        if self.folder.is_dir() and str(self.folder) not in self._watcher.directories():
            self._watcher.addPath(str(self.folder))
        for path, reason in content.unread:
            if path not in self._said:
                self._said.add(path)
                self._workspace.notifier.say(
                    f"{path.name} was not saved to the library", reason
                )

    def save(self, name: str = "", at: QPoint | None = None) -> None:
        """Ask for a name and keep a block: the one given, the one selected or the one in front."""
        workspace = self._workspace
        name = name or self._meant()
        if not name:
            return
        warned: set[str] = set()

        def answer(new: str) -> str:
            stored = workspace.catalog.library
            if library.KEY + new in stored and new not in warned:
                warned.add(new)
                return f"The library already has a block {new}. Press Enter again to replace it."
            return self.write(name, new)

        hint = f"Saved to {self.folder} with everything it contains, available in every project."
        workspace.drawing.ask("Save to the library", name, hint, answer, at)

    def write(self, name: str, new: str) -> str:
        """Store a block under a name; return "" or why it was refused."""
        try:
            project = self._workspace.document.project
            path = library.save(
                block_edits.rename_block(project, name, new), new, self.folder
            )
        except (BlockError, ProjectFileError) as error:
            return str(error)
        except OSError as error:
            return f"{error.strerror or error}: {self.folder}. Choose another folder in the Block menu."
        self.read()
        self._workspace.notifier.say(f"{new} was saved to the library", str(path))
        return ""

    def show_folder(self) -> None:
        """Open the folder in the system's own window."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            self._workspace.notifier.refuse(
                "The library folder cannot be created",
                f"{error.strerror or error}: {self.folder}",
            )
            return
        QDesktopServices.openUrl(QUrl.fromLocalFile(str(self.folder)))

    def choose_folder(self) -> None:
        """Ask for another folder."""
        name = QFileDialog.getExistingDirectory(
            self._workspace.window, "Folder of the library", str(self.folder)
        )
        if name:
            self.set_folder(Path(name))

    def set_folder(self, folder: Path) -> None:
        self._workspace.settings.library_folder = folder

    def _setting_changed(self, name: str) -> None:
        """Read the folder that was chosen, here or in the settings."""
        if name == "library_folder":
            if self._watcher.directories():
                self._watcher.removePaths(self._watcher.directories())
            self.read()


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
