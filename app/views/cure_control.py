"""Applies a cure: edits the sheet, the training settings or the data, or shows a place."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from app.builder.diagnostics.problems import Cure, apply_cure
from app.builder.edits import edits
from app.views.navigation import NETWORK

if TYPE_CHECKING:
    from app.views.actions import Actions
    from app.views.drawing import CanvasFacade
    from app.views.layers_control import LayersControl
    from app.views.navigation import SheetDocument
    from app.views.project_catalog import ProjectCatalog


class CureControl:
    """Applies a cure to the open project as one undo step, or leads to where the person chooses."""

    def __init__(
        self,
        sheet: SheetDocument,
        catalog: ProjectCatalog,
        layers: LayersControl,
        drawing: CanvasFacade,
        commands: Actions,
    ) -> None:
        self._sheet, self._catalog, self._layers = sheet, catalog, layers
        self._drawing, self._commands = drawing, commands

    def apply(self, cure: Cure) -> None:
        """Mend a problem of the sheet in front, or show the file that waits to be trusted, or the list of data."""
        document = self._sheet.whole
        if cure.opens:
            self._layers.review(cure.opens)
        elif cure.chooses_data:
            self._commands.trigger("choose-data")
        elif cure.settings or cure.data:
            project = document.project
            training, data = (
                project.training.changed(**cure.settings),
                replace(project.data, **cure.data),
            )
            document.apply(cure.label, replace(project, training=training, data=data))
        else:
            sheet = self._sheet.project
            graph = apply_cure(sheet.graph, self._catalog.now, cure)
            rest = sheet.positions.without(*cure.moved)
            mended = self._drawing.with_positions(edits.changed(sheet, graph, rest))
            self._sheet.apply(cure.label, mended)
            self._drawing.reveal(graph.nodes.keys() - rest.keys())

    def apply_to_network(self, cure: Cure) -> None:
        """Mend a problem of the network, which comes to the front."""
        if not cure.opens and not cure.chooses_data:
            self._sheet.place.go_to(NETWORK)
        self.apply(cure)
