"""Export drawings as files: a dialog with their size on paper, then the file, written in the background."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PySide6.QtCore import QObject
from PySide6.QtWidgets import QFileDialog

from app.diagram.diagram import Drawing
from app.project import file
from app.project.project import Project
from app.views.pictures.picture import CARRIERS, write
from app.views.pictures.picture_dialog import PictureDialog
from app.views.pictures.printing.paper import Choice
from app.views.ui.background import WorkerFailure

if TYPE_CHECKING:
    from app.views.workspace import Workspace

FILTERS = (
    "SVG (*.svg);;PDF (*.pdf);;PNG (*.png);;TikZ (*.tex);;DOT (*.dot);;JSON (*.json)"
)
# Suffix -> the file type's name in the dialog, and the function that writes it.
Pages = dict[str, tuple[str, Callable[[Path], None]]]


class PictureExport(QObject):
    """Says what it has written and what it could not; the size that was chosen last is proposed again."""

    def __init__(self, workspace: Workspace) -> None:
        super().__init__(workspace.window)
        self._background, self._settings = workspace.background, workspace.settings
        self._window, self._notifier = workspace.window, workspace.notifier
        self._choice: Choice | None = None
        self.dialog: PictureDialog | None = None

    def choose_file(
        self,
        drawing: Drawing,
        title: str,
        stem: str,
        others: Pages | None = None,
        project: Project | None = None,
    ) -> None:
        """Ask for the size and for a file, then write the drawing.

        `others` are further formats, by suffix; `project` may be put into the picture.
        """

        dialog = self.dialog = PictureDialog(
            drawing,
            title,
            self._background,
            self._window,
            choice=self._choice or Choice(),
            carries=project is not None,
        )
        dialog.saveRequested.connect(
            lambda: self._choose(dialog, drawing, title, stem, others or {}, project)
        )
        dialog.finished.connect(dialog.deleteLater)
        dialog.finished.connect(lambda: setattr(self, "dialog", None))
        dialog.open()

    def _choose(
        self,
        dialog: PictureDialog,
        drawing: Drawing,
        title: str,
        stem: str,
        others: Pages,
        project: Project | None,
    ) -> None:
        start = self._settings.export_folder / f"{stem}.svg"
        filters = ";;".join(
            [FILTERS, *(description for description, _ in others.values())]
        )
        name, chosen = QFileDialog.getSaveFileName(
            self._window, title, str(start), filters
        )
        if not name:
            return
        self._choice = dialog.choice
        carried = project if dialog.carries else None
        dialog.accept()
        path = Path(name)
        suffix = chosen.partition("*")[2].rstrip(")") or ".svg"
        path = path if path.suffix else path.with_suffix(suffix)
        if other := others.get(path.suffix.lower()):
            other[1](path)
        else:
            self.export(drawing, path, carried)

    def export(
        self, drawing: Drawing, path: Path, project: Project | None = None
    ) -> None:
        """Write a drawing in the format of the file's suffix, in the size chosen last."""
        self._settings.export_folder = path.parent
        arguments = _write, drawing, path, self._choice, project
        self._background.ask(
            f"export {path}",
            *arguments,
            on_answer=self._exported,
            on_error=self._not_exported,
        )

    def _exported(self, written: Any) -> None:
        self._notifier.say(
            f"Saved {written.path.name}", written.note or str(written.path.parent)
        )

    def _not_exported(self, failure: WorkerFailure) -> None:
        self._notifier.refuse("The picture was not written", failure.message)


def _write(
    drawing: Drawing, path: Path, choice: Choice | None, project: Project | None
) -> Any:

    carried = project is not None and path.suffix.lower().removeprefix(".") in CARRIERS
    return write(
        drawing,
        path,
        choice,
        file.bytes_for(project, path) if carried and project is not None else b"",
    )
