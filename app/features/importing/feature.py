"""Importing a model in the window."""

from __future__ import annotations

from collections.abc import Iterable

from app.features.importing.control import ImportControl
from app.views.feature import Action, Feature
from app.views.workspace import Workspace


class ImportingFeature(Feature):
    rank = 80

    def __init__(self, workspace: Workspace) -> None:
        super().__init__(workspace)
        self.import_control = ImportControl(workspace)

    def actions(self) -> Iterable[Action]:
        yield Action(
            "import",
            "&Import a model…",
            self.import_control.ask,
            "Ctrl+Shift+I",
            "layers",
            menu="file.project",
            after="open",
        )
        yield Action("import-file", "", self.import_control.ask)
        yield Action("redraw", "", self.import_control.redraw)
