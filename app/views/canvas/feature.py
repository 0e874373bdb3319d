"""Feature "canvas": the page "Network", its commands, and the overlays on its nodes."""

from __future__ import annotations

from collections.abc import Iterable

from app.builder.catalog.catalog import catalog
from app.builder.results import Analysis
from app.preflight import starting_net
from app.views.canvas.canvas import Canvas
from app.views.canvas.way import WayOverCanvas
from app.views.feature import Adopted, Feature, Page
from app.views.ui.dialogs.ask import PromptBox
from app.views.workspace import Workspace


class CanvasFeature(Feature):
    rank = 10

    def __init__(self, workspace: Workspace) -> None:
        super().__init__(workspace)
        self.canvas = Canvas(workspace.sheet, workspace.selection, workspace.catalog)
        workspace.drawing.attach(self.canvas, PromptBox(workspace.window))
        self.way = WayOverCanvas(workspace, self.canvas)

    def pages(self) -> Iterable[Page]:
        yield Page(
            "network",
            "Network",
            "network",
            "centre",
            lambda: self.canvas,
            early=True,
            words="Net&work",
            shortcut="Ctrl+1",
            home=lambda: self.canvas.view,
        )

    def actions(self) -> Iterable[Adopted]:
        return [
            Adopted(
                f"canvas.{row.key}",
                self.canvas.actions_by_key[row.key],
                menu=row.menu,
            )
            for row in self.canvas.action_rows
        ]

    def overlays(self) -> Iterable[str]:
        return ("Shapes",)

    def begin(self) -> None:
        workspace, canvas, live = self.workspace, self.canvas, self.workspace.live
        canvas.cureRequested.connect(workspace.cures.apply)
        canvas.editRequested.connect(self._edit)
        canvas.findRequested.connect(lambda: workspace.commands.trigger("find"))
        canvas.insideRequested.connect(self._go_inside)
        canvas.exampleRequested.connect(lambda: workspace.commands.trigger("gallery"))
        canvas.netRequested.connect(lambda: workspace.commands.trigger("start-net"))
        canvas.leaveRequested.connect(workspace.place.leave)
        canvas.legendShown.connect(workspace.notifier.make_way)
        workspace.sheet.refused.connect(canvas.say)
        workspace.sheet.leaving.connect(self._forget_analysis)
        workspace.catalog.changed.connect(self._ops_changed)
        live.shapes_ready.connect(self._shapes_ready)
        workspace.hearers.add(self._on_analysis)
        workspace.overlays.gradients_drawn.connect(canvas.set_gradients)
        workspace.overlays.costs_drawn.connect(canvas.set_costs)
        workspace.overlays.pictures_drawn.connect(canvas.scene.set_pictures)
        workspace.run_control.started.connect(lambda _run: canvas.set_running(True))
        workspace.session.stateChanged.connect(self._run_state)

    def close(self) -> None:
        self.way.store()

    def _edit(self, node: str) -> None:
        """Enter on a node: its inside, if it is an instance of a block, else its form."""
        if not self.workspace.place.enter(node):
            self.workspace.commands.trigger("edit-fields")

    def _go_inside(self, node: str, way: Iterable[str]) -> None:
        """Show the sheet of a node inside an instance, and select the node there."""
        workspace, steps = self.workspace, [(step, 0) for step in (node, *way)]
        if workspace.place.go_to((*workspace.place.path, *steps[:-1])):
            workspace.selection.set([steps[-1][0]])

    def _ops_changed(self) -> None:
        """Update nodes whose blocks or custom layers have changed: their ports may differ."""
        scene, torchs = self.canvas.scene, catalog()
        scene.refresh_faces(
            {node.op for node in scene.graph.nodes.values() if node.op not in torchs}
        )

    def _forget_analysis(self) -> None:
        """Drop the analysis of the previous sheet, whose nodes may have the same ids."""
        scene = self.canvas.scene
        scene.analysis, scene.problems = None, {}

    def _shapes_ready(self, shapes: Analysis) -> None:
        """Show shapes on the canvas at once; other views wait for the whole analysis."""
        in_front = self.workspace.live.front_of(shapes)
        if in_front is not None:
            self.canvas.set_shapes(in_front)

    def _on_analysis(self) -> None:
        in_front = self.workspace.live.in_front
        if in_front is not None and self.workspace.live.up_to_date:
            self.canvas.set_analysis(in_front)
            bare = not self.workspace.place.path
            project = self.workspace.document.project
            self.canvas.set_offer(starting_net.offer(project) if bare else "")

    def _run_state(self, _state: str) -> None:
        if not self.workspace.session.active:
            self.canvas.set_running(False)
