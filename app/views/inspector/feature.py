"""The inspector in the window: the page "Inspector", which the Autograd tab puts another in the place of."""

from __future__ import annotations

from collections.abc import Iterable

from PySide6.QtWidgets import QStackedWidget

from app.views.feature import Action, Feature, Page
from app.views.inspector.inspector import Inspector
from app.views.selection import RESTORED
from app.views.workspace import Workspace


class InspectorFeature(Feature):
    rank = 30

    def __init__(self, workspace: Workspace) -> None:
        super().__init__(workspace)
        self.inspector = Inspector(
            workspace.sheet, workspace.selection, workspace.catalog, workspace.engine
        )
        self.inspectors = QStackedWidget()
        self.inspectors.addWidget(self.inspector)

    def pages(self) -> Iterable[Page]:
        yield Page(
            "inspector",
            "Inspector",
            "inspector",
            "right",
            lambda: self.inspectors,
            early=True,
        )

    def actions(self) -> Iterable[Action]:
        yield Action("edit-fields", "", self.edit)

    def begin(self) -> None:
        workspace, inspector = self.workspace, self.inspector
        inspector.cure_requested.connect(workspace.cures.apply)
        inspector.frame_requested.connect(workspace.show_node)
        workspace.live.torch_loaded.connect(lambda _torch: inspector.set_torch_loaded())
        workspace.selection.changed.connect(self._selected)
        workspace.overlays.cost_known.connect(inspector.set_cost)
        workspace.document.replaced.connect(
            lambda _project: inspector.overview.forget_analysis()
        )
        workspace.hearers.add(self._on_analysis)

    def edit(self) -> None:
        """Put the caret into the form of the selected node."""
        self.workspace.pages.show("inspector")
        self.inspector.focus_first_field()

    def _selected(self, ids: frozenset[str], origin: object) -> None:
        if ids and origin != RESTORED:
            self.workspace.pages.turn_to("inspector")

    def _on_analysis(self) -> None:
        in_front = self.workspace.live.in_front
        if in_front is not None and self.workspace.live.up_to_date:
            self.inspector.set_analysis(in_front)
