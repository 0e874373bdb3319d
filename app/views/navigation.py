"""Navigation into nested blocks, and a Document interface to the graph in view."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import cast

from PySide6.QtCore import QObject, Signal
from PySide6.QtGui import QUndoStack

from app.builder import limits
from app.builder.blocks import Block, BlockError, block_of
from app.builder.catalog.catalog import Catalog
from app.builder.edits import blocks
from app.builder.sheet import Sheet
from app.project.document import Document
from app.project.library import Library, with_library_blocks
from app.project.project import Project
from app.source.generated import Path as Way

NETWORK: Way = ()
OPENED = "The network is a model from code, so there is no drawing to edit. Redraw it to get one."


def block_at(project: Project, way: Way) -> str:
    """Return the name of the block at the end of a path, "" for the network. Raises BlockError for an invalid path."""
    sheet: Sheet = project
    name = ""
    for node, number in way:
        value = sheet.graph.nodes.get(node)
        name = block_of(value.op) if value is not None else ""
        if (
            value is None
            or name not in project.blocks
            or not 0 <= number < sheet.graph.owner(node).repeat
        ):
            raise BlockError("This block no longer exists")
        sheet = project.blocks[name]
    return name


def reachable(project: Project, way: Way) -> Way:
    """Return the longest valid prefix of a path."""
    for end in range(len(way), 0, -1):
        try:
            block_at(project, way[:end])
        except BlockError:
            continue
        return way[:end]
    return NETWORK


def way_to(project: Project, block: str) -> Way | None:
    """Return the shortest path to an instance of a block, None if none is reachable from the network."""
    ways: list[tuple[Way, Sheet]] = [(NETWORK, project)]
    visited: set[str] = set()
    for way, sheet in ways:
        for node in sheet.graph.nodes.values():
            name = block_of(node.op)
            if name and name == block:
                return (*way, (node.id, 0))
            if (
                name in project.blocks and name not in visited
            ):  # another instance cannot give a shorter path
                visited.add(name)
                ways.append(((*way, (node.id, 0)), project.blocks[name]))
    return None


def _beyond(after: Project, before: Project) -> str:
    """Return why an edit would exceed the size limit of a file; "" if it does not, or was above it before."""
    try:
        limits.check(after.graph, after.blocks)
    except limits.TooLargeError as error:
        try:
            limits.check(before.graph, before.blocks)
        except limits.TooLargeError:
            return ""
        return str(error)
    return ""


class Navigation(QObject):
    """The path from the network to the open block: instances, each with the number of the repetition.

    `changed(before, after)` is emitted after navigation, or when the open instance was deleted.
    """

    changed = Signal(object, object)

    def __init__(self, document: Document) -> None:
        super().__init__(document)
        self._document = document
        self._way: Way = NETWORK

    @property
    def path(self) -> Way:
        return self._way

    @property
    def block(self) -> str:
        """The name of the block in front, "" for the network."""
        return block_at(self._document.project, self._way)

    def enter(self, node: str, number: int = 0) -> bool:
        """Go into an instance on the sheet in front; False if the node is none."""
        return self.go_to((*self._way, (node, number)))

    def leave(self) -> bool:
        """Go out of the block in front; False in the network."""
        return bool(self._way) and self.go_to(self._way[:-1])

    def go_to(self, way: Way) -> bool:
        """Show the graph that a path leads to; False if there is none."""
        if reachable(self._document.project, way) != way:
            return False
        if way != self._way:
            before, self._way = self._way, way
            self.changed.emit(before, way)
        return True

    def step_out(self) -> None:
        """Leave blocks that no longer exist."""
        self.go_to(reachable(self._document.project, self._way))


class SheetDocument(QObject):
    """The graph in view with the interface of the document: `project` is the graph, `apply` puts it into the project.

    An edit inside a block changes its definition, so all instances follow. `refused` carries why an edit was rejected.
    `changed(before, after)` reports edits, undo, and navigation.
    """

    changed = Signal(object, object)
    replaced = Signal(object)
    path_changed = Signal(object)
    dirty_changed = Signal(bool)
    refused = Signal(str)
    leaving = Signal()  # another sheet comes to the front

    def __init__(
        self, document: Document, place: Navigation, catalog: Catalog | None = None
    ) -> None:
        super().__init__(document)
        self.whole, self.place, self._catalog = document, place, catalog
        self._make_room: Callable[[Project, Project, str], Project] | None = None
        self._shown: Sheet = document.project
        document.changed.connect(self._project_changed)
        document.replaced.connect(self._replaced)
        document.path_changed.connect(self.path_changed)
        document.dirty_changed.connect(self.dirty_changed)
        place.changed.connect(self._moved)

    def make_room_with(
        self, make_room: Callable[[Project, Project, str], Project]
    ) -> None:
        """Have `make_room(before, after, block)` move nodes on other sheets when an edit makes a block larger."""
        self._make_room = make_room

    @property
    def project(self) -> Sheet:
        """The project itself, or the block in front."""
        return self._shown

    @property
    def name(self) -> str:
        """Which sheet it is: the name of the block in front, "" for the network."""
        return self._shown.name if isinstance(self._shown, Block) else blocks.NETWORK

    @property
    def path(self) -> Path | None:
        return self.whole.path

    @property
    def dirty(self) -> bool:
        return self.whole.dirty

    @property
    def undo_stack(self) -> QUndoStack:
        return self.whole.undo_stack

    def apply(
        self,
        text: str,
        sheet: Sheet,
        merge: str | None = None,
        offers: Library | None = None,
    ) -> None:
        """Replace the sheet as one undo step; consecutive steps with the same `merge` key become one.

        Blocks of the library, or of `offers`, that the sheet uses are copied into the project.
        """
        project = self.whole.project
        if project.opened is not None:
            self.refused.emit(OPENED)
            return
        try:
            if isinstance(sheet, Project):
                project = sheet
            project, sheet = with_library_blocks(
                project, sheet, offers or self._library
            )
            if isinstance(sheet, Block):
                before = project
                project = blocks.put_block(project, sheet.name, sheet)
                if self._make_room is not None:
                    project = self._make_room(before, project, sheet.name)
                merge = merge and f"{sheet.name}/{merge}"
            else:
                project = blocks.with_sheet(project, blocks.NETWORK, sheet)
        except BlockError as error:
            self.refused.emit(str(error))
            return
        if refusal := _beyond(project, self.whole.project):
            self.refused.emit(refusal)
            return
        self.whole.apply(text, project, merge)

    @property
    def _library(self) -> Library:
        return getattr(self._catalog, "library", None) or Library()

    def _front(self) -> Sheet:
        return blocks.sheet_named(self.whole.project, self.place.block)

    def _project_changed(self, before: Project, after: Project) -> None:
        way = self.place.path
        self.place.step_out()
        if self.place.path == way:
            self._show()

    def _moved(self, before: Way, after: Way) -> None:
        self.leaving.emit()
        self._show()

    def _show(self) -> None:
        before, self._shown = self._shown, self._front()
        if before is not self._shown:
            self.changed.emit(before, self._shown)

    def _replaced(self, project: Project) -> None:
        """Another project is seen from its network; `changed` comes next."""
        self.place.go_to(NETWORK)
        self.replaced.emit(cast(Sheet, project))
