"""Export in the window: code and weights, and the drawing as a picture."""

from __future__ import annotations

from collections.abc import Iterable

from app.builder.diagram import to_drawing
from app.features.export.export_control import ExportControl
from app.views.feature import Action, Feature
from app.views.pictures.picture_export import PictureExport
from app.views.workspace import Workspace


class ExportFeature(Feature):
    rank = 190

    def __init__(self, workspace: Workspace) -> None:
        super().__init__(workspace)
        self.export_control = ExportControl(workspace)
        self.pictures = PictureExport(workspace)

    def actions(self) -> Iterable[Action]:
        return (
            Action(
                "export",
                "&Export code and weights…",
                self.export_control.ask,
                "Ctrl+E",
                "export",
                menu="file.results",
            ),
            Action(
                "export-drawing",
                "Export the &drawing…",
                self.export_drawing,
                "Ctrl+Shift+E",
                menu="file.results",
            ),
        )

    def export_drawing(self) -> None:
        """Ask for a file, then write the drawing of the sheet in front, with unfolded blocks open."""
        workspace = self.workspace
        project, block = workspace.document.project, workspace.place.block
        name = f"{project.name}-{block}" if block else project.name
        analysis = workspace.live.analysis
        drawing = to_drawing(
            workspace.sheet.project,
            workspace.catalog,
            analysis.sheet if analysis is not None else None,
            title=name,
        )
        if drawing.boxes:
            self.pictures.choose_file(
                drawing, "Export the drawing", name, project=project
            )
        else:
            workspace.notifier.refuse(
                "Nothing was exported", "Nothing on the canvas yet."
            )
