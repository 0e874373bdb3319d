"""A layer's inside in the window: the page "Layer"."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from app.views import early_imports
from app.views.feature import Action, Feature, Page, Steps

if TYPE_CHECKING:
    from app.views.training.layer.layer_control import LayerControl
    from app.views.training.layer.layer_page import LayerPage


class LayerFeature(Feature):
    """The page is made on demand, and shows all that was recorded until then."""

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
            on_demand=True,
            words="&Layer",
            controls=lambda: self.layer_page.controls,
        )

    def actions(self) -> Iterable[Action]:
        yield Action("choose-layer", "", self._choose)

    def _choose(self, path: str) -> None:
        self._wanted = path
        if hasattr(self, "layer_control"):
            self.layer_control.choose(path)

    def _make(self) -> Steps:
        yield from early_imports.charts_in_steps()
        from app.views.training.charts import charts  # noqa: F401  its import is a step, and so are those of the others

        yield
        from app.views.training.layer.layer_charts import HistogramChart, RatioChart

        yield
        from app.views.training.layer.layer_page import LayerPage

        yield
        values = HistogramChart()
        yield
        ratio = RatioChart()
        yield
        self.layer_page = LayerPage(values, ratio)
        return self.layer_page

    def finish(self) -> Iterator[None] | None:
        from app.views.training.layer.layer_control import LayerControl

        self.layer_control = LayerControl(self.workspace, self.layer_page)
        if self._wanted:
            self.layer_control.choose(self._wanted)
        return None
