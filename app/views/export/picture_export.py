"""Export drawings as files, rendered by Graphviz in the background, or by `picture` where there is no `dot`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from PySide6.QtCore import QObject, Signal
from PySide6.QtWidgets import QFileDialog, QWidget

from app import graphviz_export
from app.diagram.diagram import Drawing
from app.views.settings import Settings
from app.views.ui.background import Background, WorkerFailure

FILTERS = "SVG (*.svg);;PDF (*.pdf);;PNG (*.png);;DOT (*.dot);;JSON (*.json)"
# Suffix -> the file type's name in the dialog, and the function that writes it.
Pages = dict[str, tuple[str, Callable[[Path], None]]]


class PictureExport(QObject):
    """Emits `said(title, detail)` after writing a file and `refused(title, reason)` after a failure."""

    said = Signal(str, str)
    refused = Signal(str, str)

    def __init__(self, background: Background, settings: Settings, window: QWidget) -> None:
        super().__init__(window)
        self._background, self._settings, self._window = background, settings, window

    def choose_file(self, drawing: Drawing, title: str, stem: str, others: Pages | None = None) -> None:
        """Ask for a file, then write the drawing; `others` are further formats, by suffix."""
        start = self._settings.export_folder / f"{stem}.svg"
        filters = ";;".join([FILTERS, *(words for words, _ in (others or {}).values())])
        name, chosen = QFileDialog.getSaveFileName(self._window, title, str(start), filters)
        if name:
            path = Path(name)
            suffix = chosen.partition("*")[2].rstrip(")") or ".svg"
            path = path if path.suffix else path.with_suffix(suffix)
            if others and (other := others.get(path.suffix.lower())):
                other[1](path)
            else:
                self.export(drawing, path)

    def export(self, drawing: Drawing, path: Path) -> None:
        """Write a drawing in the format of the file's suffix."""
        self._settings.export_folder = path.parent
        if path.suffix.lower().removeprefix(".") in graphviz_export.TEXTS or graphviz_export.has_dot():
            export, done, failed = graphviz_export.export, self._exported, self._not_exported
            self._background.ask(f"export {path}", export, drawing, path, on_answer=done, on_error=failed)
            return
        from app.views.export.picture import paint

        try:
            self._exported(graphviz_export.export(drawing, path, paint))
        except (OSError, graphviz_export.ExportError) as error:
            self.refused.emit(f"{path.name} was not written", str(error))

    def _exported(self, exported: Any) -> None:
        if exported.path.suffix.lower().removeprefix(".") in graphviz_export.TEXTS:
            by = str(exported.path.parent)
        else:
            dot = exported.by == "dot"
            by = "Drawn by Graphviz." if dot else "Drawn by Tapedeck; Graphviz's dot is not installed."
        self.said.emit(f"Saved {exported.path.name}", by)

    def _not_exported(self, failure: WorkerFailure) -> None:
        self.refused.emit("The picture was not written", str(failure.error))
