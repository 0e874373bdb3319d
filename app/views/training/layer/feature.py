"""A layer's inside in the window: the page "Layer"."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from app.views.feature import Feature, Page, Steps

if TYPE_CHECKING:
    from app.views.training.layer.layer_control import LayerControl
    from app.views.training.layer.layer_page import LayerPage


class LayerFeature(Feature):
    rank = 170
    layer_page: LayerPage
    layer_control: LayerControl

    def pages(self) -> Iterable[Page]:
        yield Page("layer", "Layer", "layers", "bottom", self._make, 338, on_demand=True, words="&Layer",
                   controls=lambda: self.layer_page.controls)  # fmt: skip

    def _make(self) -> Steps:
        from app.views.training.layer.layer_charts import HistogramChart, RatioChart
        from app.views.training.layer.layer_page import LayerPage

        values = HistogramChart()
        yield
        ratio = RatioChart()
        yield
        self.layer_page = LayerPage(values, ratio)
        return self.layer_page

    def finish(self) -> Iterator[None] | None:
        from app.views.training.layer.layer_control import LayerControl

        self.layer_control = LayerControl(self.workspace, self.layer_page)
        return None
