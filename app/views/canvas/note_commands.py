"""Commands for comments, frames and bends, each an undo step of the document with a text that describes it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from PySide6.QtCore import QPointF

from app.builder.arrange import GRID
from app.builder.edits import bends
from app.builder.edits import comments as notes_edits
from app.builder.edits.comments import Area
from app.builder.graph import Edge
from app.builder.sheet import FRAME, Comment, Point
from app.util.formatting import plural
from app.views.canvas.note_items import height_for
from app.views.ui.graphview.routes import nearest_on

if TYPE_CHECKING:
    from app.views.canvas.commands import Commands
    from app.views.canvas.scene import CanvasScene

NEW_WIDTH = 208.0
NEW_TITLE = "Frame"


class NoteCommands:
    """Edits of notes and bends. `commands` applies each to the document."""

    def __init__(self, commands: Commands, scene: CanvasScene) -> None:
        self._commands, self._scene = commands, scene

    def counts_text(
        self, notes: Iterable[str], among: Mapping[str, Comment] | None = None
    ) -> list[str]:
        """Describe notes: how many frames and how many comments."""
        comments = self._scene.notes.comments if among is None else among
        kinds = [comments[note].kind for note in notes if note in comments]
        frames = sum(kind == FRAME for kind in kinds)
        return [
            f"{number} {plural(number, thing)}"
            for number, thing in ((frames, "frame"), (len(kinds) - frames, "comment"))
            if number
        ]

    # --- Comments and frames

    def add_comment(self, text: str, at: QPointF) -> str:
        """Put a comment with its top left corner at a point; returns its id."""
        x, y = grid(at.x()), grid(at.y())
        note = Comment(text, x, y, NEW_WIDTH, grid_up(height_for(text, NEW_WIDTH)))
        project, new = notes_edits.add(self._commands.project, note)
        self._commands.apply("Add comment", lambda: project)
        self._commands.select((), [new])
        return new

    def frame(self, nodes: Iterable[str], notes: Iterable[str]) -> str:
        """Add a frame around nodes and notes; return its id. Editing its title belongs to the same undo step."""
        inside, noted = tuple(nodes), tuple(notes)
        project, new = notes_edits.frame(
            self._commands.project, inside, self._scene.sizes(), NEW_TITLE, noted
        )
        self._commands.apply(
            f"Put {self._commands.many(inside, noted)} in a frame",
            lambda: project,
            f"new {new}",
        )
        self._commands.select((), [new])
        contained = notes_edits.inside(
            project.comments, project.positions, self._scene.sizes(), new
        )[0]
        strangers = [
            self._commands.name(node) for node in contained if node not in inside
        ]
        if strangers and inside:
            single = len(strangers) == 1
            names = (
                f"{strangers[0]} was"
                if single
                else f"{len(strangers)} other nodes were"
            )
            self._commands.said.emit(
                f"{names} added to the frame and will move with it"
            )
        return new

    def write(self, note: str, text: str, new: bool = False) -> None:
        """Give a note another text; a comment grows with it. With `new` it is one step with making the note."""
        old = self._scene.notes.comments.get(note)
        if old is None or text == old.text:
            return
        frame = old.kind == FRAME
        height = 0.0 if frame else grid_up(height_for(text, old.width))
        change = (
            f"Name frame {text}"
            if frame and text
            else "Edit frame"
            if frame
            else "Edit comment"
        )
        key = f"new {note}" if new else None
        self._commands.apply(
            change,
            lambda: notes_edits.write(self._commands.project, note, text, height),
            key,
        )

    def resize(self, note: str, area: Area) -> None:
        """Give a note another area."""
        text = f"Resize {self._kind(note)}"
        self._commands.apply(
            text, lambda: notes_edits.resize(self._commands.project, note, area)
        )

    def grow(self, dx: float, dy: float) -> None:
        """Move the lower right corner of the selected notes; presses in a row are one step."""
        notes = tuple(self._scene.notes.selected)
        if not notes:
            self._commands.said.emit("Select a comment or a frame to change its size")
            return
        project = self._commands.project
        for note in notes:
            area = notes_edits.rect_of(project.comments[note])
            wide = Area(area.left, area.top, area.right + dx, area.bottom + dy)
            project = notes_edits.resize(project, note, wide)
        self._commands.apply(
            f"Resize {' and '.join(self.counts_text(notes))}",
            lambda: project,
            f"grow {sorted(notes)}",
        )

    def tint(self, color: str) -> None:
        """Give the selected notes a colour."""
        notes = tuple(self._scene.notes.selected)
        text = f"Colour {' and '.join(self.counts_text(notes))}"
        self._commands.apply(
            text, lambda: notes_edits.tint(self._commands.project, notes, color)
        )

    def fit(self) -> None:
        """Fit the selected frames to their contents."""
        notes, sizes = tuple(self._scene.notes.selected), self._scene.sizes()
        text = f"Fit {' and '.join(self.counts_text(notes))}"
        self._commands.apply(
            text, lambda: notes_edits.fit(self._commands.project, notes, sizes)
        )

    def step_to(self, direction: int) -> str | None:
        """Select the next comment or frame in reading order, or the one before; returns it."""
        order = sorted(
            self._scene.notes.items.values(),
            key=lambda item: (item.y() // 40, item.x()),
        )
        if not order:
            self._commands.said.emit("No comments or frames yet; press C to add one")
            return None
        chosen = [
            i for i, item in enumerate(order) if item.key in self._scene.notes.selected
        ]
        here = chosen[0] if chosen else (-1 if direction > 0 else 0)
        note = order[(here + direction) % len(order)].key
        self._commands.select((), [note])
        return note

    def _kind(self, note: str) -> str:
        return self._scene.notes.comments[note].kind

    # --- Bends

    def bend(self, wire: Edge, at: QPointF | None = None) -> None:
        """Put a bend on a wire, at a point or in its middle."""
        path = self._scene.wires[wire].route.path
        start, end = path.pointAtPercent(0.0), path.pointAtPercent(1.0)
        point = path.pointAtPercent(0.5) if at is None else nearest_on(path, at)
        sheet = bends.with_points(
            self._commands.project, wire, self._scene.bends_of(wire)
        )
        project, number = bends.add(sheet, wire, _pair(point), _pair(start), _pair(end))
        self._commands.apply(f"Bend {self._wire(wire)}", lambda: project)
        self._commands.select_wire(wire, number)

    def lead(self, wire: Edge, points: tuple[Point, ...], number: int) -> None:
        """Lead a wire through points, of which one was dragged."""
        self._commands.apply(
            f"Bend {self._wire(wire)}",
            lambda: bends.with_points(self._commands.project, wire, points),
        )
        self._commands.select_wire(wire, number)

    def nudge_bend(self, wire: Edge, number: int, dx: float, dy: float) -> None:
        """Shift a bend; presses in a row are one step."""
        x, y = self._commands.project.bends[wire][number]
        self._commands.apply(
            f"Bend {self._wire(wire)}",
            lambda: bends.move(self._commands.project, wire, number, (x + dx, y + dy)),
            f"bend {wire} {number}",
        )
        self._commands.select_wire(wire, number)

    def unbend(self, wire: Edge, number: int) -> None:
        """Take a bend away."""
        self._commands.apply(
            f"Remove a bend of {self._wire(wire)}",
            lambda: bends.remove(self._commands.project, wire, number),
        )
        left = len(self._commands.project.bends.get(wire, ()))
        self._commands.select_wire(wire, min(number, left - 1) if left else None)

    def straighten(self, wire: Edge) -> None:
        """Take all bends of a wire away."""
        text = f"Straighten {self._wire(wire)}"
        self._commands.apply(
            text, lambda: bends.with_points(self._commands.project, wire, ())
        )

    def _wire(self, wire: Edge) -> str:
        return f"the wire from {self._commands.name(wire.source)} to {self._commands.name(wire.target)}"


def grid(value: float) -> float:
    """Round to the grid."""
    return float(round(value / GRID) * GRID)


def grid_up(value: float) -> float:
    """Round up to the grid."""
    return float(-(-value // GRID) * GRID)


def _pair(point: QPointF) -> Point:
    return point.x(), point.y()
