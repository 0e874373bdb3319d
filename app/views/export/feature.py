"""Export in the window: code and weights, and the drawing as a picture."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from app.views.feature import Action, Feature

if TYPE_CHECKING:
    from app.views.export.export_control import ExportControl
    from app.views.export.picture_export import PictureExport


class ExportFeature(Feature):
    rank = 190
    export_control: ExportControl
    pictures: PictureExport

    def actions(self) -> Iterable[Action]:
        return (
            Action(
                "export",
                "&Export code and weights…",
                lambda: self.export_control.ask(),
                "Ctrl+E",
                "export",
                late=True,
            ),
            Action(
                "export-drawing",
                "Export the &drawing…",
                self.export_drawing,
                "Ctrl+Shift+E",
                late=True,
            ),
        )

    def finish(self) -> Iterator[None] | None:
        from app.views.export.export_control import ExportControl
        from app.views.export.picture_export import PictureExport

        workspace = self.workspace
        self.export_control = ExportControl(workspace)
        self.pictures = PictureExport(
            workspace.background, workspace.settings, workspace.window
        )
        self.pictures.said.connect(workspace.notifier.say)
        self.pictures.refused.connect(workspace.notifier.refuse)
        return None

    def export_drawing(self) -> None:
        """Ask for a file, then write the drawing of the graph in view."""
        from app.views.export.drawing_control import export_drawing

        export_drawing(self.workspace, self.pictures)
