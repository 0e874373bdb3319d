"""Feature "canvas": the page "Network", its commands, and the overlays on its nodes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from PySide6.QtCore import QObject, QPointF

from app.builder.blocks import Block, block_of
from app.builder.catalog.catalog import catalog
from app.builder.edits import blocks
from app.builder.results import Analysis
from app.preflight import starting_net
from app.project.project import Project
from app.source.generated import Path as Way
from app.views.canvas.breadcrumb import NETWORK as OUTERMOST
from app.views.canvas.breadcrumb import Crumb
from app.views.canvas.canvas import Canvas
from app.views.canvas.overlays import arrange_overlays
from app.views.feature import Adopted, Feature, Page
from app.views.selection import RESTORED
from app.views.ui.dialogs.ask import PromptBox
from app.views.ui.widgets.painting import announce
from app.views.workspace import Workspace

# --- Navigation on the canvas: the breadcrumb, and zoom, position and selection of each sheet, which are restored

Look = tuple[float, QPointF]  # how near, and at what


def _way(stored: Iterable[tuple[str, int]]) -> Way:
    return tuple((str(node), int(number)) for node, number in stored)


class WayOverCanvas(QObject):
    """Follows the person into blocks and out of them."""

    def __init__(self, workspace: Workspace, canvas: Canvas) -> None:
        super().__init__(canvas)
        self._workspace, self._canvas = workspace, canvas
        self._looks: dict[Way, Look] = {}
        self._kept: dict[
            str, Any
        ] = {}  # what the settings hold of the project that is being opened
        workspace.place.changed.connect(self._moved)
        workspace.document.changed.connect(lambda _before, _after: self._show_way())
        workspace.document.leaving.connect(self.store)
        workspace.document.replaced.connect(self._replaced)
        canvas.restores = self._restore
        canvas.breadcrumb.chosen.connect(self._crumb_chosen)
        self._show_way()

    def store(self) -> None:
        """Store how the sheets of the open project are shown, if it has a file."""
        path, way, view = (
            self._workspace.document.path,
            self._workspace.place.path,
            self._canvas.view,
        )
        if path is None or not self._canvas.isVisible():
            return
        self._looks.pop(way, None)
        if not view.whole:  # else it is fitted to whatever size the window has
            self._looks[way] = (view.zoom, view.visible_area().center())
        looks = [[way, zoom, at.x(), at.y()] for way, (zoom, at) in self._looks.items()]
        selected = sorted(self._workspace.selection.ids)
        self._workspace.settings.set_view_of(
            path, {"way": way, "looks": looks, "selected": selected}
        )

    def _replaced(self, _project: Project) -> None:
        path = self._workspace.document.path
        self._looks.clear()
        self._kept = self._workspace.settings.view_of(path) if path is not None else {}

    def _restore(self) -> bool:
        """Show the project as it was left; False if that is not known."""
        stored, self._kept = self._kept, {}
        try:
            looks = {
                _way(way): (float(zoom), QPointF(x, y))
                for way, zoom, x, y in stored.get("looks", ())
            }
            way, selected = (
                _way(stored.get("way", ())),
                frozenset(map(str, stored.get("selected", ()))),
            )
        except (TypeError, ValueError):
            return False
        workspace, view = self._workspace, self._canvas.view
        self._looks.update(looks)
        if way:
            workspace.place.go_to(way)
        workspace.selection.set(
            selected & workspace.sheet.project.graph.nodes.keys(), RESTORED
        )
        if workspace.place.path not in looks:
            return bool(workspace.place.path)  # then it has been framed
        zoom, middle = looks[workspace.place.path]
        view.zoom_to(zoom)
        view.show_point(middle)
        return True

    def _crumb_chosen(self, number: int) -> None:
        """Show a part of the path; at its end, the next repetition."""
        navigation = self._workspace.place
        if number < len(navigation.path):
            navigation.go_to(navigation.path[:number])
        elif navigation.path:
            *before, (node, turn) = navigation.path
            repeat = self._sheets()[-2].graph.owner(node).repeat
            navigation.go_to((*before, (node, (turn + 1) % repeat)))

    def _moved(self, before: Way, after: Way) -> None:
        """Show another sheet: fitted at first, later as it was left."""
        workspace, canvas = self._workspace, self._canvas
        self._looks[before] = (canvas.view.zoom, canvas.view.visible_area().center())
        outwards = before[: len(after)] == after
        turned = [node for node, _ in before] == [node for node, _ in after]
        if not turned:
            workspace.selection.set(
                [before[len(after)][0]] if outwards and len(before) > len(after) else ()
            )
        canvas.scene.select_wires(())
        if outwards and after in self._looks:
            zoom, middle = self._looks[after]
            canvas.view.zoom_to(zoom)
            canvas.view.show_point(middle)
        elif not turned:
            canvas.frame_all()
        self._show_way()
        announce(canvas, canvas.breadcrumb.accessibleName())

    def _sheets(self) -> list[Project | Block]:
        """Return the sheets along the path, the network first."""
        project = self._workspace.document.project
        sheets: list[Project | Block] = [project]
        for node, _ in self._workspace.place.path:
            sheets.append(project.blocks[block_of(sheets[-1].graph.nodes[node].op)])
        return sheets

    def _show_way(self) -> None:
        """Show the path in the breadcrumb."""
        navigation, project = self._workspace.place, self._workspace.document.project
        navigation.step_out()
        sheets, crumbs = self._sheets(), [OUTERMOST]
        for i, (node, turn) in enumerate(navigation.path):
            value = sheets[i].graph.nodes[node]
            repeat = sheets[i].graph.owner(node).repeat
            last = i == len(navigation.path) - 1
            tip = (
                f"Go to {value.name}"
                if not last
                else f"{sheets[i + 1].name}, in {value.name}"
            )
            if last and repeat > 1:
                tip = f"Number {turn + 1} of {repeat}. Click to see the next one."
            crumbs.append(
                Crumb(
                    f"{value.name} {turn + 1}/{repeat}" if repeat > 1 else value.name,
                    tip,
                )
            )
        note = ""
        if navigation.path:
            name = sheets[-1].name
            others = len(blocks.instances(project, name))
            note = f"class {name}" + (
                f" · {others} instances follow" if others > 1 else ""
            )
        if self._canvas.breadcrumb.set_crumbs(crumbs, note):
            arrange_overlays(self._canvas)


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
        workspace.overlays.heat_drawn.connect(canvas.set_heat)
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
