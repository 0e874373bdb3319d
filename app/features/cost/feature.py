"""Costs in the window: the page "Cost", and the overlay on the canvas."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, QTimer

from app.builder.catalog.catalog import Catalog
from app.builder.graph import Graph
from app.engine.protocol import EngineDiedError
from app.features.cost.cost_rows import note
from app.features.cost.cost_table import CostTable
from app.features.cost.values import Cost
from app.util.formatting import flop_text, share
from app.views.feature import Feature, Page
from app.views.ui.background import WorkerFailure

if TYPE_CHECKING:
    from app.builder.results import Analysis
    from app.builder.shapes.network_cost import NetworkCost
    from app.views.workspace import Workspace

# --- Requests the network's cost once its shapes are known, and shows it: table, inspector, status line, canvas

# Debounce: shapes are needed at every edit, costs only when editing pauses, so that they delay neither the next shapes
# nor the painting.
REST = 300
OVERLAY = "Cost"
RETRIES = 2  # times the question is repeated in a new engine


class CostControl(QObject):
    """Keeps the costs that are shown those of the open graph."""

    def __init__(self, workspace: Workspace, table: CostTable) -> None:
        super().__init__(workspace.window)
        self._workspace, self._table = workspace, table
        self.cost: NetworkCost | None = None
        self._of: tuple[Graph, Catalog] | None = None
        self._retries = 0
        self._rest = QTimer(self, singleShot=True, interval=REST)
        self._rest.timeout.connect(self._ask)
        workspace.live.analysed.connect(self._analysed)
        workspace.document.changed.connect(self._wait_on)
        workspace.document.replaced.connect(self._forget)
        workspace.place.changed.connect(self._moved)
        workspace.overlays.changed.connect(self._paint)
        table.heat_changed.connect(self._heat_chosen)
        table.jump_requested.connect(workspace.jump_to)
        if workspace.live.analysis is not None:
            self._analysed(workspace.live.analysis)

    def _analysed(self, analysis: Analysis) -> None:
        if not self._is_current(self._of):
            self._rest.start()

    def _wait_on(self, *_projects: object) -> None:
        if self._rest.isActive():
            self._rest.start()

    def _forget(self, _project: object) -> None:
        """Clear the cost of the previous project."""
        self.cost = self._of = None
        self._table.set_cost(None)
        self._workspace.overlays.know_cost(None)
        self._workspace.status.set_compute("")
        self._paint()

    def _is_current(self, question: tuple[Graph, Catalog] | None) -> bool:
        """Return whether a question is about the open graph."""
        workspace = self._workspace
        return (
            question is not None
            and question[0] is workspace.document.project.graph
            and question[1] is workspace.catalog.now
        )

    def _ask(self) -> None:
        question = (self._workspace.document.project.graph, self._workspace.catalog.now)
        self._workspace.engine.ask(
            "cost",
            Cost(*question),
            on_answer=partial(self._on_answer, question),
            on_error=self._failed,
        )

    def _failed(self, failure: WorkerFailure) -> None:
        """Ask again where the engine ended amid the question, but not an engine that ends of it time and again."""
        if not isinstance(failure.error, EngineDiedError):
            raise failure.error
        if self._retries < RETRIES:
            self._retries += 1
            self._rest.start()

    def _moved(self, _before: object, _after: object) -> None:
        """Inside a block show no cost of single nodes: it is shown at the instance."""
        if self.cost is not None:
            self._workspace.overlays.know_cost(
                None if self._workspace.place.path else self.cost
            )
        self._paint()

    def _on_answer(self, question: tuple[Graph, Catalog], cost: NetworkCost) -> None:
        workspace = self._workspace
        if not self._is_current(question):
            return
        self.cost, self._of, self._retries = cost, question, 0
        self._table.set_cost(cost)
        workspace.overlays.know_cost(None if workspace.place.path else cost)
        if cost.flops is None:
            workspace.status.set_compute("")
        else:
            tip = f"Estimated with PyTorch's own formulas; {note(cost)[0].lower()}{note(cost)[1:]}"
            workspace.status.set_compute(f"{flop_text(cost.flops)} per sample", tip)
        self._paint()

    # --- The canvas

    def _heat_chosen(self, _what: str) -> None:
        """Turn the overlay on when its measure is chosen."""
        self._workspace.overlays.choose(OVERLAY)
        self._paint()

    def _paint(self, _overlay: str = "") -> None:
        """Paint a strip on each node with a share of the chosen measure, with the share as text."""
        overlays, cost = self._workspace.overlays, self.cost
        if cost is None or overlays.chosen != OVERLAY or self._workspace.place.path:
            overlays.draw_costs({}, {})
            return
        by_parameters = self._table.controls.value() == "parameters"
        total = cost.parameters if by_parameters else cost.multiply_adds
        parts = {
            node: (node_cost.parameters if by_parameters else node_cost.multiply_adds)
            or 0
            for node, node_cost in cost.nodes.items()
            if node_cost.live
        }
        shares = {
            node: amount / total for node, amount in parts.items() if amount and total
        }
        unit = "params" if by_parameters else "FLOP"
        labels = {node: f"{share(parts[node], total or 0)} {unit}" for node in shares}
        caption = "Share of parameters" if by_parameters else "Multiply-adds, estimated"
        overlays.draw_costs(shares, labels, caption)


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
