"""Who hears whom about files of layers: the control, the rows of the palette, the banner, the analysis."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QMimeData, QObject

from app.builder.catalog.custom import module_of
from app.views.custom_layers.file_rows import python_files

if TYPE_CHECKING:
    from app.views.main_window import MainWindow


class LayerLinks(QObject):
    """The wiring of one window."""

    def __init__(self, window: MainWindow) -> None:
        super().__init__(window)
        self._window = window
        self._title = ""
        layers, rows = window.layers, window.own_files
        rows.add_wanted.connect(layers.choose)
        rows.dropped.connect(layers.add)
        rows.look_wanted.connect(layers.look)
        rows.remove_wanted.connect(layers.remove)
        rows.import_wanted.connect(window.import_control.ask)
        window.palette_view.look_wanted.connect(lambda key: layers.look(module_of(key)))
        layers.changed.connect(rows.set_files)
        layers.waiting.connect(self._wait)
        layers.refused.connect(window.refuse)
        layers.said.connect(window.say)
        layers.changed.connect(self._settled)
        window.banner.acted.connect(self._acted)
        window.live.analysed.connect(lambda analysis: layers.note_tried(analysis.source.files))
        rows.set_files(layers.files)

    def _wait(self, title: str, reason: str, action: str) -> None:
        """A strip rather than a dialog: who is drawing is not interrupted."""
        self._title = title
        self._window.banner.set("warning", title, reason, action)
        self._window.banner.show()

    def _acted(self) -> None:
        if self.speaks():
            self._window.layers.look()

    def _settled(self, _files: object) -> None:
        """The strip goes once the file that it speaks of is trusted, or is gone."""
        one = self._window.layers.file_of(self._window.layers.asked_about)
        if self.speaks() and (one is None or one.trusted):
            self._window.banner.hide()

    def speaks(self) -> bool:
        """Whether the banner is about a file of layers."""
        return bool(self._title) and self._window.banner.title() == self._title

    def drop(self, data: QMimeData) -> bool:
        """Add the Python files that were let go over the window; False if there are none."""
        paths = python_files(data)
        if paths:
            self._window.layers.add(paths)
        return bool(paths)
