"""The palette in the window: the page "Layers"."""

from __future__ import annotations

from collections.abc import Iterable

from PySide6.QtCore import QPoint
from PySide6.QtWidgets import QMenu

from app.builder.catalog.custom import documentation, is_custom, module_of
from app.engine.requests.documentation import Summaries
from app.engine.requests.shapes import Torch
from app.util.frozen import FrozenMap
from app.views.feature import Feature, Page
from app.views.palette.palette import Palette
from app.views.ui import icons
from app.views.workspace import Workspace


class PaletteFeature(Feature):
    rank = 20

    def __init__(self, workspace: Workspace) -> None:
        super().__init__(workspace)
        self.palette_view = Palette(workspace.catalog)

    def pages(self) -> Iterable[Page]:
        yield Page(
            "layers", "Layers", "layers", "left", lambda: self.palette_view, early=True
        )

    def begin(self) -> None:
        workspace, palette = self.workspace, self.palette_view
        palette.activated.connect(workspace.drawing.add_op)
        palette.menu_wanted.connect(self._show_menu)
        palette.look_wanted.connect(lambda key: workspace.layers.review(module_of(key)))
        workspace.catalog.changed.connect(palette.refill)
        workspace.live.torch_loaded.connect(self._ask_summaries)

    def menu(self, key: str, spot: QPoint) -> QMenu:
        """Return the menu of an op, to open at a point of the screen."""
        menu = QMenu(self.workspace.window)
        menu.setObjectName("opMenu")
        menu.addAction(
            icons.icon("add"),
            "Add to the canvas",
            lambda: self.workspace.drawing.add_op(key),
        )
        at = self.workspace.window.mapFromGlobal(spot)
        for fill in self.workspace.drawing.of_op:
            fill(menu, key, at)
        return menu

    def _show_menu(self, key: str, spot: QPoint) -> None:
        menu = self.menu(key, spot)
        menu.aboutToHide.connect(menu.deleteLater)
        menu.popup(spot)

    def _ask_summaries(self, _torch: Torch) -> None:
        """Request the documentation summaries of the ops, and add those of the user's own."""
        keys = tuple(
            key
            for key, spec in self.workspace.catalog.now.items()
            if spec.definition is None
        )
        documented = {key: documentation(key)[0] for key in keys if is_custom(key)}

        def show(summaries: FrozenMap[str, str]) -> None:
            self.palette_view.set_summaries(summaries.update(documented))

        request = Summaries(tuple(key for key in keys if key not in documented))
        self.workspace.engine.ask("summaries", request, on_answer=show)
