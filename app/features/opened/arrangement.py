"""Which parts of a model are open, and where they are: worked out on any thread, with progress, and cancelled."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from msgspec import Struct

from app.diagram.layout import KnownPlaces
from app.features.opened.folding import Tree
from app.features.opened.picture import to_drawing
from app.observe.figures import ModuleFigures
from app.views.autograd.graph.scene import ArrangedDrawing, arranged

READABLE = 0.85  # scale at which the names, 12 pixels high, are 10
MOST_FITTING = 250  # boxes that are tried to fit a page
MOST_AT_FIRST = 4000  # boxes of the first level: more are not opened unasked
MOST_PAGES = 8  # that are scrolled through
EDGE = 12.0  # around the first picture
# What is tried until all fits at full size: the scale that the page is laid out for, and how much of its width a row
# takes; None leaves that to the layout.
TRIES = (
    (1.0, None),
    (1.0, 0.75),
    (1.0, 1.0),
    (READABLE, None),
    (READABLE, 0.75),
    (READABLE, 1.0),
)
KEPT = 4000  # groups whose places are kept

Size = tuple[float, float]


class LayoutCancelledError(Exception):
    """The picture is not wanted any more."""


class Arrangement(NamedTuple):
    """The keys of the open parts, where everything is, and the width of its rows; None if the layout chose it."""

    opened: frozenset[str]
    done: ArrangedDrawing
    figures: Mapping[str, ModuleFigures]
    row: float | None = None


class Arranger(Struct):
    """Lays out one model again and again; groups that stay as they are keep the places that were worked out."""

    tree: Tree
    _known: KnownPlaces = {}

    def arrange(
        self,
        opened: frozenset[str],
        figures: Mapping[str, ModuleFigures],
        page: Size,
        row: float | None = None,
        tell: Callable[[float], object] = lambda _done: None,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> Arrangement:
        """Lay the picture out with these parts open; `tell` receives the fraction that is done. Raises
        LayoutCancelledError."""

        def progress(done: float) -> None:
            if cancelled():
                raise LayoutCancelledError
            tell(done)

        progress(0.0)
        drawing = to_drawing(self.tree.observation, opened, self.tree, figures)
        progress(0.0)
        if len(self._known) > KEPT:
            self._known.clear()
        return Arrangement(
            opened,
            arranged(drawing, page, row, True, self._known, progress),
            figures,
            row,
        )

    def fit(
        self,
        figures: Mapping[str, ModuleFigures],
        room: Size,
        tell: Callable[[float], object] = lambda _done: None,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> Arrangement:
        """Open as many levels as fit `room`, in pixels of the view, at a readable scale: the first one in any case,
        unless it is very large. Where not even that fits, its rows are as wide as the room, to be read from the top
        down, unless that takes many pages. Raises LayoutCancelledError."""
        best: Arrangement | None = None
        closed: frozenset[str] = frozenset()
        for opened, shown in self.tree.levels():
            if shown > (MOST_FITTING if best is not None else MOST_AT_FIRST):
                break
            tries = []
            for scale, share in TRIES if shown <= MOST_FITTING else TRIES[:1]:
                page = (room[0] / scale, room[1] / scale)
                row = page[0] * share if share is not None else None
                tries.append(self.arrange(opened, figures, page, row, tell, cancelled))
                if tries[-1].done.scale_in(room, EDGE) >= 1.0:
                    break
            arrangement = max(
                tries, key=lambda attempt: attempt.done.scale_in(room, EDGE)
            )
            if best is not None and arrangement.done.scale_in(room, EDGE) < READABLE:
                break
            best = arrangement
            if arrangement.done.scale_in(room, EDGE) < READABLE:
                row = room[0] / READABLE
                long = self.arrange(
                    opened,
                    figures,
                    (row, room[1] / READABLE),
                    row - 2 * EDGE,
                    tell,
                    cancelled,
                )
                return (
                    long
                    if long.done.layout.height * READABLE < MOST_PAGES * room[1]
                    else best
                )
        return best or self.arrange(closed, figures, room, None, tell, cancelled)
