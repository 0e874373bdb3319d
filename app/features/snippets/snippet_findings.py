"""The findings of a snippet, which are shown on the page "Findings" while the snippet is in front."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject
from PySide6.QtWidgets import QStackedWidget

from app.autograd.diagnostics.results import Finding, first_nodes
from app.util.language import marked, tr
from app.views.autograd.findings.findings_control import show_results
from app.views.autograd.findings.findings_page import CHECKPOINT, FindingsPage

if TYPE_CHECKING:
    from app.autograd.diagnostics.results import Findings
    from app.autograd.tape import Tape
    from app.features.snippets.control import SnippetControl
    from app.views.workspace import Workspace

TITLE = marked("This snippet was not diagnosed yet")
ACTION = marked("Run with diagnostics")
HINT = marked(
    "Leaf tensors and modules count as parameters, and everything up to the first backward pass as the forward pass."
)


class SnippetFindingsPage(FindingsPage):
    """Findings and gain ladder of a snippet."""

    def __init__(self) -> None:
        super().__init__()
        self.tabs.set_option_offered(CHECKPOINT, False)
        self.empty.button.setText(tr(ACTION))
        self._show(self.page)

    def _show(self, page: str) -> None:
        super()._show(page)
        self.over.hide()
        if not self._captured:
            self.empty.set_text(
                tr("This snippet cannot be diagnosed") if self._why else tr(TITLE),
                self._why or tr(HINT),
            )
            self.empty.button.show()


class SnippetFindings(QObject):
    """Turns the page "Findings" between those of the net and those of the snippet, and runs the snippet for them."""

    def __init__(
        self,
        workspace: Workspace,
        pages: QStackedWidget,
        came_back: Callable[[], object],
        snippets: SnippetControl,
    ) -> None:
        super().__init__(workspace.window)
        self._workspace, self._pages, self._came_back, self._snippets = (
            workspace,
            pages,
            came_back,
            snippets,
        )
        snippets.tab.turned.connect(self._turn)
        snippets.changed.connect(self._update)
        workspace.pages.shown.connect(lambda _key: self._turn())
        self._turn()

    @cached_property
    def page(self) -> SnippetFindingsPage:
        """The snippet's page, made when a snippet is first in front."""
        page = SnippetFindingsPage()
        self._pages.addWidget(page)
        page.captureRequested.connect(self._snippets.diagnose)
        page.asked.connect(lambda _page: self._snippets.diagnose())
        page.stopped.connect(self._snippets.stop)
        page.list.opened.connect(self.go_to)
        page.chart.chosen.connect(self._choose_layer)
        return page

    @property
    def findings(self) -> Findings | None:
        """The findings of the snippet's last run, if it was run for them."""
        answer = self._snippets.page.answer
        return answer.findings if answer is not None else None

    def _turn(self) -> None:
        before = self._pages.currentWidget()
        if self._snippets.is_shown:
            self._pages.setCurrentWidget(self.page)
            self._update()
        elif before is not self._pages.widget(0):
            self._pages.setCurrentIndex(0)
            self._came_back()

    def _update(self) -> None:
        if not self._snippets.is_shown:
            return
        page, answer, findings = self.page, self._snippets.page.answer, self.findings
        page.set_captured(
            findings is not None, why=answer.undiagnosed if answer is not None else ""
        )
        page.set_working("Running the snippet…" if self._snippets.running else None)
        if findings is not None and not self._snippets.running:
            show_results(page, findings, marked("in this snippet"))

    def _same_tape(self) -> Tape | None:
        """Return the tape that the snippet's graph shows if the findings are of its nodes, else None."""
        ours, theirs = (
            self._snippets.page.room.tape,
            self.findings.tape if self.findings is not None else None,
        )
        if ours is None or theirs is None:
            return None
        return (
            ours
            if [node.name for node in ours.nodes]
            == [node.name for node in theirs.nodes]
            else None
        )

    def go_to(self, finding: Finding) -> None:
        """Select the node of a finding in the snippet's graph, and show its line."""
        page = self._snippets.page
        if finding.tape_node is not None and self._same_tape() is not None:
            page.room.reveal(finding.tape_node)
        if finding.line is not None and not finding.file:
            page.show_line(finding.line)

    def _choose_layer(self, key: str) -> None:
        tape = self._same_tape()
        if tape is not None and (node := first_nodes(tape).get(key)) is not None:
            self._snippets.page.room.reveal(node)
