"""The bars over a graph: one searches its nodes, one tells of the paths between two selected places and marks them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from PySide6.QtCore import Signal

from app.autograd.grouping import LayerGroup
from app.autograd.pictures.search import between, find
from app.autograd.tape import Tape, TapeNode
from app.views.autograd.graph.scene import TapeScene
from app.views.autograd.graph.view import TapeView
from app.views.ui.widgets.banner import Banner
from app.views.ui.widgets.find_bar import FindBar


class PathHighlight(Banner):
    """Highlights paths and reports their length. Their ends are kept as backward nodes, so that folding does not lose
    them."""

    def __init__(
        self,
        scene: TapeScene,
        view: TapeView,
        item_of: Callable[[str], TapeNode | LayerGroup | None],
    ) -> None:
        super().__init__()
        self._scene, self._view, self._item_of = scene, view, item_of
        self._place: Sequence[str] = ()
        self._ends: tuple[tuple[str, frozenset[int]], ...] = ()
        self.hide()
        self.acted.connect(self.frame_it)
        self.closed.connect(self.end)

    def mark(self, key: str) -> None:
        """Highlight and frame the gradient's paths between the selection and another box or group."""
        here = self._scene.current_key()
        if not here or here == key:
            self._scene.choose(key)
            return
        self._ends = (self._end(here), self._end(key))
        self.show_in(self._place)
        self.frame_it()

    def _end(self, key: str) -> tuple[str, frozenset[int]]:
        """Return the name of a box or group and its backward nodes."""
        item = self._item_of(key)
        if isinstance(item, LayerGroup):
            return item.title, frozenset(item.nodes)
        assert isinstance(item, TapeNode)
        where = f" in {item.layer}" if item.layer else ""
        return item.parameters[
            0
        ] if item.parameters else f"{item.name}{where}", frozenset({item.id})

    def show_in(self, box_of_node: Sequence[str]) -> None:
        """Update to another folding of the tape: `place[i]` is the box of node `i`."""
        self._place, drawing = box_of_node, self._scene.drawing
        if not self._ends or drawing is None:
            return
        (origin, here), (other, there) = self._ends
        highlighted, back = between(
            ((arrow.source, arrow.target) for arrow in drawing.arrows),
            frozenset(box_of_node[node] for node in here),
            frozenset(box_of_node[node] for node in there),
        )
        self._scene.set_highlighted(highlighted)
        if not highlighted:
            self.set(
                "info",
                f"No gradient flows between {origin} and {other}",
                "Press Esc to clear",
            )
        else:
            first, last = (other, origin) if back else (origin, other)
            count, boxes = len(highlighted), len(drawing.boxes)
            summary = f"{count:,} of {boxes:,} boxes are on the gradient's path from {first} to {last}"
            self.set("info", summary, "", "Frame it")
        self.show()

    def frame_it(self) -> None:
        """Show all of it, and no more than that."""
        if self._scene.highlighted:
            self._view.frame(
                self._scene.area_of_boxes(self._scene.highlighted).adjusted(
                    -40, -40, 40, 40
                ),
                1.25,
            )

    def end(self) -> None:
        """Remove the highlight and return the focus to the graph."""
        self.clear()
        self._view.setFocus()

    def clear(self) -> None:
        self._ends = ()
        self.hide()
        self._scene.set_highlighted(frozenset())


class TapeFinder(FindBar):
    """Search field. `found(node)` emits the id of the backward node to show."""

    found = Signal(int)

    def __init__(self) -> None:
        self._tape: Tape | None = None
        self._places: tuple[int, ...] = ()
        self._at = -1
        super().__init__("Find a node by name, layer, parameter or saved tensor")

    def set_tape(self, tape: Tape | None) -> None:
        """Search another tape from now on; the shown matches stay."""
        self._tape = tape
        if tape is None:
            self.hide()
        self._search()

    def _search(self) -> None:
        query = "" if self.isHidden() else self.field.text()
        self._places, self._at = (
            (() if self._tape is None else find(self._tape, query)),
            -1,
        )
        self.show_count(-1, 0)
        if self._places:
            self.count.setText(f"{len(self._places):,} found")

    def search(self) -> None:
        self._search()
        self.go_to_match(1)

    def go_to_match(self, step: int) -> None:
        if self._places:
            self._at = (self._at + step) % len(self._places)
            self.show_count(self._at, len(self._places))
            self.found.emit(self._places[self._at])
