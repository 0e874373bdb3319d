"""Unfold blocks in place, and fold them: one undo step each, on all sheets that show them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from app.builder.arrange import Size
from app.builder.blocks import block_of, with_blocks
from app.builder.catalog.catalog import Catalog
from app.builder.edits import unfolding
from app.builder.edits.blocks import NETWORK, Whole, sheet_named, with_sheet
from app.project.document import Document
from app.project.project import Project
from app.views.canvas.items.faces import face_of
from app.views.canvas.items.node_shapes import shape_of
from app.views.navigation import SheetDocument
from app.views.ui.widgets.painting import announce

if TYPE_CHECKING:
    from app.views.canvas.canvas import Canvas

MARGIN = 96.0  # about a sheet in the window
LEAST_ROOM = (640.0, 320.0)


class Folding:
    """Unfolds and folds blocks on a canvas. A node is given by its id on the sheet in front, and the path from
    there into unfolded blocks."""

    def __init__(self, canvas: Canvas) -> None:
        self._canvas = canvas

    # --- Ground

    @property
    def _document(self) -> Document:
        """The whole document, also where the canvas has a sheet of it."""
        return self._canvas.document.whole

    @property
    def _front(self) -> str:
        document = self._canvas.document
        return document.name if isinstance(document, SheetDocument) else NETWORK

    @property
    def _project(self) -> Project:
        """Return the whole project, with a position for every node of the sheet in front."""
        return with_sheet(
            self._document.project, self._front, self._canvas.commands.project
        )

    def instances(self) -> frozenset[str]:
        """Return the selected nodes that can be unfolded."""
        return self._canvas.selection.ids & unfolding.instances_on(
            self._document.project, self._front
        )

    @property
    def any_here(self) -> bool:
        """Return whether anything on the sheet can be unfolded."""
        return bool(unfolding.instances_on(self._document.project, self._front))

    def is_unfolded(self, nodes: Collection[str]) -> bool:
        """Return whether all given nodes are unfolded."""
        return frozenset(nodes) <= self._canvas.document.project.unfolded

    # --- Commands

    def toggle(self) -> None:
        """Unfold the selected instances, or fold them if all of them are unfolded."""
        nodes = self.instances()
        if not nodes:
            self._canvas.say("Select an instance of a block to unfold it")
            return
        fold = self.is_unfolded(nodes)
        unfolded = self._canvas.document.project.unfolded
        verb = "Fold" if fold else "Unfold"
        text = f"{verb} {self._canvas.commands.many(nodes)}"
        self._apply(
            text, {self._front: unfolded - nodes if fold else unfolded | nodes}, nodes
        )

    def toggle_at(self, node: str, inside: Sequence[str] = ()) -> None:
        """Unfold or fold one block, on the sheet in front or within an unfolded one."""
        project, name = self._document.project, self._front
        *way, last = (node, *inside)
        for step in way:
            name = block_of(sheet_named(project, name).graph.nodes[step].op)
        drawn = sheet_named(project, name)
        verb = "Fold" if last in drawn.unfolded else "Unfold"
        self._apply(
            f"{verb} {drawn.graph.nodes[last].name}",
            {name: drawn.unfolded ^ {last}},
            [node],
        )

    def one_level(self) -> None:
        """Unfold the visible folded blocks, in the selected instances or everywhere."""
        nodes = self.instances() or None
        unfolded = unfolding.one_level(self._document.project, self._front, nodes)
        if not unfolded:
            self._canvas.say(
                "Everything is unfolded"
                if self.any_here
                else "No block on this sheet can be unfolded"
            )
            return
        self._apply("Unfold one level", unfolded, nodes)

    def fold_all(self) -> None:
        """Fold everything that is unfolded, on the sheet and within it."""
        shown = unfolding.shown_within(self._document.project, self._front)
        unfolded: dict[str, frozenset[str]] = {
            sheet: frozenset() for sheet, nodes in shown.items() if nodes
        }
        if not unfolded:
            self._canvas.say("Nothing is unfolded here")
            return
        self._apply("Fold all", unfolded, None)

    def _apply(
        self,
        text: str,
        unfolded: Mapping[str, Collection[str]],
        nodes: Collection[str] | None,
    ) -> None:
        """Apply one undo step; then show the unfolded blocks, or everything if all were."""
        canvas = self._canvas
        with canvas.glide.from_here():
            project = unfolding.with_unfolded(
                self._project, unfolded, self._sizes, self._room
            )
            self._document.apply(text, project)
            announce(canvas.view, text)
            if nodes is None:
                canvas.frame_all()
                return
            area = canvas.scene.rect_of(nodes)
            if not canvas.view.visible_area().contains(area):
                canvas.view.frame(area, most=canvas.view.zoom)

    def make_room(self, before: Project, after: Project, block: str) -> Project:
        """Return the project after an edit of a block, with room wherever it is shown unfolded."""
        return unfolding.with_room_for(before, after, block, self._sizes, self._room)

    @property
    def _room(self) -> Size:
        """Return the size of the window available to a sheet."""
        width, height = self._canvas.width() - MARGIN, self._canvas.height() - MARGIN
        return Size(max(width, LEAST_ROOM[0]), max(height, LEAST_ROOM[1]), 0.0)

    def _sizes(self, project: Whole, name: str) -> list[dict[str, Size]]:
        """Return the possible sizes of a sheet's nodes: as drawn now, as drawn without shapes, and none, as commands
        without a window lay out."""
        scene = self._canvas.scene
        catalog = with_blocks(
            getattr(scene.catalog, "now", scene.catalog), project.blocks
        )
        drawn = sheet_named(project, name)
        plain = _sizes_of(drawn, catalog, None)
        if name != self._front or scene.analysis is None:
            return [plain, {}]
        return [_sizes_of(drawn, catalog, scene.analysis), plain, {}]


def _sizes_of(sheet: Any, catalog: Catalog, analysis: Any) -> dict[str, Size]:
    graph = sheet.graph
    faces = {
        node: face_of(graph, node, catalog, analysis, {}, node in sheet.unfolded)
        for node in graph.nodes
    }
    return {node: shape_of(face).size for node, face in faces.items()}
