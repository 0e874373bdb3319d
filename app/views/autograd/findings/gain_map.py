"""The heat map of gradient gain by layer and step."""

from __future__ import annotations

from app.views.training.charts.gradient_map import GradientMap


class GainMap(GradientMap):
    """Remaining gradient, gain, or dead units, by layer and step; other widgets explain a loss of gradient."""

    def __init__(self) -> None:
        super().__init__(("reach", "gain", "dead"))

    def _judge(self) -> None:
        return
