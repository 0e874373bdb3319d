"""A layer's inside in the window: the page "Layer"."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from app.views.feature import Action, Feature, Page

if TYPE_CHECKING:
    from app.features.layer.control import LayerControl
    from app.features.layer.page import LayerPage


class LayerFeature(Feature):
    """The page is made when it is first shown, and shows all that was recorded until then."""

    rank = 170
    layer_page: LayerPage
    layer_control: LayerControl
    _wanted = ""  # before the page was made

    def pages(self) -> Iterable[Page]:
        yield Page(
            "layer",
            "Layer",
            "layers",
            "bottom",
            self._make,
            words="&Layer",
            controls=lambda: self.layer_page.controls,
        )

    def actions(self) -> Iterable[Action]:
        yield Action("choose-layer", "", self._choose)

    def _choose(self, path: str) -> None:
        self._wanted = path
        if hasattr(self, "layer_control"):
            self.layer_control.choose(path)

    def _make(self) -> LayerPage:
        from app.features.layer.page import LayerPage

        self.layer_page = LayerPage()
        return self.layer_page

    def finish(self) -> None:
        from app.features.layer.control import LayerControl

        self.layer_control = LayerControl(self.workspace, self.layer_page)
        if self._wanted:
            self.layer_control.choose(self._wanted)
