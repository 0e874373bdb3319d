"""The target of the inspector's edits: the network, or the block that is open."""

from __future__ import annotations

from collections.abc import Callable

from app.builder.blocks import Block
from app.builder.catalog.catalog import Catalog
from app.builder.edits.blocks import NETWORK
from app.builder.graph import Graph
from app.builder.sheet import Sheet, changed
from app.project.document import Document
from app.project.project import Project
from app.views.navigation import SheetDocument


class EditTarget:
    """Reads and edits the open graph. `document` is the document itself, or a view of it on one graph.

    An edit of more than one graph goes to the `whole` project; the caller handles its `BlockError`.
    """

    def __init__(self, document: SheetDocument, catalog: Catalog) -> None:
        self.document, self.catalog = document, catalog

    @property
    def sheet(self) -> Sheet:
        return self.document.project

    @property
    def graph(self) -> Graph:
        return self.sheet.graph

    @property
    def block(self) -> Block | None:
        """The block in front, None for the network."""
        return self.sheet if isinstance(self.sheet, Block) else None

    @property
    def name(self) -> str:
        """Return the name of the sheet in front, as `block_edits` expects it."""
        return self.block.name if self.block else NETWORK

    @property
    def whole(self) -> Project:
        return self._document.project

    @property
    def _document(self) -> Document:
        return self.document.whole

    def apply(self, text: str, graph: Graph, merge: str | None = None) -> None:
        """Put another graph on the sheet, as one undo step."""
        self.document.apply(text, changed(self.sheet, graph=graph), merge=merge)

    def apply_sheet(self, text: str, sheet: Sheet, merge: str | None = None) -> None:
        """Put another sheet in the place of the one in front."""
        self.document.apply(text, sheet, merge=merge)

    def apply_whole(
        self, text: str, edit: Callable[[Project], Project], merge: str | None = None
    ) -> None:
        """Edit the whole project. Raises what `edit` raises, and then nothing is changed."""
        self._document.apply(text, edit(self.whole), merge)

    def enter(self, node: str) -> None:
        """Go into an instance of a block."""
        navigation = getattr(self.document, "place", None)
        if navigation is not None:
            navigation.enter(node)
