"""Snippets in the window: a subject of the tab Autograd, its findings, and the command that shows it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from PySide6.QtWidgets import QStackedWidget

from app.features.snippets.control import KEY, SnippetControl
from app.features.snippets.values import ready
from app.views.feature import Action, Feature
from app.views.ui.dialogs.search import SearchEntry
from app.views.workspace import Workspace

if TYPE_CHECKING:
    from app.features.snippets.page import SnippetPage
    from app.features.snippets.snippet_findings import SnippetFindings
    from app.views.autograd.graph_tab import GraphTab, WriteReplay
    from app.views.autograd.page import AutogradPage
    from app.views.ui.inspector import TapeInspector


class SnippetsFeature(Feature):
    """A `GraphSubject` of the tab Autograd."""

    key, title, description = KEY, "Snippet", "a PyTorch snippet"
    findings: SnippetFindings

    def __init__(self, workspace: Workspace) -> None:
        super().__init__(workspace)
        self.control = SnippetControl(workspace)
        workspace.graph_subjects.append(self)

    def actions(self) -> Iterable[Action]:
        yield Action(
            "snippet",
            "PyTorch sn&ippet",
            self.control.show,
            "Ctrl+Shift+Return",
            "code",
            menu="autograd.code",
        )

        yield Action("open-snippet", "", self.control.open_ready)

    def searched(self) -> Iterable[SearchEntry]:
        for snippet in ready():
            yield SearchEntry(
                f"snippet.{snippet.key}",
                f"Snippet: {snippet.title}",
                partial(self.control.open_ready, snippet.key),
                "Snippet",
                (snippet.title,),
                snippet.words,
                "code",
            )

    @property
    def widget(self) -> SnippetPage:
        return self.control.page

    @property
    def room(self) -> AutogradPage:
        return self.control.page.room

    def follow(
        self, tab: GraphTab, inspector: TapeInspector, write: WriteReplay
    ) -> None:
        self.control.follow(tab, inspector, write)

    def follow_findings(
        self, pages: QStackedWidget, came_back: Callable[[], object]
    ) -> None:
        # Its page has charts, which make the start of the window longer.
        from app.features.snippets.snippet_findings import SnippetFindings

        self.findings = SnippetFindings(self.workspace, pages, came_back, self.control)

    def turned_to(self) -> None:
        self.control.page.edit.setFocus()
