"""Costs in the window: the page "Cost", and the overlay on the canvas."""

from __future__ import annotations

from collections.abc import Iterable

from app.features.cost.cost_control import CostControl
from app.features.cost.cost_table import CostTable
from app.views.feature import Feature, Page


class CostFeature(Feature):
    rank = 152  # its overlay comes after the gradients
    follows = True
    costs: CostTable
    cost_control: CostControl

    def pages(self) -> Iterable[Page]:
        yield Page(
            "cost",
            "Cost",
            "memory",
            "bottom",
            self._make,
            after="problems",
            words="Co&st",
            controls=lambda: self.costs.controls,
        )

    def overlays(self) -> Iterable[str]:
        return ("Cost",)

    def _make(self) -> CostTable:
        self.costs = CostTable(self.workspace.catalog, self.workspace.network_selection)
        return self.costs

    def finish(self) -> None:
        self.cost_control = CostControl(self.workspace, self.costs)
