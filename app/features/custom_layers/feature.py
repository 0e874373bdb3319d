"""Feature "custom layers": files of layers below the palette, and the banner that asks for a review."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from PySide6.QtCore import QMimeData, QPoint
from PySide6.QtWidgets import QMenu

from app.builder.catalog.custom import is_custom, module_of
from app.features.custom_layers.file_rows import OwnFiles, python_files
from app.views.feature import Action, Feature
from app.views.ui import icons
from app.views.workspace import Workspace


class CustomLayersFeature(Feature):
    rank = 60

    def __init__(self, workspace: Workspace) -> None:
        super().__init__(workspace)
        self._title = ""  # of the banner that asks about a file
        self.own_files = OwnFiles()
        workspace.pages.add_below("layers", self.own_files)

    def actions(self) -> Iterable[Action]:
        yield Action(
            "add-layers",
            "Add a layer &file…",
            self.workspace.layers.choose,
            icon="code",
            menu="layer.file",
        )

    def begin(self) -> None:
        workspace, layers, rows = self.workspace, self.workspace.layers, self.own_files
        workspace.drawing.of_op.append(self._fill_menu)
        rows.add_wanted.connect(layers.choose)
        rows.dropped.connect(layers.add)
        rows.look_wanted.connect(layers.review)
        rows.remove_wanted.connect(layers.remove)
        rows.import_wanted.connect(
            lambda path: workspace.commands.trigger("import-file", path)
        )
        layers.changed.connect(rows.set_files)
        layers.waiting.connect(self._wait)
        layers.refused.connect(workspace.notifier.refuse)
        layers.said.connect(workspace.notifier.say)
        layers.changed.connect(self._settled)
        workspace.document.replaced.connect(self._forget)
        workspace.live.analysed.connect(
            lambda analysis: layers.note_tried(analysis.source.files)
        )
        rows.set_files(layers.files)

    def drop(self, data: QMimeData) -> Callable[[], object] | None:
        paths = python_files(data)
        return (lambda: self.workspace.layers.add(paths)) if paths else None

    def _fill_menu(self, menu: QMenu, key: str, _at: QPoint) -> None:
        if is_custom(key):
            look = self.workspace.layers.review
            menu.addAction(
                icons.icon("eye"), "View its file…", lambda: look(module_of(key))
            )

    def _wait(self, title: str, reason: str, action: str) -> None:
        """Ask in a banner, which does not interrupt the user as a dialog would."""
        self._title = title
        self.workspace.notifier.warn(
            title, reason, action, self.workspace.layers.review
        )

    def _settled(self, _files: object) -> None:
        """Hide the banner once its file is trusted or gone."""
        layer_file = self.workspace.layers.file_of(self.workspace.layers.asked_about)
        if self._title and (layer_file is None or layer_file.trusted):
            self.workspace.notifier.withdraw(self._title)
            self._title = ""

    def _forget(self, _project: object) -> None:
        """Hide the banner of the previous project, whose files may share titles with this one's."""
        self._title = ""
