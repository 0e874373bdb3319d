"""What happens when a person takes a cure: an edit of the sheet, of the training or the data, or a place to look at."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject

from app.builder.diagnostics.problems import Cure, apply_cure
from app.builder.edits import edits
from app.views.navigation import NETWORK

if TYPE_CHECKING:
    from app.views.main_window import MainWindow


class CureControl(QObject):
    """Applies a cure to the project of the window as one undo step, or leads to where the person chooses."""

    def __init__(self, window: MainWindow) -> None:
        super().__init__(window)
        self._window = window

    def apply(self, cure: Cure) -> None:
        """Mend a problem of the sheet in front, or show the file that waits to be trusted, or the list of data."""
        window = self._window
        if cure.opens:
            window.layers.look(cure.opens)
        elif cure.chooses_data:
            window.furnish()
            window.right.show()
            window.right.pane.show_page("training")
            window.training_form.choose_data()
        elif cure.settings or cure.data:
            project = window.document.project
            training, data = replace(project.training, **cure.settings), replace(project.data, **cure.data)
            window.document.apply(cure.label, replace(project, training=training, data=data))
        else:
            sheet = window.sheet.project
            graph = apply_cure(sheet.graph, window.catalog.now, cure)
            window.sheet.apply(cure.label, window.canvas.placed(edits.changed(sheet, graph)))

    def apply_to_network(self, cure: Cure) -> None:
        """Mend a problem of the network, which comes to the front."""
        if not cure.opens and not cure.chooses_data:
            self._window.place.go_to(NETWORK)
        self.apply(cure)
