"""All comments and frames of the drawing: items, selection and hit testing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from PySide6.QtCore import QPointF, QRectF
from PySide6.QtWidgets import QGraphicsScene

from app.builder.graph import Graph
from app.builder.sheet import Comment, Comments
from app.util.formatting import counted
from app.util.frozen import FrozenMap
from app.views.canvas.notes.item import Edges, NoteItem
from app.views.ui.graphview.spatial import RectIndex

if TYPE_CHECKING:
    from app.builder.results import Analysis


class Notes:
    """Keeps the items in line with a sheet's comments. Which are selected is the canvas's own affair, as with wires."""

    def __init__(self, scene: QGraphicsScene) -> None:
        self._scene = scene
        self.items: dict[str, NoteItem] = {}
        self.comments: Comments = FrozenMap()
        self.selected: frozenset[str] = frozenset()
        self._hovered: str | None = None
        self._zoom = 1.0

    def show(self, comments: Comments) -> bool:
        """Update the items; return whether anything changed."""
        if comments is self.comments:
            return False
        self.comments = comments
        for key in [key for key in self.items if key not in comments]:
            item = self.items.pop(key)
            self._scene.removeItem(item)
            self._scene.removeItem(item.title)
        for key, note in comments.items():
            if key in self.items:
                self.items[key].set_note(note)
            else:
                self.items[key] = item = NoteItem(key, note)
                item.set_zoom(self._zoom)
                item.set_state(selected=key in self.selected)
                self._scene.addItem(item)
                self._scene.addItem(item.title)
        self.selected &= self.items.keys()
        return True

    def drag(self, notes: Mapping[str, Comment]) -> None:
        """Show notes otherwise while they are dragged; the project does not know of it yet."""
        for key, note in notes.items():
            self.items[key].set_note(note)

    def settle(self) -> None:
        """Show every note as the project has it."""
        for key, item in self.items.items():
            item.set_note(self.comments[key])

    def count(self, subtitles: Mapping[str, str]) -> None:
        """Put words behind the titles of frames."""
        for key, item in self.items.items():
            item.set_subtitle(subtitles.get(key, ""))

    def set_zoom(self, zoom: float) -> None:
        self._zoom = zoom
        for item in self.items.values():
            item.set_zoom(zoom)

    def select(self, notes: Iterable[str]) -> None:
        """Show a selection."""
        selection = frozenset(notes) & self.items.keys()
        for key in selection ^ self.selected:
            self.items[key].set_state(selected=key in selection)
        self.selected = selection

    def set_hovered(self, note: str | None) -> None:
        """Set the hovered note."""
        if note != self._hovered:
            for key in (self._hovered, note):
                if key in self.items:
                    self.items[key].set_state(hovered=key == note)
            self._hovered = note

    def retheme(self) -> None:
        for item in self.items.values():
            item.retheme()

    # --- Questions

    def note_at(self, point: QPointF, zoom: float) -> tuple[str, Edges] | None:
        """Return the note at a point, and its edges that a press there drags, if any."""
        for item in sorted(self.items.values(), key=lambda item: -item.zValue()):
            grip = item.grip_at(point, zoom)
            if grip or item.holds(point):
                return item.key, grip
        return None

    def bodies(self, notes: Iterable[str] | None = None) -> list[QRectF]:
        """Return the rectangles of some notes, or of all."""
        return [
            item.body
            for key, item in self.items.items()
            if notes is None or key in notes
        ]


def subtotals(
    notes: Mapping[str, NoteItem],
    node_index: RectIndex[str],
    graph: Graph,
    analysis: Analysis | None,
) -> dict[str, str]:
    """Format the number of parameters in each frame; a module that is called twice counts once."""
    texts = {}
    for key, item in notes.items():
        if analysis is not None and item.is_frame:
            body = item.body
            inside = (
                node
                for node in node_index.inside(body)
                if body.contains(node_index[node].center())
            )
            owners = {graph.owner(node).id for node in inside if node in graph.nodes}
            count = sum(analysis.parameters.get(node, 0) for node in owners)
            texts[key] = f"{counted(count, 'param')}" if count else ""
    return texts
