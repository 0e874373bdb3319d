"""The drawing on the canvas as a file: a picture, DOT or JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from app.diagram.diagram import Drawing
    from app.views.main_window import MainWindow


def sheet_drawing(window: MainWindow) -> Drawing:
    """The sheet in front as it stands: blocks that are unfolded are seen from within."""
    from app.builder.diagram import to_drawing

    analysis = window.live.analysis
    known = analysis.sheet if analysis is not None else None
    return to_drawing(window.sheet.project, window.catalog, known, title=_name(window))


def export_drawing(window: MainWindow) -> None:
    """Ask where to, then write the drawing of the sheet in front."""
    drawing = sheet_drawing(window)
    if not drawing.boxes:
        window.refuse("Nothing was exported", "Nothing on the canvas yet.")
        return
    window.autograd_control.pictures.choose_file(drawing, "Export the drawing", _name(window))


def _name(window: MainWindow) -> str:
    project = window.document.project
    return f"{project.name}-{window.place.block}" if window.place.block else project.name
