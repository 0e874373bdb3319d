"""Export drawings as files: a dialog with their size on paper, then the file, written in the background."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PySide6.QtCore import QObject, QPointF, QSize, Qt, Signal
from PySide6.QtGui import QImage, QPainter, QPaintEvent
from PySide6.QtWidgets import QCheckBox, QComboBox, QFileDialog, QFormLayout, QWidget

from app.diagram.diagram import Drawing
from app.graphviz_export import has_dot
from app.project import file
from app.project.project import Project
from app.views.pictures.picture import CARRIERS, preview, write
from app.views.pictures.printing.paper import PAPERS, Choice
from app.views.ui import theme
from app.views.ui.background import Background, WorkerFailure
from app.views.ui.dialogs.base import Dialog
from app.views.ui.widgets.painting import label

if TYPE_CHECKING:
    from app.views.workspace import Workspace

# --- The dialog of a picture: its size on paper, the arrangement, the project in it, and how it will look

CANVAS = (("", "As on the canvas, where it fits"), ("canvas", "As on the canvas"))
ROWS, DOT = (("rows", "In rows"),), (("dot", "Laid out by Graphviz"),)
ROOM = QSize(600, 340)
PROJECT = "An SVG or PNG can then be opened as the project. Switch this off to show the picture alone."


class Preview(QWidget):
    """A picture on its paper, scaled down to the room that there is."""

    def __init__(self) -> None:
        super().__init__()
        self.image: QImage | None = None
        self._scaled: QImage | None = None  # by averages, so that thin lines stay
        self._room = QSize()
        self.setMinimumSize(ROOM)
        self.setAccessibleName("Preview of the picture")

    def show_image(self, image: QImage) -> None:
        self.image, self._scaled = image, None
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.fillRect(self.rect(), theme.current().window)
        if self.image is None or self.image.isNull():
            return
        ratio = self.devicePixelRatioF()
        room = (self.size() - QSize(16, 16)) * ratio
        if self._scaled is None or self._room != room:
            aspect_mode, smooth = (
                Qt.AspectRatioMode.KeepAspectRatio,
                Qt.TransformationMode.SmoothTransformation,
            )
            self._room, self._scaled = (
                room,
                self.image.scaled(room, aspect_mode, smooth),
            )
            self._scaled.setDevicePixelRatio(ratio)
        size = self._scaled.deviceIndependentSize()
        painter.drawImage(
            QPointF(
                (self.width() - size.width()) / 2, (self.height() - size.height()) / 2
            ),
            self._scaled,
        )


class PictureDialog(Dialog):
    """Choose what the picture is for; `saveRequested` when the file is to be chosen.

    `carries` offers to put the project into the file.
    """

    saveRequested = Signal()

    def __init__(
        self,
        drawing: Drawing,
        title: str,
        background: Background,
        parent: QWidget,
        *,
        choice: Choice,
        carries: bool,
    ) -> None:
        super().__init__(title, parent)
        self._drawing, self._background = drawing, background
        self.preview = Preview()
        self.size_field, self.arranged_field = QComboBox(), QComboBox()
        for paper in PAPERS.values():
            self.size_field.addItem(paper.words, paper.purpose)
        self.size_field.setCurrentIndex(self.size_field.findData(choice.purpose))
        for key, text in ((*CANVAS, *ROWS) if drawing.places else ROWS) + (
            DOT if has_dot() else ()
        ):
            self.arranged_field.addItem(text, key)
        self.arranged_field.setCurrentIndex(
            max(self.arranged_field.findData(choice.arranged or ""), 0)
        )
        form = QFormLayout()
        form.addRow("&Size", self.size_field)
        form.addRow("&Arrangement", self.arranged_field)
        form.setRowVisible(self.arranged_field, self.arranged_field.count() > 1)
        self.project_box = QCheckBox("Include the &project")
        self.project_box.setChecked(carries)
        self.project_box.setToolTip(PROJECT)
        self.project_box.setAccessibleDescription(PROJECT)
        self.project_box.setVisible(carries)
        self.note = label("", "label", "text2", wrap=True)
        self.body.addWidget(self.preview, 1)
        self.body.addLayout(form)
        self.body.addWidget(self.project_box)
        if carries:
            caption = label(PROJECT, "label", "text3", wrap=True)
            caption.setContentsMargins(21, 0, 0, 2)
            self.body.addWidget(caption)
        self.body.addWidget(self.note)
        self.add_button("Cancel").clicked.connect(self.reject)
        self.save_button = self.add_button("Save as…", "primary", default=True)
        self.save_button.clicked.connect(self.saveRequested)
        for field in (self.size_field, self.arranged_field):
            field.currentIndexChanged.connect(self._refresh)
        self._over = False
        self.finished.connect(self._close_preview)
        self._refresh()

    @property
    def choice(self) -> Choice:
        """Return the size and the arrangement chosen."""
        return Choice(
            self.size_field.currentData(), self.arranged_field.currentData() or None
        )

    @property
    def carries(self) -> bool:
        """Return whether the project goes into the file."""
        return self.project_box.isChecked()

    def _refresh(self) -> None:
        arguments = preview, self._drawing, self.choice, 2 * ROOM.width()
        self._background.ask(
            "picture preview", *arguments, on_answer=self._show, on_error=self._failed
        )

    def _close_preview(self) -> None:
        self._over = True  # a preview on its way comes too late

    def _show(self, answer: tuple[str, QImage]) -> None:
        if self._over:
            return
        note, image = answer
        self.note.setText(note)
        self.preview.show_image(image)

    def _failed(self, failure: WorkerFailure) -> None:
        if not self._over:
            self.note.setText(failure.message)


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
