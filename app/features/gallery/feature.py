"""The gallery in the window: a new project from an example."""

from __future__ import annotations

from collections.abc import Iterable

from PySide6.QtCore import Qt

from app.features.gallery.gallery import GalleryDialog
from app.views.feature import Action, Feature


class GalleryFeature(Feature):
    rank = 55

    def actions(self) -> Iterable[Action]:
        yield Action(
            "gallery",
            "New from e&xample…",
            self.ask,
            "Ctrl+Alt+N",
            "network",
            menu="file.project",
            after="new",
        )

    def ask(self) -> None:
        """Show the examples, to choose one."""

        workspace, files = self.workspace, self.workspace.files
        dialog = GalleryDialog(
            workspace.engine, workspace.settings.data_folder, workspace.window
        )
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.chosen.connect(
            lambda path: files.new() if path is None else files.open_example(path.name)
        )
        dialog.open()
