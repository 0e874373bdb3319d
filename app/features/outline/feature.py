"""The outline in the window: the page "Outline", and finding a node."""

from __future__ import annotations

from collections.abc import Iterable

from PySide6.QtCore import Qt

from app.features.outline.outline import Outline
from app.views.feature import Action, Feature, Page


class OutlineFeature(Feature):
    rank = 110
    outline: Outline

    def pages(self) -> Iterable[Page]:
        yield Page("outline", "Outline", "tree", "left", self._make)

    def actions(self) -> Iterable[Action]:
        yield Action(
            "find",
            "&Find a node…",
            self.find,
            "Ctrl+Shift+F",
            "search",
            late=True,
            menu="edit.search",
        )

    def _make(self) -> Outline:
        workspace = self.workspace
        self.outline = Outline(workspace.sheet, workspace.selection, workspace.catalog)
        return self.outline

    def finish(self) -> None:
        self.outline.jump_requested.connect(self.workspace.show_node)
        self.workspace.hearers.add(self._on_analysis, later=True)
        self._on_analysis()

    def find(self) -> None:
        """Put the caret into the outline's search."""
        self.workspace.pages.show("outline")
        self.outline.field.setFocus(Qt.FocusReason.ShortcutFocusReason)
        self.outline.field.selectAll()

    def _on_analysis(self) -> None:
        if self.workspace.live.in_front is not None:
            self.outline.set_analysis(self.workspace.live.in_front)
