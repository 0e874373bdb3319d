"""Choose the problem that the callout shows: one at a time, so that callouts do not cover each other."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from PySide6.QtCore import QRect, QRectF

from app.builder.diagnostics.problems import Problem

if TYPE_CHECKING:
    from app.views.canvas.canvas import Canvas

NEAR = 0.6  # under this zoom the callout shows only for a node that is selected or pointed at


class Callouts:
    """Keeps the canvas's callout at the node whose problem is shown.

    Unless the user selects or hovers over that node, the callout covers no other node and no control: the error is then
    shown on its node and in the list of problems alone.
    """

    def __init__(self, canvas: Canvas) -> None:
        self._canvas = canvas
        self._hidden: Problem | None = None
        self._asked = self._pointed = False
        self._told: str | None = None
        canvas.callout.dismissed.connect(self._dismiss)

    def show(self, hovered: str | None = None) -> None:
        """Show the problem of the selected node, else of the hovered one, else of the first with an error."""
        canvas = self._canvas
        self._told = self._choose(hovered)
        problem = (
            canvas.scene.problems[self._told][0] if self._told is not None else None
        )
        if problem is None or problem == self._hidden or canvas.view.busy:
            canvas.callout.hide()
            return
        canvas.callout.set_problem(problem)
        self.update_position()

    def _choose(self, hovered: str | None) -> str | None:
        problems, nodes = self._canvas.scene.problems, self._canvas.scene.nodes

        def wrong(node: str | None) -> bool:
            return (
                node in problems
                and node in nodes
                and problems[node][0].severity == "error"
            )

        for node in (self._canvas.selection.single, hovered):
            if (
                node in problems
                and node in nodes
                and (node == hovered or not self._is_new(node))
            ):
                self._asked, self._pointed = True, node == hovered
                return node
        still = wrong(self._told)
        self._asked = (
            self._pointed and still and hovered is None
        )  # the pointer goes to the button
        if still:  # stays while the pointer goes to the button
            return self._told
        return (
            next(filter(wrong, problems), None)
            if self._canvas.view.zoom >= NEAR
            else None
        )

    def _is_new(self, node: str) -> bool:
        """Return whether a node is warned about only because it has no wires yet, as every new one."""
        scene = self._canvas.scene
        warned = scene.problems[node][0].severity != "error"
        return warned and not (scene.graph.into(node) or scene.graph.out_of(node))

    def update_position(self) -> None:
        """Move the callout to its node, where it covers least; hide it while the node is out of view."""
        canvas, callout = self._canvas, self._canvas.callout
        node = canvas.scene.nodes.get(self._told) if self._told is not None else None
        if node is None or callout.problem is None:
            callout.hide()
            return
        body = canvas.on_canvas(node.body)
        if not QRectF(canvas.rect()).intersects(body):
            callout.hide()
            return
        covered, geometry, above = inf, callout.geometry(), False
        for other, side in callout.places_at(body):
            if (covers := self._covered(other)) < covered:
                covered, geometry, above = covers, other, side
            if not covered:
                break
        callout.point_at(body.center().x(), geometry, above)
        welcome = callout.problem != self._hidden and not canvas.view.busy
        callout.setVisible(welcome and (self._asked or not covered))
        if callout.isVisible():
            callout.stackUnder(canvas.search)

    def _covered(self, rect: QRect) -> int:
        """Rate how much a place covers: nodes; a control, or the canvas's edge, counts more."""
        canvas = self._canvas
        controls = (canvas.minimap, canvas.zoom_control, canvas.breadcrumb)
        worse = sum(
            control.isVisible() and control.geometry().intersects(rect)
            for control in controls
        )
        worse += rect.top() < 0 or rect.bottom() > canvas.height()
        corner = canvas.view.mapFrom(canvas, rect.topLeft())
        area = QRectF(canvas.view.mapToScene(QRect(corner, rect.size())).boundingRect())
        return 1000 * worse + sum(
            node != self._told for node in canvas.scene.places.index.inside(area)
        )

    def _dismiss(self, problem: Problem) -> None:
        self._hidden = problem
        self.show()
        self._canvas.view.setFocus()
