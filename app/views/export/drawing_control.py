"""The drawing on the canvas as a file: a picture, DOT or JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.builder.diagram import to_drawing

if TYPE_CHECKING:
    from app.diagram.diagram import Drawing
    from app.views.export.picture_export import PictureExport
    from app.views.workspace import Workspace


def sheet_drawing(workspace: Workspace) -> Drawing:
    """Return a drawing of the sheet in front, with unfolded blocks open."""

    analysis = workspace.live.analysis
    sheet = analysis.sheet if analysis is not None else None
    return to_drawing(
        workspace.sheet.project, workspace.catalog, sheet, title=_name(workspace)
    )


def export_drawing(workspace: Workspace, pictures: PictureExport) -> None:
    """Ask where to, then write the drawing of the sheet in front."""
    drawing = sheet_drawing(workspace)
    if not drawing.boxes:
        workspace.notifier.refuse("Nothing was exported", "Nothing on the canvas yet.")
        return
    pictures.choose_file(
        drawing,
        "Export the drawing",
        _name(workspace),
        project=workspace.document.project,
    )


def _name(workspace: Workspace) -> str:
    project = workspace.document.project
    return (
        f"{project.name}-{workspace.place.block}"
        if workspace.place.block
        else project.name
    )
